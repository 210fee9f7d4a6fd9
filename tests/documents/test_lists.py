"""Documents from plain Redis lists: producers LPUSH flat jobs, readers BRPOP dead letters, and neither knows BullMQ."""

from __future__ import annotations

import asyncio
import json

import pytest
import pytest_asyncio
from redis import Redis

from tests.support.document_client import document_client, eventually
from tests.support.hearing import hearing
from tests.support.pages import text_pdf
from tests.support.plain_lists import JOBS, LETTERS, PlainLists, flat
from tests.support.specification_letters import EXAMPLE_4_1
from tests.support.valkey_server import RedisPlace

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREFIX = "bull"
DATABASE = 7
"""Of the Valkey of this pytest process: the lists have fixed names, and a test may flush the database."""


@pytest.fixture(scope="module")
def redis(valkey):
    with Redis.from_url(f"{valkey.url.removesuffix('/0')}/{DATABASE}") as redis:
        redis.flushdb()
        yield redis
        redis.flushdb()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(valkey, redis, mongo, tmp_path_factory):
    place = RedisPlace(f"{valkey.url.removesuffix('/0')}/{DATABASE}", PREFIX)
    settings = {"document_lists": True, "worker_lease_seconds": 1, "upkeep_interval_ms": 100}
    async with document_client(tmp_path_factory.mktemp("lists"), place=place, mongo=mongo, **settings) as client:
        (client.roots / "deed.pdf").write_bytes(text_pdf(["Deed of sale", "Second page"]))
        yield client


@pytest.fixture
def lists(redis):
    return PlainLists(redis)


@pytest.fixture
def seen():
    """The events that were told during the test."""
    with hearing() as said:
        yield said


async def pop_letter(lists):
    return await asyncio.to_thread(lists.pop_letter)


async def test_a_flat_job_from_the_list_is_read_and_has_the_specifications_result(client, lists):
    lists.push(flat("list-1", local_path="deed.pdf", created_at="2026-01-25T11:00:00Z", metadata={"case": 7}))
    await client.until("list-1", "COMPLETED")

    entry, result = await client.entry("list-1"), await client.result("list-1")
    assert set(entry.result) == {"job_id", "status", "duration_sec", "output_path", "pages"}
    assert (entry.result["job_id"], entry.result["status"], entry.result["pages"]) == ("list-1", "COMPLETED", 2)
    assert entry.result["output_path"] == result["output_path"]
    assert b"Deed of sale" in await client.output("list-1", "text.txt")
    assert (await client.job("list-1"))["metadata"] == {"case": 7}
    assert entry.warnings == ()
    kept = await eventually(lambda: lists.redis.hget(f"{PREFIX}:doc_jobs:list-1", "returnvalue"))
    assert json.loads(kept) == dict(entry.result)
    assert (lists.jobs, lists.taken, lists.letters) == ([], [], [])


async def test_a_dead_letter_is_on_the_list_once_and_is_the_one_of_the_queue(client, lists):
    lists.push(flat("ocr-009", **EXAMPLE_4_1["payload"]))
    letter = await pop_letter(lists)

    assert {name: letter[name] for name in EXAMPLE_4_1 if name != "failed_at"} == {
        name: value for name, value in EXAMPLE_4_1.items() if name != "failed_at"
    }
    assert letter == await client.the_letter("ocr-009")
    result = await client.result("ocr-009")
    assert (result["status"], result["error"]["message"]) == ("FAILED", EXAMPLE_4_1["error"])
    assert result["duration_sec"] >= 0
    # The reader has taken it. Whoever brings letters again, after a crash or with another queue, finds that.
    (stored,) = await client.letters("ocr-009")
    await client.workload.copy_letters({stored.id: json.dumps(letter)})
    await client.gateway.store.detect_queue_reset("another queue")
    await client.look_after(3)
    assert lists.letters == []


async def test_a_job_that_breaks_the_contract_is_a_letter_under_its_own_name(client, lists):
    broken = [
        flat("poem-1", local_path="deed.pdf", job_type="POEM"),
        flat("nowhere-1", created_at="2026-01-25T11:00:00Z"),
        flat("two words", url="https://example.com/a.pdf"),
        flat("large-1", local_path="deed.pdf", metadata={"number": 2**70}),
        "no JSON",
        b"\xff\xfe",
        "",
    ]
    lists.push(*broken, flat("after-1", local_path="deed.pdf"))
    letters = [await pop_letter(lists) for _ in broken]
    await client.until("after-1", "COMPLETED")

    by_id = {each["job_id"]: each for each in letters}
    assert {"poem-1", "nowhere-1", "two words", "large-1"} < set(by_id)
    for each in letters:
        assert (each["status"], each["error_code"], each["error_type"]) == ("FAILED", "VALIDATION_FAILED", "VALIDATION")
    assert by_id["poem-1"]["payload"] == {"local_path": "deed.pdf"}
    assert by_id["nowhere-1"]["payload"] == {"created_at": "2026-01-25T11:00:00Z"}
    assert by_id["large-1"]["payload"]["metadata"] == {"number": 2**70}
    assert (await client.entry("poem-1")).key == "poem-1"
    assert {each["payload"] for each in letters if isinstance(each["payload"], str)} == {"no JSON", "\ufffd\ufffd", ""}
    assert (lists.jobs, lists.taken, lists.letters) == ([], [], [])


async def test_the_same_job_again_runs_once_and_another_job_of_its_id_is_a_letter(client, lists):
    job = flat("twice-1", local_path="deed.pdf", created_at="2026-01-25T11:00:00Z")
    lists.push(job, job, job | {"created_at": "2026-01-25T12:00:00Z"}, job | {"local_path": "other.pdf"})
    letter = await pop_letter(lists)
    await client.until("twice-1", "COMPLETED")

    assert (letter["job_id"], letter["error_code"]) == ("twice-1", "IDEMPOTENCY_CONFLICT")
    assert letter["payload"] == {"local_path": "other.pdf", "created_at": "2026-01-25T11:00:00Z"}
    assert (await client.entry("twice-1")).attempt_count == 1
    await eventually(lambda: (lists.jobs, lists.taken, lists.letters) == ([], [], []))


async def test_a_letter_of_a_flat_job_is_replayed_as_a_new_job(client, lists):
    lists.push(flat("late-1", local_path="late.pdf", note="kept"))
    await pop_letter(lists)
    (letter,) = await client.letters("late-1")
    (client.roots / "late.pdf").write_bytes(text_pdf(["Late"]))
    replayed = await client.replay(letter)

    await client.until(replayed.replayed_as, "COMPLETED")
    assert (await client.job(replayed.replayed_as))["replay_of"] == "late-1"
    body = json.loads((await client.entry(replayed.replayed_as)).body)
    assert body["payload"] == {"local_path": "late.pdf", "note": "kept"}


async def test_what_a_dead_worker_left_behind_is_recorded_by_a_living_one(client, lists):
    left = json.dumps(flat("left-1", local_path="deed.pdf"))
    known = json.dumps(flat("list-1", local_path="deed.pdf", metadata={"case": 7}))
    lists.redis.lpush(f"{{doc_jobs}}:holdfast-taken:{PREFIX}", left, known)
    await client.until("left-1", "COMPLETED")

    await eventually(lambda: lists.taken == [])
    assert (await client.entry("list-1")).attempt_count == 1


async def test_a_flat_job_in_the_queue_is_adopted_too_and_its_letter_has_what_was_sent(client, lists):
    await client.put(flat("queued-1", local_path="deed.pdf", colour="blue"), "queued-1")
    await client.until("queued-1", "COMPLETED")
    assert (await client.entry("queued-1")).warnings == (
        "payload.colour is not known here: it was kept, and is not used.",
    )
    await client.put(flat("queued-2", local_path="samples/missing.pdf", metadata={"a": 1}, colour="blue"))
    letter = await pop_letter(lists)
    assert (letter["job_id"], letter["max_attempts"]) == ("queued-2", 3)
    assert letter["payload"] == {"local_path": "samples/missing.pdf", "metadata": {"a": 1}, "colour": "blue"}


async def test_a_key_that_is_no_list_holds_up_neither_jobs_nor_letters(client, lists, seen):
    """Somebody else's keys are left as they are; the queues go on."""
    for name in (JOBS, LETTERS):
        lists.redis.set(name, "somebody else's")
    try:
        await client.put(flat("beside-1", local_path="missing.pdf"), "beside-1")
        assert (await client.the_letter("beside-1"))["error_code"] == "FILE_NOT_FOUND"
        await eventually(lambda: any("WRONGTYPE" in fields.get("reason", "") for _, fields in seen))
        assert any("doc_jobs_dead is not a list" in fields.get("reason", "") for _, fields in seen)
        assert lists.redis.get(LETTERS) == b"somebody else's"
    finally:
        lists.redis.delete(JOBS, LETTERS)
    lists.push(flat("beside-2", local_path="deed.pdf"))
    await client.until("beside-2", "COMPLETED")


async def test_after_the_memory_of_redis_is_lost_pending_letters_are_on_the_list_again_once(client, lists):
    lists.push(flat("flushed-1", local_path="missing.pdf"))
    await eventually(lambda: [each["job_id"] for each in lists.letters] == ["flushed-1"])
    await client.the_letter("flushed-1")
    lists.redis.flushdb()
    await eventually(lambda: "flushed-1" in [each["job_id"] for each in lists.letters])
    await client.look_after(3)
    told = [each["job_id"] for each in lists.letters]
    assert len(told) == len(set(told))
