"""``POST /v1/documents``: accepted requests."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from holdfast.contracts.files import FilesUnavailable
from holdfast.features.documents.contract import DocumentJob
from tests.api.courier_api import AwayStore
from tests.api.document_api import (
    BOUNDARY,
    ELSEWHERE,
    MAX_BYTES,
    OCR,
    PDF,
    SPEECH,
    Sender,
    a_pdf,
    app_of,
    document_api,
    fields,
    form,
    part,
    problems,
)


@pytest.fixture
async def api(tmp_path):
    async with document_api(tmp_path) as made:
        yield made


# --- accepted ---------------------------------------------------------------------------------------------------------


async def test_a_file_is_stored_and_its_job_is_recorded_queued_and_acknowledged(api):
    content = a_pdf()
    answer = await api.upload(
        content, job_id="ocr-009", language="pt", metadata='{"case": 17}', cache="false", strict="true"
    )
    assert answer.status_code == 202
    assert answer.json() | {"accepted_at": None} == {
        "job_id": "ocr-009",
        "status": "PENDING",
        "duplicate": False,
        "cached": False,
        "queued": True,
        "accepted_at": None,
    }
    (entry,) = await api.entries()
    payload = json.loads(entry.body)["payload"]
    assert payload["upload"]["size"] == len(content)
    assert (payload["upload"]["filename"], payload["language"]) == ("contract.pdf", "pt")
    assert (payload["metadata"], payload["cache"], payload["strict"]) == ({"case": 17}, False, True)
    assert json.loads(entry.body)["company_id"] == api.ids["acme"]
    assert api.kept() == [content]
    assert api.arriving() == []
    assert (await api.system.broker.depth("doc_jobs")).ready == 1


async def test_a_file_at_a_url_is_named_in_json_and_gets_an_id(api):
    answer = await api.send(ELSEWHERE | {"metadata": {"case": "17"}})
    assert answer.status_code == 202
    (entry,) = await api.entries()
    assert entry.job_id == answer.json()["job_id"]
    assert json.loads(entry.body)["payload"]["url"] == ELSEWHERE["url"]


async def test_fields_may_come_before_and_after_the_file_and_the_body_in_any_pieces(api):
    content = a_pdf() + f"\r\n--{BOUNDARY[:9]}\r\n--\r\n".encode()
    file = part("file", content, filename="C:\\Documents\\contráct.pdf", content_type="application/pdf")
    (kind,), (of,) = fields(job_type="OCR"), fields(input_type="PDF")
    body = b"\r\n" + form(kind, file, of) + b"an epilogue"

    async def drip(step):
        for start in range(0, len(body), step):
            yield body[start : start + step]

    for step in (1, 7, 4_096):
        answer = await api.post(drip(step))
        assert answer.status_code == 202, answer.text
        entry = await api.system.store.entry("documents", answer.json()["job_id"])
        assert json.loads(entry.body)["payload"]["upload"]["filename"] == "contráct.pdf"
    assert api.kept() == [content] * 3


async def test_the_same_job_again_is_a_duplicate_with_the_present_status(api):
    content = a_pdf()
    first = (await api.upload(content, job_id="one")).json()
    await api.claim("one")
    again = await api.upload(content, job_id="one", filename="another name.pdf")
    assert again.status_code == 202
    assert again.json() == first | {"duplicate": True, "status": "PROCESSING"}
    assert len(await api.entries()) == 1


async def test_another_job_under_the_same_id_is_a_conflict(api):
    await api.upload(a_pdf(), job_id="one")
    answer = await api.upload(a_pdf(), job_id="one")
    assert (answer.status_code, answer.json()["errorCode"]) == (409, "IDEMPOTENCY_CONFLICT")
    assert len(await api.entries()) == 1


async def test_an_id_belongs_to_its_tenant(api):
    contents = {who: a_pdf() for who in ("acme", "other")}
    for who, content in contents.items():
        answer = await api.upload(content, job_id="one", who=who)
        assert (answer.status_code, answer.json()["job_id"], answer.json()["duplicate"]) == (202, "one", False)
        assert (await api.upload(content, job_id="one", who=who)).json()["duplicate"] is True
        assert (await api.upload(a_pdf(), job_id="one", who=who)).status_code == 409
    assert len(await api.entries()) == 2
    assert (await api.cancel("one")).json()["status"] == "CANCELLED"
    shown = {who: (await api.get("/one", who=who)).json() for who in contents}
    assert {who: (each["job_id"], each["status"]) for who, each in shown.items()} == {
        "acme": ("one", "CANCELLED"),
        "other": ("one", "PENDING"),
    }
    for who in contents:
        listed = (await api.get(who=who)).json()["items"]
        assert [each["job_id"] for each in listed] == ["one"]


async def test_a_stored_key_opens_no_job_of_another_tenant(api):
    job_id = await api.submitted(job_id="one")
    key = await api.key(job_id)
    assert key != job_id
    assert (await api.get(f"/{key}", who="other")).status_code == 404
    assert (await api.upload(a_pdf(), job_id=key, who="other")).status_code == 202
    assert (await api.get(f"/{key}", who="other")).json()["job_id"] == key
    assert (await api.get("/one")).json()["status"] == "PENDING"


async def test_a_job_of_an_older_version_keeps_its_id(api):
    """The id was the key, for all tenants together."""
    content = a_pdf()
    await api.upload(content, job_id="new")
    (entry,) = await api.entries()
    old = DocumentJob.model_validate_json(entry.body).model_copy(update={"job_id": "old", "scoped": None})
    await api.system.intake.accept(api.workload, old)
    assert (await api.get("/old")).json()["job_id"] == "old"
    assert (await api.upload(content, job_id="old")).json()["duplicate"] is True
    assert (await api.upload(a_pdf(), job_id="old")).status_code == 409
    assert (await api.get("/old", who="other")).status_code == 404
    second = await api.upload(content, job_id="old", who="other")
    assert (second.status_code, second.json()["duplicate"]) == (202, False)
    assert (await api.cancel("old")).json()["status"] == "CANCELLED"
    assert (await api.get("/old", who="other")).json()["status"] == "PENDING"


async def test_a_file_that_was_read_before_is_answered_with_its_result(api):
    content = a_pdf()
    await api.complete(await api.submitted(content), "What it says.")
    answer = await api.upload(content, job_id="again")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["job_id"], body["status"], body["cached"], body["duplicate"]) == (
        "again",
        "COMPLETED",
        True,
        False,
    )
    assert (body["result"]["job_id"], body["result"]["pages"]) == ("again", 1)
    assert body["result"]["cached"] is True
    shown = (await api.get("/again")).json()
    assert (shown["status"], shown["cached"], shown["progress"]) == ("COMPLETED", True, 100)
    assert "What it says." in (await api.get("/again/text")).text
    once_more = await api.upload(content, job_id="again")
    assert (once_more.status_code, once_more.json()["duplicate"], once_more.json()["cached"]) == (202, True, True)


@pytest.mark.parametrize(("who", "given"), [("other", {}), ("acme", {"language": "pt"}), ("acme", {"cache": "false"})])
async def test_a_file_of_another_tenant_or_with_other_options_or_without_cache_is_read(api, who, given):
    content = a_pdf()
    await api.complete(await api.submitted(content))
    answer = await api.upload(content, who=who, **given)
    assert (answer.status_code, answer.json()["cached"]) == (202, False)


# --- refused in the end ---


@pytest.mark.parametrize(("content", "given"), [(b"MZ\x90\x00 a program", OCR), (b"", OCR), (PDF, SPEECH)])
async def test_a_file_that_does_not_match_its_input_type_is_refused(api, content, given):
    answer = await api.upload(content, **given)
    assert (answer.status_code, answer.json()["errorCode"]) == (422, "NOT_ACCEPTABLE")
    assert set(problems(answer)) == {"file"}
    assert await api.entries() == []


async def test_a_file_of_the_largest_size_is_accepted_and_a_larger_one_is_not(api):
    largest = PDF.ljust(MAX_BYTES, b"\n")
    assert (await api.upload(largest)).status_code == 202
    answer = await api.upload(largest + b"\n")
    assert (answer.status_code, answer.json()["errorCode"]) == (413, "PAYLOAD_TOO_LARGE")
    assert api.kept() == [largest]
    assert api.arriving() == []


async def test_no_more_of_a_file_is_read_than_is_stored(api):
    asked, real = [], api.documents.admission

    class Watched:
        def __getattr__(self, name):
            return getattr(real, name)

        async def keep(self, content, upload_id):
            async for _ in content:
                asked.append(sender.asked)  # noqa: PERF401 - what was asked counts, though the sender goes away

    api.documents.admission = Watched()
    app = app_of(api.services, api.documents)
    start = part("file", PDF, filename="a.pdf").removesuffix(b"\r\n")
    sender = Sender(replace(api, app=app), start, *[b"x" * 1_000] * 20)
    await sender.run()
    assert asked == list(range(1, 22))


async def test_an_unavailable_file_store_answers_503_with_retry_after(api, monkeypatch):
    async def away(content, limit, upload_id):
        message = "the disk at /secret is full"
        raise FilesUnavailable(message)

    monkeypatch.setattr(api.documents.files, "keep", away)
    answer = await api.upload(a_pdf())
    assert (answer.status_code, answer.json()["errorCode"]) == (503, "INTAKE_UNAVAILABLE")
    assert answer.headers["retry-after"]
    assert "secret" not in answer.text


async def test_a_ledger_that_cannot_record_answers_503(api, monkeypatch):
    monkeypatch.setattr(type(api.system.store), "record", AwayStore.record)
    answer = await api.send(ELSEWHERE)
    assert (answer.status_code, answer.json()["errorCode"]) == (503, "INTAKE_UNAVAILABLE")


async def test_a_key_for_reading_cannot_submit_or_cancel(api):
    job_id = await api.submitted()
    assert (await api.upload(a_pdf(), who="reads only")).status_code == 403
    assert (await api.cancel(job_id, who="reads only")).status_code == 403
    assert (await api.get(f"/{job_id}", who="reads only")).status_code == 200
