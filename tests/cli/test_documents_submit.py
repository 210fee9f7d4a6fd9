"""``documents submit``: over a real connection, to a real gateway with its worker."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.features.documents.feature import Scope
from holdfast.wiring import open_system
from tests.cli.commands import ENVIRONMENT, settings
from tests.support.file_server import FileServer
from tests.support.pages import encrypted_pdf, text_pdf
from tests.support.program import started

TEXT = "The lamp burned all night, and nobody came."
HERE = {"DOCUMENT_ALLOWED_ADDRESSES": "127.0.0.1", "DOCUMENT_MAX_BYTES": "200000"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """A running gateway; a tenant's key for everything, and one that only hands in."""
    with started(tmp_path_factory.mktemp("gateway"), ENVIRONMENT | HERE, "up", "--port", "0", "--json") as server:

        async def keys():
            async with open_system(settings(server.data)) as system:
                tenant = await system.tenants.add("Acme")
                made = [
                    await system.tenants.create_key(
                        tenant.company_id, label="", scopes=scopes, not_after=None, created_by="ana"
                    )
                    for scopes in (list(Scope), [Scope.DOCUMENTS_WRITE])
                ]
                return [text for _, text in made]

        whole, writing = asyncio.run(keys())
        yield SimpleNamespace(url=server.address, data=str(server.data), key=whole, writing=writing)


@pytest.fixture
def submit(gateway, program, monkeypatch, home):
    monkeypatch.setenv("HOLDFAST_API_KEY", gateway.key)
    monkeypatch.setenv("HOLDFAST_DATA", gateway.data)
    Path("letter.pdf").write_bytes(text_pdf([TEXT]))
    Path("locked.pdf").write_bytes(encrypted_pdf())

    def run(*arguments):
        said = program("documents", "submit", *arguments, "--url", gateway.url)
        for key in (gateway.key, gateway.writing):
            assert key not in said.out + said.err
        return said

    return run


def test_a_file_is_handed_in_waited_for_and_looked_at(submit, program):
    said = submit("letter.pdf", "--wait", "--job-id", "letter-1", "--metadata", "case=42", "--metadata", "of=a=b")
    assert (said.code, said.out, said.err) == (0, f"{TEXT}\n", "")
    shown = program("documents", "show", "letter-1", "--json").json
    assert shown["metadata"] == {"case": "42", "of": "a=b"}
    assert shown["filename"] == "letter.pdf"
    assert shown["result"]["pages"] == 1
    assert program("documents", "text", "letter-1").out == f"{TEXT}\n"
    table = program("documents", "show", "letter-1").out
    for words in ("COMPLETED", "1 of 1 page", "output_path", "succeeded"):
        assert words in table
    assert program("documents", "cancel", "letter-1").code == 1

    cached = submit("letter.pdf", "--job-id", "letter-2")
    assert cached.code == 0
    assert "COMPLETED" in cached.out
    assert "output_path" not in cached.out, "a receipt, not a result"
    whole = submit("letter.pdf", "--job-id", "letter-2", "--wait", "--json").json
    assert whole["content"]["pages"][0]["text"].strip() == TEXT
    conflict = submit("locked.pdf", "--job-id", "letter-1")
    assert conflict.code == 1
    assert "IDEMPOTENCY_CONFLICT" in conflict.err

    results = Path(os.environ["HOLDFAST_DATA"], "documents", "results")
    for each in results.glob("letter-1.*/*/*.txt"):
        each.unlink()
    gone = program("documents", "text", "letter-1")
    assert (gone.code, gone.err) == (1, "Error: The files of this result are deleted.\n")


def test_a_damaged_pdf_is_read_with_a_warning_and_refused_with_strict(submit, program):
    Path("cut.pdf").write_bytes(text_pdf([TEXT]).rpartition(b"startxref")[0])
    warning = "The end mark is missing: the file may have been cut off, and pages may be missing."
    said = submit("cut.pdf", "--wait", "--job-id", "cut-1")
    assert (said.code, said.out, said.err) == (0, f"{TEXT}\n", f"Warning: {warning}\n")
    shown = " ".join(program("documents", "show", "cut-1").out.split())
    assert f"warnings {warning}" in shown
    assert program("documents", "show", "cut-1", "--json").json["warnings"] == [warning]

    said = submit("cut.pdf", "--wait", "--strict", "--job-id", "cut-2")
    assert said.code == 1
    assert "PDF_CORRUPT" in said.err


def test_a_file_that_cannot_be_read_ends_in_exit_code_1_and_can_be_replayed(submit, program):
    said = submit("locked.pdf", "--wait", "--job-id", "locked-1")
    assert (said.code, said.out) == (1, "")
    assert said.err == "Error: The PDF is encrypted (PDF_ENCRYPTED, VALIDATION)\n"
    assert "FAILED: there is no text." in program("documents", "text", "locked-1").err
    (letter,) = program("dlq", "list", "--reason", "PDF_ENCRYPTED", "--json").json["items"]
    for step in ("review", "replay"):
        assert program("dlq", step, letter["id"], "--reason", "Try again.").code == 0
    shown = program("documents", "show", "locked-1", "--json").json
    assert shown["error"]["code"] == "PDF_ENCRYPTED"
    table = program("documents", "show", shown["replayed_as"]).out
    assert "replay of" in table
    assert "locked-1" in table


def test_a_url_is_handed_in(submit):
    with FileServer() as server:
        url = server.file("/talk.pdf", text_pdf([TEXT, "The end."]))
        said = submit(url, "--wait")
        assert (said.code, said.out) == (0, f"{TEXT}\n\fThe end.\n"), said.err
        plain = server.file("/plain", text_pdf([TEXT]))
        assert "--input-type" in submit(plain).err
        receipt = submit(plain, "--input-type", "PDF", "--json").json
    assert receipt["status"] == "PENDING"
    assert receipt["job_id"].startswith("doc-")


def test_what_the_api_refuses_is_told(submit, gateway, monkeypatch):
    wrong = submit("letter.pdf", "--input-type", "PDF", "--callback-url", "https://example.com/hook")
    assert wrong.code == 1
    assert "DOCUMENT_CALLBACK_SECRET" in wrong.err
    Path("large.pdf").write_bytes(text_pdf([TEXT]) + bytes(3_000_000))
    assert "413" in submit("large.pdf").err
    monkeypatch.setenv("HOLDFAST_API_KEY", gateway.writing)
    blind = submit("letter.pdf", "--wait", "--job-id", "unseen")
    assert blind.code == 1
    assert "documents:read" in blind.err
    monkeypatch.setenv("HOLDFAST_API_KEY", "hf_wrong_key")
    assert "401" in submit("letter.pdf").err


def test_what_cannot_be_sent_is_told(submit, program, monkeypatch):
    assert submit("missing.pdf").code == 2
    assert submit("letter.pdf", "--metadata", "case").code == 2
    away = program("documents", "submit", "letter.pdf", "--url", "http://127.0.0.1:9")
    assert away.code == 2
    assert "Is `holdfast up` running there?" in away.err
    assert "--job-id" not in away.err
    with FileServer() as server:
        server.answers("/v1/documents", lambda client: client.socket.close())
        lost = program("documents", "submit", "letter.pdf", "--url", server.url(""), "--job-id", "lost-1")
    assert lost.code == 2
    assert "--job-id lost-1" in lost.err
    monkeypatch.delenv("HOLDFAST_API_KEY")
    keyless = submit("letter.pdf")
    assert keyless.code == 2
    assert "holdfast keys create" in keyless.err


def answering(status, body, kind="application/json"):
    def reply(client):
        client.head(status, {"content-type": kind})
        client.body([body])

    return reply


def event(name, **view):
    return f"event: {name}\ndata: {json.dumps(view)}\n\n".encode()


@pytest.fixture
def stand_in(home, monkeypatch):
    """A server that accepts a job, shows it badly, and has its text."""
    monkeypatch.setattr("holdfast.features.documents.commands.submit._AGAIN_AFTER", 0.01)
    monkeypatch.setenv("HOLDFAST_API_KEY", "hf_any_key")
    Path("letter.pdf").write_bytes(text_pdf([TEXT]))
    with FileServer() as server:
        server.answers("/v1/documents", answering(202, b'{"job_id": "one", "status": "PENDING"}'))
        server.answers("/v1/documents/one/result", answering(200, b'{"status": "COMPLETED"}'))
        server.answers("/v1/documents/one/text", answering(200, TEXT.encode(), "text/plain"))
        yield server


def test_a_stream_that_breaks_off_is_opened_again(program, stand_in, monkeypatch):
    monkeypatch.setattr("holdfast.features.documents.commands.submit._TIMES", 2)  # in a row
    broken = event("progress", status="PROCESSING", stage="reading", pages_done=1, pages=2)
    ended = event("progress", status="COMPLETED") + event("end", status="COMPLETED")
    stand_in.answers(
        "/v1/documents/one/events",
        answering(503, b"{}"),
        answering(200, b": still here\n\n" + broken, "text/event-stream"),
        answering(200, ended, "text/event-stream"),
    )
    with monkeypatch.context() as watched:
        watched.setenv("TERM", "xterm")
        watched.setattr(sys.stderr, "isatty", lambda: True)
        said = program("documents", "submit", "letter.pdf", "--wait", "--url", stand_in.url(""))
    assert (said.code, said.out) == (0, TEXT), said.err
    assert "1 of 2 pages" in said.err
    assert len(stand_in.to("/v1/documents/one/events")) == 3


def test_a_stream_that_never_comes_back_is_given_up(program, stand_in, monkeypatch):
    monkeypatch.setattr("holdfast.features.documents.commands.submit._TIMES", 2)
    stand_in.answers("/v1/documents/one/events", answering(503, b"{}"))
    said = program("documents", "submit", "letter.pdf", "--wait", "--url", stand_in.url(""))
    assert said.code == 2
    assert "the job continues" in said.err
    assert len(stand_in.to("/v1/documents/one/events")) == 2


def test_whoever_stops_waiting_is_told_that_the_job_goes_on(program, stand_in, monkeypatch):
    async def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("holdfast.features.documents.commands.submit._follow", interrupted)
    said = program("documents", "submit", "letter.pdf", "--wait", "--url", stand_in.url(""))
    assert said.code == 130
    assert said.err == "The job continues: holdfast documents show one\n"
