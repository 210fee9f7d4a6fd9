"""The lives of documents, from the request to the end, on both deployments: real workers, real children, real files."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.contracts.ledger import Status
from tests.support import file_server as replies
from tests.support.document_client import (
    AUDIO,
    CLUSTER,
    EMBEDDED,
    OCR,
    Script,
    alive,
    document_client_on,
    eventually,
    failed,
    page,
    pages,
    plan,
)
from tests.support.gateway import outcomes
from tests.support.pages import misnamed_pdf, mixed_pdf, text_pdf
from tests.support.recordings import KENNEDY, kennedy, opus, word_error_rate, words

pytestmark = pytest.mark.asyncio(loop_scope="module")

FINISHED = {"stage": "finished", "progress": 100, "error": None}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[EMBEDDED, CLUSTER])
async def client(request, tmp_path_factory):
    async with document_client_on(request.param, request, tmp_path_factory.mktemp("documents")) as client:
        yield client


def facts(document, *names):
    return {name: document.get(name) for name in names}


def instants_in_order(*instants):
    return None not in instants and list(instants) == sorted(instants)


# --- read -----------------------------------------------------------------------------------------------------------


async def test_an_upload_is_read_and_every_record_and_file_says_so(client):
    """One page with a text layer and one that only OCR can read."""
    born, scanned = "The first page was born digital", "THE SECOND PAGE WAS SCANNED"
    job_id = await client.handed_in(
        mixed_pdf(born, scanned), language="en", metadata=json.dumps({"order": 7}), filename="C:\\in\\deed.pdf"
    )
    job = await client.until(job_id, "COMPLETED")

    company = client.companies["acme"]
    assert facts(job, "company_id", "job_type", "input_type", "engine", "language", "metadata", "filename") == {
        "company_id": company,
        "job_type": "OCR",
        "input_type": "PDF",
        "engine": "local",
        "language": "en",
        "metadata": {"order": 7},
        "filename": "deed.pdf",
    }
    counted = {"unit": "page", "units_done": 2, "units": 2, "attempts": 1, "max_attempts": 3, "cached": False}
    assert facts(job, *FINISHED, *counted) == FINISHED | counted
    assert facts(job, "replay_of", "replayed_as", "cancel_requested") == dict.fromkeys(
        ("replay_of", "replayed_as", "cancel_requested")
    )
    assert instants_in_order(job["accepted_at"], job["started_at"], job["finished_at"], job["expires_at"])

    result = await client.result(job_id)
    assert facts(result, "job_id", "company_id", "status", "pages", "units_reused", "cached", "error") == {
        "job_id": job_id,
        "company_id": company,
        "status": "COMPLETED",
        "pages": 2,
        "units_reused": 0,
        "cached": False,
        "error": None,
    }
    assert facts(result, "engine", "language", "media_seconds") == {
        "engine": "local",
        "language": "en",
        "media_seconds": None,
    }
    assert result["model"]
    assert result["duration_sec"] > 0
    assert 0.5 < result["confidence"] <= 1
    assert (result["finished_at"], result["expires_at"]) == (job["finished_at"], job["expires_at"])

    output = Path(result["output_path"])
    assert output == client.folder / "documents" / "results" / job_id / "1"
    text = (output / "text.txt").read_text(encoding="utf-8")
    assert born in text
    assert scanned in text.upper()
    assert result["characters"] == len("".join((born + scanned).split()))
    assert born in (output / "document.md").read_text(encoding="utf-8")
    whole = json.loads((output / "result.json").read_text(encoding="utf-8"))
    assert [each["source"] for each in whole["pages"]] == ["text_layer", "ocr"]
    assert (await client.get(f"{job_id}/text")).text == text

    entry = await client.entry(job_id)
    assert (entry.status, outcomes(entry)) == (Status.PROCESSED, [("succeeded", None)])
    assert entry.result == facts(result, "job_id", "status", "duration_sec", "output_path", "pages")
    assert await client.letters(job_id) == []


async def test_a_recording_becomes_timed_segments_and_subtitles(client):
    job_id = await client.handed_in(opus(kennedy()), filename="speech.opus", language="en", **AUDIO)
    job = await client.until(job_id, "COMPLETED")
    assert facts(job, "unit", "units", "units_done", "attempts") == {
        "unit": "chunk",
        "units": 1,
        "units_done": 1,
        "attempts": 1,
    }
    result = await client.result(job_id)
    assert facts(result, "pages", "language", "engine") == {"pages": None, "language": "en", "engine": "local"}
    assert result["media_seconds"] == pytest.approx(kennedy().size / 16_000, abs=0.5)

    whole = json.loads(await client.output(job_id, "result.json"))
    segments = whole["segments"]
    heard = " ".join(each["text"].strip() for each in segments)
    assert word_error_rate(KENNEDY, heard) <= 0.05
    assert all(0 <= each["start"] < each["end"] <= result["media_seconds"] + 0.5 for each in segments)
    assert words((await client.output(job_id, "text.txt")).decode()) == words(heard)
    srt = (await client.get(f"{job_id}/srt")).text
    vtt = (await client.get(f"{job_id}/vtt")).text
    assert srt.startswith("1\n00:00:0")
    # A long segment is shown as several subtitles; where the model ends a segment depends on the processor.
    assert srt.count(" --> ") == vtt.count(" --> ") >= len(segments)
    assert vtt.startswith("WEBVTT\n")


async def test_a_file_in_a_folder_that_may_be_read_is_read(client):
    (client.roots / "inbox").mkdir()
    (client.roots / "inbox" / "deed.pdf").write_bytes(text_pdf(["From a folder"]))
    job_id = await client.handed_in(local_path="inbox/deed.pdf")
    await client.until(job_id, "COMPLETED", units=1)
    assert b"From a folder" in await client.output(job_id, "text.txt")
    assert list((client.folder / "documents" / "work").iterdir()) == []


async def test_a_file_behind_a_url_that_fails_once_is_read_at_the_second_attempt(client):
    content = text_pdf(["From a server"])
    url = client.server.answers("/deed.pdf", replies.status(500), replies.content(content))
    job_id = await client.handed_in(url=f"{url}?token=s3cret")
    job = await client.until(job_id, "COMPLETED", attempts=2)
    assert job["error"] is None
    assert b"From a server" in await client.output(job_id, "text.txt")
    assert [each.target for each in client.server.to("/deed.pdf")] == ["/deed.pdf?token=s3cret"] * 2
    assert outcomes(await client.entry(job_id)) == [("failed", "HTTP_STATUS"), ("succeeded", None)]
    assert "s3cret" not in repr((await client.entry(job_id)).attempts)


# --- one job, one result --------------------------------------------------------------------------------------------


async def test_the_same_job_again_is_a_duplicate_and_another_under_its_id_a_conflict(client):
    script = Script(pages(1))
    job_id = await client.handed_in(script, job_id="deed-1")
    await client.until(job_id, "COMPLETED")

    again = await client.upload(script.content, job_id="deed-1", filename="renamed.pdf")
    assert (again.status_code, again.json()["duplicate"], again.json()["status"]) == (202, True, "COMPLETED")
    for other in (
        await client.upload(text_pdf(["Another"]), job_id="deed-1"),
        await client.upload(script.content, job_id="deed-1", language="pt"),
    ):
        assert (other.status_code, other.json()["errorCode"]) == (409, "IDEMPOTENCY_CONFLICT")
    assert len(script.specs) == 1
    assert (await client.job("deed-1"))["company_id"] == client.companies["acme"]
    assert await client.letters("deed-1") == []


async def test_the_same_file_again_has_its_result_at_once(client):
    script = Script(pages(2))
    first = await client.handed_in(script)
    await client.until(first, "COMPLETED")
    path = (await client.result(first))["output_path"]

    answer = await client.upload(script.content, job_id="again-1")
    assert (answer.status_code, answer.json()["cached"]) == (200, True)
    assert facts(answer.json()["result"], "job_id", "status", "output_path", "pages", "cached") == {
        "job_id": "again-1",
        "status": "COMPLETED",
        "output_path": path,
        "pages": 2,
        "cached": True,
    }
    await eventually(lambda: _is(client, "again-1", Status.PROCESSED))
    job, result = await client.job("again-1"), await client.result("again-1")
    assert facts(job, *FINISHED, "status", "cached", "units") == FINISHED | {
        "status": "COMPLETED",
        "cached": True,
        "units": 2,
    }
    assert facts(result, "output_path", "cached", "status") == {
        "output_path": path,
        "cached": True,
        "status": "COMPLETED",
    }
    assert b"page 2" in await client.output("again-1", "text.txt")
    assert len(script.specs) == 1


@pytest.mark.parametrize("difference", ["another tenant", "told not to", "another language", "outputs are gone"])
async def test_a_file_is_read_anew_where_there_is_no_result_to_be_had(client, difference):
    script = Script(pages(1))
    first = await client.handed_in(script)
    await client.until(first, "COMPLETED")
    if difference == "outputs are gone":
        shutil.rmtree((await client.result(first))["output_path"])
    given = {
        "another tenant": {"who": "other"},
        "told not to": {"cache": "false"},
        "another language": {"language": "pt"},
    }

    again = await client.handed_in(script, **given.get(difference, {}))
    job = await client.until(again, "COMPLETED")
    assert job["cached"] is False
    assert len(script.specs) == 2
    assert b"page 1" in await client.output(again, "text.txt")
    assert (await client.result(again))["output_path"].endswith(f"{again}/1")


async def test_a_job_that_a_external_producer_put_into_the_queue_is_adopted_and_read(client):
    (client.roots / "strange.pdf").write_bytes(text_pdf(["From elsewhere"]))
    await client.put({"job_id": "strange-1", **OCR, "payload": {"local_path": "strange.pdf"}}, "strange-1")
    job = await client.until("strange-1", "COMPLETED")
    assert (job["company_id"], job["attempts"], job["units"]) == (None, 1, 1)
    assert b"From elsewhere" in await client.output("strange-1", "text.txt")


# --- damaged files --------------------------------------------------------------------------------------------------

CUT_OFF = "The end mark is missing: the file may have been cut off, and pages may be missing."


def damaged(text):
    """A PDF without its end mark, whose second page is not there."""
    whole = text_pdf([text, "This page is lost", "The last page"])
    return whole.replace(b"/Kids [5 0 R 7 0 R", b"/Kids [5 0 R 99 0 R").rpartition(b"startxref")[0]


async def test_a_damaged_pdf_is_read_as_far_as_it_can_be_and_everything_says_what_is_wrong(client):
    warnings = [CUT_OFF, "Page 2 could not be read."]
    url = client.server.answers("/warned", replies.status(204))
    job_id = await client.handed_in(damaged("The first page"), callback_url=url)
    job = await client.until(job_id, "COMPLETED", attempts=1, units=3)
    assert job["warnings"] == warnings
    assert (await client.result(job_id))["warnings"] == warnings
    assert (await client.get(job_id)).json()["warnings"] == warnings
    whole = (await client.get(f"{job_id}/result")).json()
    assert (whole["status"], whole["pages"], whole["warnings"]) == ("COMPLETED", 3, warnings)
    assert whole["content"]["warnings"] == warnings
    assert [(each["text"], each["source"], each["warning"]) for each in whole["content"]["pages"]] == [
        ("The first page", "text_layer", None),
        ("", "unreadable", warnings[1]),
        ("The last page", "text_layer", None),
    ]
    assert (await client.get(f"{job_id}/text")).text == "The first page\n\f\n\fThe last page\n"
    assert (await client.entry(job_id)).result["warnings"] == warnings
    (told,) = await asyncio.to_thread(client.server.wait_for, "/warned")
    assert json.loads(told.body)["data"]["warnings"] == warnings
    assert await client.letters(job_id) == []


async def test_a_strict_job_gets_no_result_with_warnings_and_the_others_do(client):
    content = damaged("Read strictly")
    lenient = await client.handed_in(content)
    await client.until(lenient, "COMPLETED")

    strict = await client.handed_in(content, strict="true")
    letter = await client.the_letter(strict)
    assert facts(letter, "error", "error_code", "error_type", "error_detail", "attempts") == {
        "error": "The PDF is damaged",
        "error_code": "PDF_CORRUPT",
        "error_type": "VALIDATION",
        "error_detail": CUT_OFF,
        "attempts": 1,
    }
    assert letter["payload"]["strict"] is True
    assert (await client.get(strict)).json()["warnings"] == []

    again = await client.upload(content, strict="false")
    assert (again.status_code, again.json()["result"]["warnings"][0]) == (200, CUT_OFF)


async def test_a_result_without_warnings_is_the_same_for_strict_jobs_and_others(client):
    script = Script(pages(1))
    await client.until(await client.handed_in(script, strict="true"), "COMPLETED")
    answer = await client.upload(script.content)
    assert (answer.status_code, answer.json()["cached"]) == (200, True)
    answer = await client.upload(script.content, strict="true", job_id="strict-again")
    assert (answer.status_code, answer.json()["cached"]) == (200, True)
    assert [spec.strict for spec in script.specs] == [True]


async def test_a_strict_job_does_not_go_on_from_pages_with_warnings(client):
    """Another job left them, which was not strict."""
    warned = page(1)
    warned.result.update(text="", source="unreadable", warning="Page 2 could not be read.")
    script = Script([plan(4), page(0), warned, page(2), failed("PDF_ENCRYPTED")], [failed("PDF_CORRUPT")])
    await client.until(await client.handed_in(script), "FAILED")
    await client.until(await client.handed_in(script, strict="true"), "FAILED")
    await client.until(await client.handed_in(script), "FAILED")
    assert [(spec.strict, spec.done) for spec in script.specs] == [(False, 0), (True, 1), (False, 3)]


async def test_a_strict_job_that_a_producer_put_into_the_queue_is_strict(client):
    (client.roots / "cut.pdf").write_bytes(damaged("From a producer"))
    for strict, end in ((True, "FAILED"), (False, "COMPLETED")):
        payload = {"local_path": "cut.pdf", "strict": strict}
        await client.put({"job_id": f"queued-{strict}", **OCR, "payload": payload}, f"queued-{strict}")
        await client.until(f"queued-{strict}", end)


async def test_a_text_layer_that_says_something_else_than_the_page_is_not_what_is_read(client):
    shown = "The lighthouse keeper wrote in his log every evening"
    job_id = await client.handed_in(misnamed_pdf(shown, how="missing"))
    await client.until(job_id, "COMPLETED")
    assert (await client.output(job_id, "text.txt")).decode().split() == shown.split()


# --- attempts and checkpoints ---------------------------------------------------------------------------------------


async def test_what_a_failed_attempt_has_read_is_not_read_again(client):
    script = Script(
        [plan(3), page(0), page(1), failed("MODEL_UNAVAILABLE", "The model is not available", detail="HTTP 503")],
        [plan(3), failed("MODEL_RATE_LIMIT", retry_after=0.0)],
        [plan(3), page(2), failed("OUT_OF_MEMORY")],
    )
    job_id = await client.handed_in(script)
    letter = await client.the_letter(job_id)
    assert [spec.done for spec in script.specs] == [0, 2, 2]
    assert [each["error_code"] for each in letter["attempt_history"]] == [
        "MODEL_UNAVAILABLE",
        "MODEL_RATE_LIMIT",
        "OUT_OF_MEMORY",
    ]
    # The third attempt read the last page before it failed: a new job of the same file reads nothing again.
    script.attempts = [[plan(3), pages(3)[-1]]]
    again = await client.handed_in(script)
    await client.until(again, "COMPLETED")
    assert script.specs[-1].done == 3
    assert (await client.result(again))["units_reused"] == 3
    assert (await client.output(again, "text.txt")).decode().split("\f")[0].startswith("page 1")


async def test_checkpoints_are_gone_when_they_have_served(client):
    script = Script([plan(2), page(0), failed("TIMEOUT")], [plan(2), page(1), pages(2)[-1]])
    job_id = await client.handed_in(script)
    job = await client.until(job_id, "COMPLETED", attempts=2, units_done=2)
    assert job["error"] is None
    result = await client.result(job_id)
    assert (result["units_reused"], result["pages"], result["characters"]) == (1, 2, len("page1page2"))

    anew = await client.handed_in(script, cache="false")
    await eventually(lambda: len(script.specs) == 3)
    assert script.specs[-1].done == 0
    await client.until(anew, "FAILED")


async def test_stopping_a_worker_costs_no_attempt_and_the_next_goes_on_from_the_checkpoints(client):
    script = Script([plan(3), page(0), page(1)], [plan(3), page(2), pages(3)[-1]])
    job_id = await client.handed_in(script)
    await client.until(job_id, "PROCESSING", units_done=2)
    child = script.pid
    async with client.gateway.resting():
        assert not alive(child)
        waiting = await client.job(job_id)
        assert facts(waiting, "status", "stage", "attempts", "units_done", "error") == {
            "status": "PENDING",
            "stage": "queued",
            "attempts": 0,
            "units_done": 2,
            "error": None,
        }
        entry = await client.entry(job_id)
        assert (entry.status.terminal, entry.attempt_count) == (False, 0)
    job = await client.until(job_id, "COMPLETED")
    assert job["attempts"] == 1
    assert [spec.done for spec in script.specs] == [0, 2]
    assert (await client.result(job_id))["units_reused"] == 2
    assert outcomes(await client.entry(job_id)) == [("succeeded", None)]


# --- cancelled ------------------------------------------------------------------------------------------------------


async def cancelled(client, job_id):
    """Its end, as every record tells it."""
    await client.until(job_id, "CANCELLED", stage="finished")
    result = await client.result(job_id)
    assert facts(result, "status", "output_path", "pages") == {"status": "CANCELLED", "output_path": None, "pages": 0}
    await client.look_after()
    assert (await client.entry(job_id)).status is Status.EXPIRED
    assert await client.letters(job_id) == []
    assert await client.told(job_id) == []


async def test_a_job_that_waits_is_cancelled_and_never_begins(client):
    script = Script(pages(1))
    async with client.gateway.resting():
        job_id = await client.handed_in(script)
        answer = await client.cancel(job_id)
        assert (answer.status_code, answer.json()["status"]) == (200, "CANCELLED")
    await cancelled(client, job_id)
    assert (await client.entry(job_id)).attempt_count == 0
    assert (await client.cancel(job_id)).json()["status"] == "CANCELLED"
    assert script.specs == []


async def test_a_job_in_work_is_cancelled_and_its_child_is_gone(client):
    script = Script([plan(2), page(0)])
    job_id = await client.handed_in(script)
    await client.until(job_id, "PROCESSING", units_done=1)
    assert alive(script.pid)

    assert (await client.cancel(job_id, who="other")).status_code == 404
    answer = await client.cancel(job_id)
    assert (answer.status_code, answer.json()["cancel_requested"]) == (202, True)
    await cancelled(client, job_id)
    assert not alive(script.pid)
    assert len(script.specs) == 1


async def test_looks_for_cancellations_that_fail_stop_nothing_and_the_next_worker_does_not_begin(client, monkeypatch):
    async def failing(*_):
        message = "the driver has a bad day"
        raise RuntimeError(message)

    monkeypatch.setattr("holdfast.engine.context.SharedContext.look_for_cancellations", failing)
    script, untouched = Script([plan(2), page(0)]), Script(pages(1))
    job_id = await client.handed_in(script)
    await client.until(job_id, "PROCESSING", units_done=1)
    assert (await client.cancel(job_id)).status_code == 202
    other = await client.handed_in(untouched)
    await client.until(other, "COMPLETED", attempts=1)
    assert alive(script.pid)
    async with client.gateway.resting():
        assert not alive(script.pid)
    await cancelled(client, job_id)
    assert len(script.specs) == 1


async def test_a_job_that_has_ended_cannot_be_cancelled(client):
    script = Script(pages(1))
    done = await client.handed_in(script)
    await client.until(done, "COMPLETED")
    lost = await client.handed_in(local_path="nowhere.pdf")
    await client.until(lost, "FAILED")
    async with client.gateway.resting():
        # Ended before a worker has seen it.
        known = (await client.upload(script.content)).json()["job_id"]
        answer = await client.cancel(known)
        assert (answer.status_code, answer.json()["errorCode"]) == (409, "TOO_LATE_TO_CANCEL")
    await eventually(lambda: _is(client, known, Status.PROCESSED))
    for job_id in (done, lost, known):
        before = await client.job(job_id)
        answer = await client.cancel(job_id)
        assert (answer.status_code, answer.json()["errorCode"]) == (409, "TOO_LATE_TO_CANCEL")
        assert await client.job(job_id) == before


async def _is(client, job_id, status) -> bool:
    return (await client.entry(job_id)).status is status
