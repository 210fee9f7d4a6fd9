"""The examples of dead letters of documents, to the letter, on both deployments; and what follows from them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import jsonschema_rs
import pytest
import pytest_asyncio

from holdfast.contracts.dead_letters import ReviewStatus
from holdfast.contracts.errors import ReviewRefused
from holdfast.contracts.queries import EntryQuery, Page
from tests.specification.places import DEPLOYMENTS
from tests.support import file_server as replies
from tests.support.document_client import Script, document_client_on, eventually, failed, pages
from tests.support.pages import text_pdf
from tests.support.specification import ROOT
from tests.support.specification_letters import BARE, EXAMPLE_4_1, EXAMPLE_4_2, EXAMPLES, REQUIRED

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADDED = {"error_code", "attempt_history"}
RULE_OF = {
    "job_id": "D8",
    "job_type": "D9",
    "input_type": "D10",
    "payload": "D11",
    "status": "D12",
    "error": "D13",
    "error_type": "D14",
    "attempts": "D15",
    "max_attempts": "D16",
    "failed_at": "D17",
    "worker_id": "D18",
    "schema_version": "D19",
}


@pytest.fixture(scope="module", params=DEPLOYMENTS)
def deployment(request):
    return request.param


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(deployment, request, tmp_path_factory):
    """As the specification has it: three attempts for OCR, two for TRANSCRIPTION."""
    async with document_client_on(deployment, request, tmp_path_factory.mktemp("documents")) as client:
        yield client


def requested(example: dict[str, Any]) -> dict[str, Any]:
    """What a tenant sends so that this becomes of it."""
    return {name: example[name] for name in ("job_id", "job_type", "input_type")} | example["payload"]


def require(statement, letter, example, cited, *, added=frozenset()):
    """The letter is the example: only the time may be another, and fields may be added."""
    with statement(f"{cited} D8 D9 D10 D11 D12 D13 D14 D15 D16 D19", f"every value of example {cited} comes out"):
        assert {name: letter[name] for name in example if name != "failed_at"} == {
            name: value for name, value in example.items() if name != "failed_at"
        }
    with statement("D26", f"fields are added to example {cited}, and none is missing"):
        assert set(letter) - set(example) == ADDED | {"worker_id"} | added
    with statement("D17", f"failed_at of example {cited} is an ISO 8601 time in UTC"):
        assert letter["failed_at"].endswith("Z")
        assert datetime.fromisoformat(letter["failed_at"]).utcoffset() == timedelta(0)
    with statement("D18", f"worker_id of example {cited} is the worker of the last attempt"):
        assert isinstance(letter["worker_id"], str)
        assert letter["worker_id"] == letter["attempt_history"][-1]["worker_id"] != ""


async def test_example_4_1_a_missing_file(client, statement):
    answer = await client.send(requested(EXAMPLE_4_1))
    with statement("D8", "the sender's job_id is the job's"):
        assert (answer.status_code, answer.json()["job_id"]) == (202, "ocr-009")
    letter = await client.the_letter("ocr-009")
    require(statement, letter, EXAMPLE_4_1, "D20")
    with statement("D22", "the letter is in doc_jobs_dead"):
        assert [each["job_id"] for each in await client.dead_letter_queue()] == ["ocr-009"]
    with statement("D1 D4", "a missing file is one dead letter in the store"):
        assert len(await client.letters("ocr-009")) == 1
    with statement("D2 D15 D29", "all three attempts are told, each with its reason"):
        history = letter["attempt_history"]
        assert [(each["attempt"], each["error_code"]) for each in history] == [
            (number, "FILE_NOT_FOUND") for number in (1, 2, 3)
        ]
    with statement("D30", "the record of the failed job can be read"):
        job = await client.job("ocr-009")
        assert (job["status"], job["attempts"]) == ("FAILED", 3)
    with statement("D30 D32", "the sender reads why, over HTTP"):
        assert (await client.get("ocr-009")).json()["error"] == {
            "error_type": "IO",
            "code": "FILE_NOT_FOUND",
            "message": "File not found: samples/missing.pdf",
        }


async def test_example_4_1_as_a_job_of_an_external_producer(client, statement):
    """No tenant, and the specification's own names for everything."""
    example = EXAMPLE_4_1 | {"job_id": "ocr-010"}
    wanted = {name: example[name] for name in ("job_id", "job_type", "input_type", "payload")}
    await client.put(wanted, "ocr-010")
    require(statement, await client.the_letter("ocr-010"), example, "D20")


async def test_example_4_2_a_url_that_leads_to_no_file(client, statement):
    """No name leads anywhere here: the download fails before it begins."""
    answer = await client.send(requested(EXAMPLE_4_2))
    assert (answer.status_code, answer.json()["job_id"]) == (202, "tr-017")
    letter = await client.the_letter("tr-017")
    require(statement, letter, EXAMPLE_4_2, "D21", added={"error_detail"})
    with statement("D21 D29", "the letter says how the download failed"):
        assert letter["error_code"] in {"DOWNLOAD_FAILED", "DOWNLOAD_TIMEOUT", "HTTP_STATUS"}


async def test_example_4_2_with_a_server_that_forbids_it(client, statement):
    url = client.server.answers("/private", replies.status(403))
    example = EXAMPLE_4_2 | {"job_id": "tr-018", "payload": {"url": url}}
    await client.send(requested(example))
    letter = await client.the_letter("tr-018")
    require(statement, letter, example, "D21", added={"error_detail"})
    with statement("D15 D21", "a URL that is forbidden is asked for twice"):
        assert (letter["error_code"], letter["error_detail"]) == ("HTTP_STATUS", "HTTP 403")
        assert len(client.server.to("/private")) == 2
    await eventually(lambda: _quiet(client))


async def _quiet(client) -> bool:
    depth = await client.gateway.broker.depth("doc_jobs")
    return (depth.ready, depth.delayed, depth.active) == (0, 0, 0)


# --- the other conditions ---------------------------------------------------------------------------------------------


async def test_jobs_that_break_the_contract(client, statement):
    good = {"job_type": "OCR", "input_type": "PDF", "payload": {"local_path": "a.pdf"}}
    for cited, what, name, changes in (
        ("D3", "a job whose payload is not an object", "bad-1", {"payload": "a.pdf"}),
        ("D6", "a job of another type", "bad-2", {"job_type": "POETRY"}),
        ("D6", "a job for another kind of file", "bad-3", {"input_type": "SPREADSHEET"}),
        ("D3 D6", "OCR of a recording", "bad-4", {"input_type": "AUDIO"}),
    ):
        await client.put(good | {"job_id": name} | changes, name)
        letter = await client.the_letter(name)
        with statement(f"{cited} D14", f"{what} is a VALIDATION letter after one attempt"):
            assert (letter["error_type"], letter["attempts"], letter["status"]) == ("VALIDATION", 1, "FAILED")


@pytest.mark.parametrize(
    ("cited", "code", "kind", "attempts"),
    [
        ("D5", "MODEL_UNAVAILABLE", "MODEL", 3),
        ("D5", "MODEL_MALFORMED", "MODEL", 3),
        ("D5", "MODEL_REFUSED", "MODEL", 1),
        ("D7", "UNEXPECTED", "SYSTEM", 1),
    ],
)
async def test_failures_of_models_and_of_the_program(client, statement, cited, code, kind, attempts):
    job_id = await client.handed_in(Script([failed(code)]))
    letter = await client.the_letter(job_id)
    with statement(f"{cited} D14", f"{code} is a {kind} letter after {attempts} attempts"):
        assert (letter["error_type"], letter["error_code"], letter["attempts"]) == (kind, code, attempts)


async def test_a_failure_that_passes_is_no_letter(client, statement):
    job_id = await client.handed_in(Script([failed("MODEL_UNAVAILABLE")], pages(1)))
    with statement("D2 D31", "a job whose second attempt succeeds is completed, and has no letter"):
        assert (await client.until(job_id, "COMPLETED"))["attempts"] == 2
        assert await client.letters(job_id) == []


# --- replay -----------------------------------------------------------------------------------------------------------


async def test_only_a_person_replays_and_the_new_job_has_a_new_id(client, statement):
    example = EXAMPLE_4_1 | {"job_id": "ocr-011", "payload": {"local_path": "repaired.pdf"}}
    await client.send(requested(example))
    await client.the_letter("ocr-011")
    (client.roots / "repaired.pdf").write_bytes(text_pdf(["Here at last"]))
    with statement("D25", "a letter whose cause is repaired is not replayed by itself"):
        before = await _jobs(client)
        await client.look_after(rounds=3)
        assert await _jobs(client) == before
        assert len(await client.told("ocr-011")) == 1
    (letter,) = await client.letters("ocr-011")
    with statement("D25", "a letter that nobody reviewed is not replayed"):
        replaying = client.gateway.review.replay(letter.id, actor="ana", reason="in a hurry")
        assert isinstance(await _refusal(replaying), ReviewRefused)
    replayed = await client.replay(letter)
    new_id = replayed.replayed_as
    with statement("D24", "a replay has a new job_id"):
        assert new_id not in {None, "ocr-011"}
    with statement("D23", "the payload is queued as a new job, which succeeds now that the file is there"):
        new = await client.until(new_id, "COMPLETED")
        entry = await client.entry(new_id)
        assert (new["replay_of"], json.loads(entry.body)["payload"]) == ("ocr-011", example["payload"])
    with statement("D23 D29", "the letter stays, and tells who replayed it"):
        (letter,) = await client.letters("ocr-011")
        assert letter.review_status is ReviewStatus.REPLAYED
        assert [each.actor for each in letter.decisions] == ["ana", "ana"]


async def _refusal(awaitable) -> Exception | None:
    try:
        await awaitable
    except ReviewRefused as refused:
        return refused
    return None


async def _jobs(client) -> set[str]:
    return {each.key for each in (await client.gateway.store.find(EntryQuery(workload="documents"), Page(1_000))).items}


# --- the published schema ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def schema():
    path = ROOT / "docs" / "schemas" / "documents.dead-letter.schema.json"
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.rule("D20", "D21", "D27")
@pytest.mark.parametrize("letter", [*EXAMPLES, *BARE], ids=["4.1", "4.2", "4.1 bare", "4.2 bare"])
async def test_the_published_schema_accepts_the_examples(schema, letter):
    jsonschema_rs.validator_for(schema, validate_formats=True).validate(letter)


@pytest.mark.parametrize("name", RULE_OF)
async def test_the_published_schema_has_the_field(schema, statement, name):
    with statement(RULE_OF[name], f"the schema has {name}, and requires it as the specification does"):
        assert name in schema["properties"]
        assert (name in schema["required"]) is (name in REQUIRED)
        bare = {each: value for each, value in EXAMPLE_4_1.items() if each != name}
        assert jsonschema_rs.is_valid(schema, bare) is (name not in REQUIRED)


@pytest.mark.parametrize(
    "change",
    [
        {"job_type": "POETRY"},
        {"input_type": "SPREADSHEET"},
        {"status": "DONE"},
        {"error_type": "BAD_LUCK"},
        {"schema_version": "v2"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_the_published_schema_refuses_another_value(schema, statement, change):
    ((name, value),) = change.items()
    with statement(RULE_OF[name], f"the schema refuses {name} {value}"):
        assert not jsonschema_rs.is_valid(schema, EXAMPLE_4_1 | change)


@pytest.mark.rule("D28")
async def test_the_published_schema_is_one_version_and_no_other(schema):
    assert schema["properties"]["schema_version"]["const"] == "v1"


@pytest.mark.rule("D26")
async def test_the_published_schema_allows_new_fields(schema):
    assert jsonschema_rs.is_valid(schema, EXAMPLE_4_1 | {"a_field_of_tomorrow": 1})
