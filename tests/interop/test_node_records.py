"""MongoDB as the Node system left it, or leaves it while we work: our API, lists, worker and review on its records."""

from __future__ import annotations

import asyncio
import uuid

import httpx
import pytest
from pymongo import MongoClient

from holdfast.contracts.ledger import Status
from holdfast.contracts.queries import EntryQuery, LetterQuery, Page
from tests.interop.courier import DEAD, MAIN, a_request, post
from tests.support.valkey_server import ON_ONE_SERVER
from tests.support.waiting import eventually

pytestmark = ON_ONE_SERVER

TOKEN = "a-token-for-the-interop-tests-0123456789"
WHO = {"actor": "ana", "reason": "the courier has mended it"}


@pytest.fixture
def mongo_database(mongo):
    """A database of the test's own: the Node system makes its own indexes there."""
    name = f"hf_{uuid.uuid4().hex[:12]}"
    yield name
    with MongoClient(mongo.uri) as client:
        client.drop_database(name)


@pytest.fixture
def records(mongo, mongo_database):
    # As our store reads: what is seen here is seen there a moment later too.
    with MongoClient(mongo.uri, tz_aware=True, readConcernLevel="majority") as client:
        yield client[mongo_database]


@pytest.fixture(params=["text", "all-text", "date"])
def dates(request) -> str:
    return request.param


async def fill(node_system, records, dates, *, count: int = 20) -> None:
    """Events that the Node system has worked: most are applied, some are dead."""
    api = await node_system.start_api(dates=dates, indexes=True)
    worker = await node_system.start_worker(dates=dates, retry_max_attempts=2, retry_backoff_base_ms=1)
    statuses = ["fail_permanently" if n % 5 == 4 else "delivered" for n in range(count)]
    await node_system.post(api, [a_request(f"e{n}", status=status) for n, status in enumerate(statuses)])
    settled = {"status": {"$in": ["processed", "dead_lettered"]}}
    await eventually(lambda: records.processed_events.count_documents(settled) == count)
    await eventually(lambda: records.dead_letter_events.count_documents({}) == count // 5)
    await node_system.stop([api, worker])


async def test_what_node_worked_is_listed_migrated_and_not_worked_again(
    node_system, records, open_gateway_with, open_queue, dates
):
    await fill(node_system, records, dates)
    gateway = await open_gateway_with()
    store = gateway.store

    async def listed() -> set[tuple[str, str]]:
        page = await store.find(EntryQuery(workload="courier"), Page(limit=100))
        return {(each.key, each.status.value) for each in page.items}

    before = await listed()
    assert len(before) == 20
    assert len(await gateway.letters()) == 4
    assert (await gateway.shipment("shp_e0"))["currentState"] == "delivered"

    await store.migrate()

    assert await listed() == before
    assert await store.foreign() == []
    assert await store.migrate() == []
    # The courier sends some of it again, through either API. Node's half makes its indexes anew when it starts.
    api = await node_system.start_api(dates=dates, indexes=True)
    await node_system.post(api, [a_request(f"e{n}", status="returned") for n in range(6)])
    async with gateway.running():
        assert (await post(gateway, a_request("e7", status="returned")))["duplicate"] is True
        main = open_queue(MAIN)
        await eventually(lambda: _is_empty(main))
    assert await listed() == before
    assert (await gateway.shipment("shp_e0"))["currentState"] == "delivered"
    assert await open_queue(DEAD).call("getJobCountByTypes", "waiting") == 4, "only Node's own copies"


@pytest.mark.parametrize("migrated", [False, True])
async def test_dead_letters_of_node_are_reviewed_replayed_and_worked(
    node_system, records, open_gateway_with, dates, migrated
):
    await fill(node_system, records, dates, count=10)
    gateway = await open_gateway_with()
    if migrated:
        await gateway.store.migrate()
    review = gateway.review
    letters = await gateway.letters()
    assert {each.reason_code for each in letters} == {"VALIDATION_FAILED"}

    for letter in letters:
        await review.review(letter.id, **WHO)
    async with gateway.running():
        report = await review.replay_where(LetterQuery(workload="courier"), limit=10, **WHO)
        assert len(report.moved) == 2
        for letter in letters:
            await eventually(lambda letter=letter: _is(gateway, letter.key, Status.PROCESSED))

    entry = await gateway.entry(letters[0].key)
    assert (entry.generation, entry.attempt_count) == (2, 1)
    assert (await gateway.shipment("shp_e4"))["currentState"] == "fail_permanently"
    assert {each.review_status for each in await gateway.letters()} == {"replayed"}


@pytest.mark.parametrize("migrated", [False, True])
async def test_events_that_node_accepted_and_did_not_work_are_worked_by_us_once(
    node_system, records, open_gateway_with, open_queue, downstream, dates, migrated
):
    """Its worker was killed in the middle of its work; then ours take over."""
    api = await node_system.start_api(dates=dates, indexes=True)
    await node_system.post(api, [a_request(f"e{n}") for n in range(30)])
    worker = await node_system.start_worker(dates=dates, work_ms=60_000, concurrency=5, lock_ms=1_500)
    await eventually(lambda: records.processed_events.count_documents({"status": "processing"}) == 5)
    worker.kill()
    gateway = await open_gateway_with(
        courier_downstream_url=downstream.url, courier_downstream_secret="for the downstream 0123456789"
    )
    if migrated:
        await gateway.store.migrate()

    async with gateway.running():
        await eventually(lambda: _counts(gateway, {"processed": 30}))

    assert downstream.taken == {f"courier-x:e{n}": 1 for n in range(30)}
    assert records.applied.count_documents({}) == 0
    assert records.processed_events.count_documents({}) == 30
    # What Node had begun keeps its attempt.
    lost = {"attemptHistory.worker": "another system", "attemptCount": 2}
    assert records.processed_events.count_documents(lost) == 5
    assert await gateway.store.foreign() == []


async def test_a_worker_of_node_that_writes_into_our_entries_hinders_no_reading(
    node_system, records, open_gateway_with, dates
):
    gateway = await open_gateway_with(operator_token=TOKEN)
    requests = [a_request(f"e{n}", status="fail_transiently_1" if n % 2 else "delivered") for n in range(10)]
    receipts = await asyncio.gather(*(post(gateway, each) for each in requests))
    await node_system.start_worker(dates=dates, retry_backoff_base_ms=1)
    await eventually(lambda: records.applied.count_documents({"times": 1}) == 10)
    await eventually(lambda: records.processed_events.count_documents({"status": "processed"}) == 10)

    page = await gateway.store.find(EntryQuery(workload="courier"), Page(limit=100))
    assert {each.status for each in page.items} == {Status.PROCESSED}
    assert sorted(each.attempt_count for each in page.items) == [1] * 5 + [2] * 5
    assert all(each.attempt_count == len(each.attempts) for each in page.items)
    api = httpx.AsyncClient(transport=httpx.ASGITransport(gateway.system.api()), base_url="http://gateway")
    async with api:
        headers = {"authorization": f"Bearer {TOKEN}"}
        shown = (await api.get(f"/v1/events/{receipts[1]['idempotencyKey']}", headers=headers)).json()
        shipment = (await api.get("/v1/shipments/shp_e1", headers=headers)).json()
    assert (shown["attemptCount"], shown["status"]) == (2, "processed")
    assert (shipment["currentState"], len(shipment["timeline"])) == ("fail_transiently_1", 1)

    await gateway.store.migrate()

    mended = {"dueAt": {"$exists": False}, "updatedAt": {"$type": "date"}, "expiresAt": {"$type": "date"}}
    assert records.processed_events.count_documents(mended) == 10
    assert (await post(gateway, requests[0]))["duplicate"] is True


async def _is(gateway, key, status) -> bool:
    entry = await gateway.entry(key)
    return entry is not None and entry.status is status


async def _counts(gateway, wanted) -> bool:
    return await gateway.store.counts("courier") == wanted


async def _is_empty(queue) -> bool:
    counts = await queue.counts()
    return counts["waiting"] + counts["prioritized"] + counts["active"] + counts["delayed"] == 0
