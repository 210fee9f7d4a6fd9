"""Reading jobs and their results, and cancelling jobs."""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager

import pytest

from holdfast.contracts.dead_letters import letter_id
from holdfast.contracts.effects import Delete, Upsert
from holdfast.contracts.files import FilesUnavailable
from holdfast.contracts.ledger import Status
from tests.api.document_api import SPEECH, a_wav, document_api

OUTPUTS = ("/text", "/markdown", "/srt", "/vtt")


@pytest.fixture
async def api(tmp_path):
    async with document_api(tmp_path) as made:
        yield made


# --- where a job stands -----------------------------------------------------------------------------------------------


async def test_a_job_shows_its_progress(api):
    job_id = await api.submitted(job_id="ocr-009", metadata='{"case": 17}', language="pt")
    shown = (await api.get(f"/{job_id}")).json()
    accepted_at, expected = (
        shown["accepted_at"],
        {
            "job_id": "ocr-009",
            "job_type": "OCR",
            "input_type": "PDF",
            "status": "PENDING",
            "stage": "queued",
            "progress": 0,
            "unit": None,
            "pages_done": None,
            "pages": None,
            "chunks_done": None,
            "chunks": None,
            "attempts": 0,
            "max_attempts": 3,
            "error": None,
            "warnings": [],
            "engine": "local",
            "language": "pt",
            "filename": "contract.pdf",
            "metadata": {"case": 17},
            "cached": False,
            "cancel_requested": False,
            "replay_of": None,
            "replayed_as": None,
            "started_at": None,
            "finished_at": None,
            "expires_at": None,
        },
    )
    assert shown == expected | {"accepted_at": accepted_at}
    assert accepted_at.endswith("Z")
    lease, data = await api.claim(job_id)
    await api.reach(data, 2, 5)
    shown = (await api.get(f"/{job_id}")).json()
    assert (shown["status"], shown["stage"], shown["progress"], shown["attempts"]) == ("PROCESSING", "reading", 40, 1)
    assert (shown["unit"], shown["pages_done"], shown["pages"], shown["chunks"]) == ("page", 2, 5, None)
    assert shown["started_at"]
    await api.finish(lease, data)
    shown = (await api.get(f"/{job_id}")).json()
    assert (shown["status"], shown["stage"], shown["progress"]) == ("COMPLETED", "finished", 100)
    assert shown["finished_at"] < shown["expires_at"]


async def test_the_records_of_another_tenant_count_as_not_found(api):
    job_id = await api.submitted(who="other")
    await api.complete(job_id)
    unknown = (await api.get("/unknown")).json()
    assert unknown["errorCode"] == "NOT_FOUND"
    answers = [await api.get(f"/{job_id}{rest}") for rest in ("", "/result", "/events", *OUTPUTS)]
    for answer in (*answers, await api.cancel(job_id)):
        assert answer.status_code == 404
        assert answer.json() | {"traceId": ""} == unknown | {"traceId": ""}
    assert (await api.get()).json() == {"items": [], "next": None}
    assert (await api.get(f"/{job_id}/text", who="other")).status_code == 200


async def test_jobs_are_listed_newest_first_in_pages_and_by_status(api):
    ids = []
    for number in range(5):
        ids.append(await api.submitted())
        # Two jobs may have the same instant. These have not.
        accepted_at = f"2026-11-16T12:00:0{number}.000Z"
        await api.system.store.apply([Upsert("document_jobs", ids[-1], {"accepted_at": accepted_at})])
    await api.submitted(who="other")
    await api.complete(ids[1])
    seen, cursor, pages = [], None, 0
    while cursor is not None or not pages:
        page = (await api.get("", limit=2, **({"cursor": cursor} if cursor else {}))).json()
        seen += [each["job_id"] for each in page["items"]]
        cursor, pages = page["next"], pages + 1
    assert seen == ids[::-1]
    assert pages == 3
    listed = (await api.get("", status="COMPLETED")).json()["items"]
    assert [each["job_id"] for each in listed] == [ids[1]]
    for query in ({"status": "completed"}, {"limit": 0}, {"limit": 201}, {"cursor": "???"}, {"company_id": "x"}):
        answer = await api.get("", **query)
        assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_QUERY")


# --- what it left -----------------------------------------------------------------------------------------------------


async def test_the_result_of_a_pdf_comes_as_json_text_and_markdown(api):
    job_id = await api.submitted()
    await api.complete(job_id, "Contrato de prestação de serviço")
    answer = await api.get(f"/{job_id}/result")
    assert answer.status_code == 200
    result = answer.json()
    assert (result["job_id"], result["status"], result["duration_sec"], result["pages"]) == (
        job_id,
        "COMPLETED",
        1.25,
        1,
    )
    assert (result["engine"], result["confidence"], result["error"]) == ("local", 0.9, None)
    assert result["output_path"].endswith(f"{job_id}/1")
    assert result["content"]["pages"][0]["text"] == "Contrato de prestação de serviço"
    assert not {"company_id", "createdAt", "unit"} & set(result)
    text = await api.get(f"/{job_id}/text")
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.content.decode() == "Contrato de prestação de serviço\n"
    markdown = await api.get(f"/{job_id}/markdown")
    assert markdown.headers["content-type"] == "text/markdown; charset=utf-8"
    assert "prestação" in markdown.text
    for rest in ("/srt", "/vtt"):
        answer = await api.get(f"/{job_id}{rest}")
        assert (answer.status_code, answer.json()["errorCode"]) == (404, "NOT_FOUND")
        assert "Only recordings" in answer.json()["message"]


async def test_the_result_of_a_recording_comes_as_subtitles_too(api):
    job_id = await api.submitted(a_wav(), **SPEECH)
    await api.complete(job_id, "Good morning.")
    assert (await api.get(f"/{job_id}")).json()["chunks_done"] == 1
    result = (await api.get(f"/{job_id}/result")).json()
    assert (result["pages"], result["media_seconds"]) == (None, 1.5)
    assert result["content"]["segments"][0]["end"] == 1.5
    assert "Good morning." in (await api.get(f"/{job_id}/text")).text
    subtitles = await api.get(f"/{job_id}/srt")
    assert subtitles.headers["content-type"] == "application/x-subrip; charset=utf-8"
    assert "00:00:00,000 --> 00:00:01,500\nGood morning." in subtitles.text
    subtitles = await api.get(f"/{job_id}/vtt")
    assert subtitles.headers["content-type"] == "text/vtt; charset=utf-8"
    assert subtitles.text.startswith("WEBVTT")
    answer = await api.get(f"/{job_id}/markdown")
    assert answer.status_code == 404
    assert "Only PDFs" in answer.json()["message"]


async def test_there_is_no_result_before_the_job_is_finished(api):
    job_id = await api.submitted()
    for status in ("PENDING", "PROCESSING"):
        for rest in ("/result", "/text", "/markdown"):
            answer = await api.get(f"/{job_id}{rest}")
            assert (answer.status_code, answer.json()["errorCode"]) == (409, "NOT_FINISHED")
            assert answer.json()["details"] == [{"field": "status", "problem": status}]
        if status == "PENDING":
            await api.claim(job_id)


async def test_the_result_of_a_failed_job_has_the_reason(api):
    job_id = await api.submitted()
    await api.fail(job_id)
    error = {"error_type": "VALIDATION", "code": "PDF_ENCRYPTED", "message": "The PDF is encrypted"}
    answer = await api.get(f"/{job_id}/result")
    assert answer.status_code == 200
    result = answer.json()
    assert (result["status"], result["output_path"], result["content"]) == ("FAILED", None, None)
    assert result["error"] == error
    assert (await api.get(f"/{job_id}")).json()["error"] == error
    answer = await api.get(f"/{job_id}/text")
    assert answer.status_code == 404
    assert "FAILED" in answer.json()["message"]


async def test_a_finished_job_without_a_result_is_shown_from_its_record(api):
    failed, completed = await api.submitted(), await api.submitted()
    await api.fail(failed)
    await api.complete(completed)
    await api.system.store.apply([Delete("document_results", each) for each in (failed, completed)])
    result = (await api.get(f"/{failed}/result")).json()
    assert (result["status"], result["error"]["code"]) == ("FAILED", "PDF_ENCRYPTED")
    for rest in ("/result", "/text"):
        assert (await api.get(f"/{completed}{rest}")).status_code == 410


async def test_deleted_files_answer_410_and_an_unavailable_file_store_503(api, monkeypatch):
    job_id = await api.submitted()
    await api.complete(job_id)
    shutil.rmtree(api.folder / "documents" / "results" / job_id)
    for rest in ("/result", "/text", "/markdown"):
        answer = await api.get(f"/{job_id}{rest}")
        assert (answer.status_code, answer.json()["errorCode"]) == (410, "GONE")

    @asynccontextmanager
    async def away(output_path, name):
        raise FilesUnavailable
        yield

    monkeypatch.setattr(api.documents.files, "opened", away)
    answer = await api.get(f"/{job_id}/text")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


# --- cancelling -------------------------------------------------------------------------------------------------------


async def test_a_waiting_job_is_cancelled_and_stays_cancelled(api):
    job_id = await api.submitted()
    answer = await api.cancel(job_id)
    assert answer.status_code == 200
    assert answer.json() == {"job_id": job_id, "status": "CANCELLED", "cancel_requested": False}
    assert (await api.get(f"/{job_id}")).json()["status"] == "CANCELLED"
    assert (await api.system.store.entry("documents", job_id)).status is Status.EXPIRED
    assert (await api.system.broker.depth("doc_jobs")).ready == 0
    again = await api.cancel(job_id)
    assert (again.status_code, again.json()) == (200, answer.json())
    result = (await api.get(f"/{job_id}/result")).json()
    assert (result["status"], result["content"]) == ("CANCELLED", None)


async def test_a_running_job_gets_a_request_to_stop(api):
    job_id = await api.submitted()
    await api.claim(job_id)
    for _ in range(2):
        answer = await api.cancel(job_id)
        assert answer.status_code == 202
        assert answer.json() == {"job_id": job_id, "status": "PROCESSING", "cancel_requested": True}
    assert (await api.get(f"/{job_id}")).json()["cancel_requested"] is True
    assert (await api.system.store.entry("documents", job_id)).status is Status.PROCESSING


async def test_a_finished_job_is_not_cancelled(api):
    job_id = await api.submitted()
    await api.complete(job_id)
    answer = await api.cancel(job_id)
    assert (answer.status_code, answer.json()["errorCode"]) == (409, "TOO_LATE_TO_CANCEL")
    assert answer.json()["details"] == [{"field": "status", "problem": "COMPLETED"}]
    assert (await api.get(f"/{job_id}")).json()["cancel_requested"] is False


async def test_a_replay_and_the_job_that_it_replays_refer_to_each_other(api):
    job_id = await api.submitted()
    await api.fail(job_id)
    letter = letter_id("documents", job_id, 1)
    await api.system.review.review(letter, actor="ana", reason="The password is known.")
    await api.system.review.replay(letter, actor="ana", reason="The password is known.")
    replay = (await api.get(f"/{job_id}")).json()["replayed_as"]
    shown = (await api.get(f"/{replay}")).json()
    assert (shown["replay_of"], shown["status"]) == (job_id, "PENDING")
