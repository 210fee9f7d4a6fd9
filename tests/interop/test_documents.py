"""Documents between us and Node: its producers put jobs into ``doc_jobs``, its readers read our dead letters."""

from __future__ import annotations

import pytest

from holdfast.contracts.queries import LetterQuery
from holdfast.features.documents.dead_letter import DocumentDeadLetter
from holdfast.features.documents.workload import DEAD_LETTER_QUEUE, QUEUE
from tests.support.letters import whole_letters
from tests.support.pages import encrypted_pdf, text_pdf
from tests.support.specification_letters import BARE, EXAMPLES
from tests.support.waiting import eventually

PUBLISHED = DocumentDeadLetter.model_json_schema()
_TEXT = {"type": "string", "minLength": 1}
SPECIFIED: dict = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["job_id", "job_type", "input_type", "payload", "status", "error", "attempts", "failed_at"],
    "properties": {
        "job_id": _TEXT,
        "job_type": {"enum": ["OCR", "TRANSCRIPTION"]},
        "input_type": {"enum": ["PDF", "VIDEO", "AUDIO"]},
        "payload": {"type": "object"},
        "status": {"const": "FAILED"},
        "error": _TEXT,
        "error_type": {"enum": ["VALIDATION", "IO", "MODEL", "SYSTEM"]},
        "attempts": {"type": "integer"},
        "max_attempts": {"type": "integer"},
        "failed_at": {"type": "string", "format": "date-time"},
        "worker_id": _TEXT,
        "schema_version": {"const": "v1"},
    },
}
"""Rules D8 to D19, by hand."""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "roots").mkdir()
    return tmp_path / "roots"


@pytest.fixture
async def gateway(open_gateway_with, tmp_path, folder):
    return await open_gateway_with(
        holdfast_data=tmp_path, document_roots=(folder,), document_retry_base_ms=0, document_concurrency=4
    )


@pytest.fixture
def jobs(open_queue):
    """``new Queue('doc_jobs')``."""
    return open_queue(QUEUE)


@pytest.fixture
def dead(open_queue):
    """``new Queue('doc_jobs_dead')``."""
    return open_queue(DEAD_LETTER_QUEUE)


def a_job(job_id: str, **payload):
    return {"job_id": job_id, "job_type": "OCR", "input_type": "PDF", "payload": payload}


async def test_a_job_that_node_adds_is_adopted_and_its_producer_gets_the_result(jobs, gateway, folder):
    (folder / "deed.pdf").write_bytes(text_pdf(["Deed of sale", "Second page"]))
    async with gateway.running():
        await jobs.add("ocr", a_job("node-1", local_path="deed.pdf", metadata={"from": "Node"}), jobId="node-1")
        outcome = await (await jobs.waiting_for("node-1"))

    result = outcome["resolved"]
    assert set(result) == {"job_id", "status", "duration_sec", "output_path", "pages"}
    assert (result["job_id"], result["status"], result["pages"]) == ("node-1", "COMPLETED", 2)
    document = await gateway.store.get("document_jobs", "node-1")
    assert (document["status"], document["metadata"]) == ("COMPLETED", {"from": "Node"})
    stored = await gateway.store.get("document_results", "node-1")
    assert b"Deed of sale" in await gateway.system.service("documents").admission.output(stored, "text.txt")
    assert stored["output_path"] == result["output_path"]


async def test_a_document_that_nodes_worker_read_is_completed_with_what_it_returned(jobs, gateway):
    documents = gateway.system.workloads["documents"]
    data = documents.contract.model_validate(a_job("read-by-node", local_path="deed.pdf"))
    await gateway.intake.accept(documents, data)
    result = {"job_id": "read-by-node", "status": "COMPLETED", "duration_sec": 1.5, "output_path": "out/1", "pages": 3}
    worker = await jobs.work(result=result)
    await worker.has_run(1)
    await eventually(lambda: _completed(jobs, 1))

    await gateway.system.maintenance().round()

    entry = await gateway.store.entry("documents", "read-by-node")
    assert (entry.status, entry.note, entry.result) == ("processed", "worked_elsewhere", result)
    assert (await gateway.store.get("document_jobs", "read-by-node"))["status"] == "COMPLETED"
    stored = await gateway.store.get("document_results", "read-by-node")
    assert {name: stored[name] for name in result} == result


async def _completed(queue, number):
    return (await queue.counts())["completed"] == number


async def test_node_consumes_dead_letters_that_are_as_published_and_as_specified(jobs, dead, gateway, folder, node):
    (folder / "locked.pdf").write_bytes(encrypted_pdf())
    good = [
        a_job("ocr-009", local_path="samples/missing.pdf"),
        a_job("locked-1", local_path="locked.pdf", language="pt"),
        {"job_id": "tr-1", "job_type": "TRANSCRIPTION", "input_type": "VIDEO", "payload": {"url": "http://10.0.0.1/v"}},
        a_job("two", local_path="a.pdf", url="https://example.com/a.pdf"),
    ]
    strange = [
        a_job("poem-1", local_path="a.pdf") | {"job_type": "POEM"},
        a_job("image-1", local_path="a.pdf") | {"input_type": "IMAGE"},
        {"job_id": "bare-1"},
        {"anything": {"nested": True}},
        "just text",
        None,
        17,
        [1, 2],
    ]
    async with gateway.running():
        for job in [*good, *strange]:
            await jobs.add("ocr", job)
        await eventually(lambda: _holds(dead, len(good) + len(strange)))
    consumer = await dead.work()
    letters = [each["data"] for each in await consumer.has_run(len(good) + len(strange))]

    assert await node("complaints", schema=PUBLISHED, documents=letters) == [[] for _ in letters]
    by_id = {each["job_id"]: each for each in letters}
    theirs = [by_id[job["job_id"]] for job in good]
    assert await node("complaints", schema=SPECIFIED, documents=theirs) == [[] for _ in theirs]
    for job, letter in zip(good, theirs, strict=True):
        assert {name: letter[name] for name in job} == job
    assert [(each["error_type"], each["error_code"], each["attempts"]) for each in theirs] == [
        ("IO", "FILE_NOT_FOUND", 3),
        ("VALIDATION", "PDF_ENCRYPTED", 1),
        ("VALIDATION", "ADDRESS_BLOCKED", 1),
        ("VALIDATION", "VALIDATION_FAILED", 1),
    ]
    assert (by_id["poem-1"]["job_type"], by_id["image-1"]["input_type"]) == ("POEM", "IMAGE")
    assert {each["error_code"] for each in letters if each not in theirs} == {"VALIDATION_FAILED"}
    assert all(each["worker_id"] for each in letters)
    # To take a letter from the queue is not to deal with it: people do that, in the store.
    assert len(await _letters(gateway)) == len(letters)


async def test_the_published_schema_accepts_the_specifications_own_letters(node):
    letters = [*EXAMPLES, *BARE]
    assert await node("complaints", schema=PUBLISHED, documents=letters) == [[] for _ in letters]
    assert await node("complaints", schema=SPECIFIED, documents=letters) == [[] for _ in letters]


async def test_the_published_schema_finds_what_is_wrong_with_a_letter(node):
    """Or the test above would say nothing."""
    letter = {
        "job_id": "a",
        "job_type": "OCR",
        "input_type": "PDF",
        "payload": {},
        "status": "FAILED",
        "error": "no",
        "error_type": "IO",
        "attempts": 1,
        "max_attempts": 3,
        "failed_at": "2026-01-25T11:02:14Z",
        "schema_version": "v1",
        "error_code": "FILE_NOT_FOUND",
        "a_new_field": "may be added",
    }
    wrong = [
        letter | {"status": "COMPLETED"},
        letter | {"schema_version": "v2"},
        letter | {"error_type": "NETWORK"},
        letter | {"attempts": "3"},
        letter | {"failed_at": "yesterday"},
        letter | {"job_type": "POEM"},
        {name: value for name, value in letter.items() if name != "payload"},
        {name: value for name, value in letter.items() if name != "job_id"},
    ]
    sound, *found = await node("complaints", schema=PUBLISHED, documents=[letter, *wrong])
    assert sound == []
    assert all(found)


async def _holds(queue, count) -> bool:
    return (await queue.counts())["waiting"] == count


async def _letters(gateway):
    return await whole_letters(gateway.store, LetterQuery(workload="documents"))
