"""Every condition under which a job enters the dead letters (rules D2 to D7), and the table that decides.

Whatever it was, there is exactly one letter, in the store and in the queue, with everything that section 2 asks for.
"""

from __future__ import annotations

import json
import uuid
from datetime import datetime

import jsonschema_rs
import pytest
import pytest_asyncio

from holdfast.contracts.ledger import Status
from holdfast.features.documents.dead_letter import DocumentDeadLetter
from holdfast.features.documents.failures import TABLE, Code
from tests.support import file_server as replies
from tests.support import gemini_server as gemini
from tests.support.document_client import (
    AUDIO,
    CLUSTER,
    EMBEDDED,
    OCR,
    Script,
    document_client_on,
    eventually,
    failed,
    page,
    pages,
    plan,
)
from tests.support.gateway import outcomes
from tests.support.pages import encrypted_pdf, scanned_pdf, text_pdf, truncated_pdf, zero_page_pdf
from tests.support.recordings import mp4, tone, wav

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCHEMA = jsonschema_rs.validator_for(DocumentDeadLetter.model_json_schema(), validate_formats=True)
REQUIRED = {"job_id", "job_type", "input_type", "payload", "status", "error", "attempts", "failed_at"}
OPTIONAL = {"error_type", "max_attempts", "worker_id", "schema_version"}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[EMBEDDED, CLUSTER])
async def client(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    (folder / "no-model").mkdir()
    async with document_client_on(
        request.param, request, folder, whisper_model_dir=folder / "no-model", document_max_bytes=200_000
    ) as client:
        yield client


async def letter_of(client, job_id, code, error_type, *, attempts=1, payload=None):
    """The job's one letter, with all that it has to have."""
    letter = await client.the_letter(job_id)
    SCHEMA.validate(letter)
    assert set(letter) >= REQUIRED | OPTIONAL
    assert {name: letter[name] for name in ("job_id", "status", "schema_version", "max_attempts")} == {
        "job_id": job_id,
        "status": "FAILED",
        "schema_version": "v1",
        "max_attempts": 2 if letter["job_type"] == "TRANSCRIPTION" else 3,
    }
    assert (letter["error_code"], letter["error_type"], letter["attempts"]) == (code, error_type, attempts)
    assert letter["error"]
    assert "\n" not in letter["error"]
    assert isinstance(letter["worker_id"], str)
    assert letter["worker_id"]
    assert datetime.fromisoformat(letter["failed_at"]).tzinfo is not None
    history = letter["attempt_history"]
    assert [(each["attempt"], each["outcome"]) for each in history] == [
        (number, "failed") for number in range(1, attempts + 1)
    ]
    assert history[-1]["error_code"] == code
    if payload is not None:
        assert letter["payload"] == payload
    return letter


async def has_failed(client, job_id, letter):
    """What the job's own records say is what its letter says."""
    job, result, entry = await client.job(job_id), await client.result(job_id), await client.entry(job_id)
    error = {
        "error_type": letter["error_type"],
        "code": letter["error_code"],
        "message": letter["error"],
        "detail": letter.get("error_detail"),
    }
    assert (job["status"], job["stage"], job["error"]) == ("FAILED", "finished", error)
    assert (result["status"], result["output_path"], result["error"]) == ("FAILED", None, error)
    assert job["attempts"] == entry.attempt_count == letter["attempts"]
    assert entry.status is Status.DEAD_LETTERED
    assert (letter["job_type"], letter["input_type"]) == (job["job_type"], job["input_type"])
    assert {name for name in result if name.endswith("_at")} >= {"finished_at", "expires_at"}


# --- maximum retry attempts are exhausted ---------------------------------------------------------------------------


async def test_attempts_are_exhausted_by_a_server_that_never_has_the_file(client):
    url = client.server.answers("/always-busy", replies.status(503)) + "?signature=do-not-tell"
    given = {"url": url, "language": "pt", "metadata": {"order": [1, None, {"a": "ç"}]}, "cache": True}
    job_id = await client.handed_in(**given)
    letter = await letter_of(client, job_id, "HTTP_STATUS", "IO", attempts=3, payload=given)
    await has_failed(client, job_id, letter)
    assert (letter["error"], letter["error_detail"]) == ("Unable to download document", "HTTP 503")
    assert len(client.server.to("/always-busy")) == 3
    # The payload is the sender's own, whole; no error repeats the secret in it.
    without_payload = {name: value for name, value in letter.items() if name != "payload"}
    assert "do-not-tell" not in json.dumps(without_payload) + json.dumps(await client.job(job_id))


# --- schema validation fails; unsupported job type or input type ----------------------------------------------------


def broken(**changes):
    job = {"job_id": "b", **OCR, "payload": {"local_path": "a.pdf"}} | changes
    return {name: value for name, value in job.items() if value is not ...}


BROKEN = {
    "no payload": broken(payload=...),
    "an empty payload": broken(payload={}),
    "a payload of another shape": broken(payload=["a.pdf"]),
    "two sources": broken(payload={"local_path": "a.pdf", "url": "https://example.com/a.pdf"}),
    "an engine that nobody has": broken(payload={"local_path": "a.pdf", "engine": "abacus"}),
    "an unsupported job type": broken(job_type="SUMMARY"),
    "an unsupported input type": broken(input_type="IMAGE"),
    "no input type": broken(input_type=...),
    "types that do not fit": broken(job_type="TRANSCRIPTION"),
    "types that are no words": broken(job_type=7, input_type=None),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_a_external_producers_job_that_breaks_the_contract_is_adopted_and_refused(client, what):
    job = BROKEN[what] | {"job_id": f"b-{what.replace(' ', '-')}"}
    await client.put(job)
    letter = await letter_of(client, job["job_id"], "VALIDATION_FAILED", "VALIDATION", payload=job.get("payload", {}))
    for name in ("job_type", "input_type"):
        said = job.get(name)
        assert letter[name] == (said if isinstance(said, str) else "UNKNOWN")
    assert await client.job(job["job_id"]) == {}
    assert (await client.entry(job["job_id"])).status is Status.DEAD_LETTERED  # found by its own id


@pytest.mark.parametrize("text", ["not JSON", "17", "[]", '"text"', "null", '{"job_id": ["a list"]}'])
async def test_what_is_no_job_at_all_is_not_lost_either(client, text):
    before = {each["job_id"] for each in await client.dead_letter_queue()}
    await client.put(text)
    (job_id,) = await _new_letters(client, before)
    letter = await letter_of(client, job_id, "VALIDATION_FAILED", "VALIDATION")
    assert job_id.startswith("unreadable-")
    assert (letter["job_type"], letter["input_type"]) == ("UNKNOWN", "UNKNOWN")
    assert letter["payload"] == (text if text == "not JSON" else json.loads(text))


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (OCR | {"job_type": "SUMMARY", "local_path": "a.pdf"}, "job_type"),
        (OCR | {"input_type": "IMAGE", "local_path": "a.pdf"}, "input_type"),
        (OCR | {"input_type": "AUDIO", "local_path": "a.pdf"}, "input_type"),
    ],
)
async def test_a_tenant_is_told_at_once_of_a_type_that_is_not_supported(client, document, field):
    before = await client.dead_letter_queue()
    answer = await client.send(document | {"job_id": "refused-by-the-api"})
    assert answer.status_code == 400
    assert field in {each["field"] for each in answer.json()["details"]}
    assert await client.dead_letter_queue() == before
    assert await client.job("refused-by-the-api") == {}


# --- the input is missing or unreadable -----------------------------------------------------------------------------


async def test_an_upload_that_was_lost_is_missing(client):
    content = text_pdf(["To be lost"])
    async with client.gateway.resting():
        job_id = await client.handed_in(content, filename="lost.pdf")
        uploads = client.folder / "documents" / "uploads"
        (kept,) = [each for each in uploads.rglob("*") if each.is_file() and each.read_bytes() == content]
        kept.unlink()
    letter = await letter_of(client, job_id, "FILE_NOT_FOUND", "IO", attempts=3)
    await has_failed(client, job_id, letter)
    assert letter["error"] == "File not found: lost.pdf"
    sha256, _, upload_id = kept.name.partition("-")
    named = {"sha256": sha256, "size": len(content), "upload_id": upload_id, "filename": "lost.pdf"}
    assert letter["payload"] == {"upload": named}


async def test_a_path_that_is_no_file_is_unreadable(client):
    (client.roots / "folder.pdf").mkdir()
    job_id = await client.handed_in(local_path="folder.pdf")
    letter = await letter_of(client, job_id, "FILE_UNREADABLE", "IO", attempts=3)
    await has_failed(client, job_id, letter)
    assert letter["error"] == "File cannot be read: folder.pdf (it is a folder)"


UNREADABLE = {
    "encrypted": (encrypted_pdf(), OCR, "PDF_ENCRYPTED"),
    "truncated": (truncated_pdf(kept=0.1), OCR, "PDF_CORRUPT"),
    "without pages": (zero_page_pdf(), OCR, "PDF_NO_PAGES"),
    "a film without sound": (mp4(None), AUDIO | {"input_type": "VIDEO"}, "NO_AUDIO_TRACK"),
}


@pytest.mark.parametrize("what", UNREADABLE)
async def test_a_file_that_nobody_can_read_fails_at_the_first_attempt(client, what):
    content, given, code = UNREADABLE[what]
    job_id = await client.handed_in(content, **given)
    letter = await letter_of(client, job_id, code, "VALIDATION")
    await has_failed(client, job_id, letter)
    assert letter["error"] == TABLE[Code(code)].message


async def test_a_file_that_is_not_what_its_job_says_is_refused_by_the_worker_too(client):
    """The API refuses such a request of a tenant. A job of an external producer does not pass the API."""
    (client.roots / "tool.pdf").write_bytes(b"MZ\x90\x00" + bytes(2_000))
    answer = await client.send(OCR | {"local_path": "tool.pdf"})
    assert (answer.status_code, answer.json()["details"][0]["field"]) == (422, "local_path")
    await client.put({"job_id": "tool-1", **OCR, "payload": {"local_path": "tool.pdf"}})
    await letter_of(client, "tool-1", "CONTENT_MISMATCH", "VALIDATION", payload={"local_path": "tool.pdf"})


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"local_path": "../secrets.pdf"}, "PATH_NOT_ALLOWED"),
        ({"local_path": "/etc/passwd"}, "PATH_NOT_ALLOWED"),
        ({"url": "http://169.254.169.254/latest/meta-data"}, "ADDRESS_BLOCKED"),
        ({"url": "file:///etc/passwd"}, "ADDRESS_BLOCKED"),
        ({"local_path": "large.pdf"}, "TOO_LARGE"),
    ],
)
async def test_what_must_not_be_read_fails_at_the_first_attempt(client, payload, code):
    (client.roots / "large.pdf").write_bytes(b"%PDF-1.7\n" + bytes(200_000))
    job_id = f"must-not-{uuid.uuid4()}"
    await client.put({"job_id": job_id, **OCR, "payload": payload})
    letter = await letter_of(client, job_id, code, "VALIDATION", payload=payload)
    await has_failed(client, job_id, letter)


# --- Gemini / OCR returns repeated fatal errors ---------------------------------------------------------------------


@pytest.mark.parametrize("client", [EMBEDDED], indirect=True)
async def test_a_model_that_fails_again_and_again(client):
    client.gemini.script(gemini.status(500, "Internal: the page said hunter2"), gemini.html(502), gemini.status(503))
    job_id = await client.handed_in(scanned_pdf(["A page for Gemini"]), engine="gemini")
    letter = await letter_of(client, job_id, "MODEL_UNAVAILABLE", "MODEL", attempts=3)
    await has_failed(client, job_id, letter)
    assert len(client.gemini.requests) == 3
    assert "hunter2" not in json.dumps(letter)


async def test_a_model_that_refuses_the_content_is_not_asked_again(client):
    client.gemini.script(gemini.blocked())
    job_id = await client.handed_in(scanned_pdf(["Another page for Gemini"]), engine="gemini")
    letter = await letter_of(client, job_id, "MODEL_REFUSED", "MODEL")
    await has_failed(client, job_id, letter)
    assert len(client.gemini.requests) == 1


async def test_ocr_that_fails_again_and_again(client):
    crash = [plan(2), page(0), failed("CHILD_CRASHED", detail="signal 11 (SIGSEGV)")]
    script = Script(crash, [plan(2), *crash[2:]])
    job_id = await client.handed_in(script)
    letter = await letter_of(client, job_id, "CHILD_CRASHED", "SYSTEM", attempts=3)
    await has_failed(client, job_id, letter)
    assert [spec.done for spec in script.specs] == [0, 1, 1]


async def test_a_model_whose_files_are_not_there(client):
    job_id = await client.handed_in(wav(tone(1.0)), filename="tone.wav", **AUDIO)
    letter = await letter_of(client, job_id, "MODEL_FILES_DAMAGED", "MODEL")
    await has_failed(client, job_id, letter)


# --- a non-recoverable runtime exception ----------------------------------------------------------------------------


async def test_a_surprise_in_our_own_code_goes_to_a_person_at_once(client, monkeypatch):
    def surprised(*_):
        message = "page 1 says hunter2"
        raise ZeroDivisionError(message)

    monkeypatch.setattr("holdfast.features.documents.reading.pieces_of", surprised)
    job_id = await client.handed_in(Script(pages(1)))
    letter = await letter_of(client, job_id, "UNEXPECTED", "SYSTEM")
    await has_failed(client, job_id, letter)
    assert letter["error"] == "An unexpected error: ZeroDivisionError"


async def test_a_folder_of_our_own_that_cannot_be_written_is_tried_again(client, monkeypatch):
    def full(self, *_):
        raise OSError(28, "No space left on device", "/secret/place")

    monkeypatch.setattr("holdfast.blobs.folder.StreamedFolderBlobs._replace", full)
    job_id = await client.handed_in(Script(pages(1), [plan(1), pages(1)[-1]]))
    letter = await letter_of(client, job_id, "STORAGE_UNAVAILABLE", "IO", attempts=3)
    await has_failed(client, job_id, letter)
    assert "/secret/place" not in json.dumps(letter)


async def test_a_child_that_promises_more_pages_than_it_reads_has_crashed(client):
    job_id = await client.handed_in(Script([plan(2), page(0), pages(1)[-1]], [plan(2), pages(1)[-1]]))
    letter = await letter_of(client, job_id, "CHILD_CRASHED", "SYSTEM", attempts=3)
    await has_failed(client, job_id, letter)
    assert letter["error_detail"] == "1 units are read, of a plan for 2"


# --- the table ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", [EMBEDDED], indirect=True)
@pytest.mark.parametrize("code", Code)
async def test_the_table_decides_how_often_a_failure_is_tried_and_what_it_is_called(client, code):
    kind = TABLE[code]
    job_id = await client.handed_in(Script([failed(code, detail="HTTP 418")]))
    attempts = 3 if kind.retried else 1
    letter = await letter_of(client, job_id, code.value, kind.error_type.value, attempts=attempts)
    await has_failed(client, job_id, letter)
    assert (letter["error"], letter["error_detail"]) == (kind.message, "HTTP 418")
    assert outcomes(await client.entry(job_id)) == [("failed", code.value)] * attempts


async def _new_letters(client, before) -> set[str]:
    async def new() -> set[str]:
        return {each["job_id"] for each in await client.dead_letter_queue()} - before

    return await eventually(new)
