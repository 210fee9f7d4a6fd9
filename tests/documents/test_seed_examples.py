"""Seed 003's examples of dead letters, to the letter, on both deployments."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest
import pytest_asyncio

from tests.support import file_server as replies
from tests.support.document_arena import CLUSTER, EMBEDDED, arena_on, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

MISSING_FILE = json.loads("""
{
"job_id": "ocr-009",
"job_type": "OCR",
"input_type": "PDF",
"payload": {
"local_path": "samples/missing.pdf"
},
"status": "FAILED",
"error": "File not found: samples/missing.pdf",
"error_type": "IO",
"attempts": 3,
"max_attempts": 3,
"failed_at": "2026-01-25T11:02:14Z",
"schema_version": "v1"
}
""")
UNSUPPORTED_URL = json.loads("""
{
"job_id": "tr-017",
"job_type": "TRANSCRIPTION",
"input_type": "VIDEO",
"payload": {
"url": "https://example.com/private"
},
"status": "FAILED",
"error": "Unable to download audio",
"error_type": "IO",
"attempts": 2,
"max_attempts": 2,
"failed_at": "2026-01-25T11:10:47Z",
"schema_version": "v1"
}
""")
ADDED = {"error_code", "attempt_history"}


@pytest.fixture(scope="module", params=[EMBEDDED, CLUSTER])
def deployment(request):
    return request.param


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def arena(deployment, request, tmp_path_factory):
    """As the specification has it: three attempts for OCR, two for TRANSCRIPTION."""
    async with arena_on(deployment, request, tmp_path_factory.mktemp("arena")) as arena:
        yield arena


def requested(example):
    """What a tenant sends so that this becomes of it."""
    return {name: example[name] for name in ("job_id", "job_type", "input_type")} | example["payload"]


def require(letter, example, *, added=frozenset()):
    """The letter is the example: only the time may be another, and fields may be added."""
    assert {name: letter[name] for name in example if name != "failed_at"} == {
        name: value for name, value in example.items() if name != "failed_at"
    }
    assert set(letter) - set(example) == ADDED | {"worker_id"} | added
    assert letter["failed_at"].endswith("Z")
    assert datetime.fromisoformat(letter["failed_at"]).utcoffset() == timedelta(0)
    assert isinstance(letter["worker_id"], str)
    assert letter["worker_id"] == letter["attempt_history"][-1]["worker_id"] != ""


async def test_example_4_1_a_missing_file(arena):
    answer = await arena.send(requested(MISSING_FILE))
    assert (answer.status_code, answer.json()["job_id"]) == (202, "ocr-009")
    letter = await arena.the_letter("ocr-009")
    require(letter, MISSING_FILE)
    assert letter["error_code"] == "FILE_NOT_FOUND"
    assert [each["attempt"] for each in letter["attempt_history"]] == [1, 2, 3]
    job = await arena.job("ocr-009")
    assert (job["status"], job["attempts"]) == ("FAILED", 3)
    assert (await arena.get("ocr-009")).json()["error"] == {
        "error_type": "IO",
        "code": "FILE_NOT_FOUND",
        "message": "File not found: samples/missing.pdf",
    }


async def test_example_4_1_as_a_external_producers_job_in_the_queue(arena):
    """Nobody's tenant, and the seed's own names for everything."""
    example = MISSING_FILE | {"job_id": "ocr-010"}
    wanted = {name: example[name] for name in ("job_id", "job_type", "input_type", "payload")}
    await arena.put(wanted, "ocr-010")
    require(await arena.the_letter("ocr-010"), example)


async def test_example_4_2_a_url_that_leads_to_no_file(arena):
    """No name leads anywhere here: the download fails before it begins."""
    answer = await arena.send(requested(UNSUPPORTED_URL))
    assert (answer.status_code, answer.json()["job_id"]) == (202, "tr-017")
    letter = await arena.the_letter("tr-017")
    require(letter, UNSUPPORTED_URL, added={"error_detail"})
    assert letter["error_code"] in {"DOWNLOAD_FAILED", "DOWNLOAD_TIMEOUT", "HTTP_STATUS"}


async def test_example_4_2_with_a_server_that_forbids_it(arena):
    url = arena.server.answers("/private", replies.status(403))
    example = UNSUPPORTED_URL | {"job_id": "tr-018", "payload": {"url": url}}
    await arena.send(requested(example))
    letter = await arena.the_letter("tr-018")
    require(letter, example, added={"error_detail"})
    assert (letter["error_code"], letter["error_detail"]) == ("HTTP_STATUS", "HTTP 403")
    assert len(arena.server.to("/private")) == 2
    await eventually(lambda: _quiet(arena))


async def _quiet(arena) -> bool:
    depth = await arena.system.broker.depth("doc_jobs")
    return (depth.ready, depth.delayed, depth.active) == (0, 0, 0)
