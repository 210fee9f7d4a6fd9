"""Moving from a Node system one side at a time: its API and ours, its worker and ours, in every combination.

All of them share one Redis and one MongoDB. At the end each event was applied once, by whoever it was; the ledger says
so; nothing is open, nothing is dead-lettered, and nothing is published any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import pytest
from pymongo import MongoClient
from redis import Redis

from holdfast.contracts.queries import EntryQuery, Page
from tests.interop.courier import MAIN, a_request, post
from tests.support.long_run import LONG_RUN
from tests.support.node_system import NodeSystem
from tests.support.valkey_server import ON_ONE_SERVER
from tests.support.waiting import eventually

EVENTS = 2_000 if LONG_RUN else 300
_AT_ONCE = 40
_LONG = 300

pytestmark = [
    pytest.mark.chaos,  # the long run has 2,000 events each
    pytest.mark.timeout(1_200),
    ON_ONE_SERVER,
]


@pytest.fixture
def records(mongo, mongo_database):
    # As our store reads: what is seen here is seen there a moment later too.
    with MongoClient(mongo.uri, tz_aware=True, readConcernLevel="majority") as client:
        yield client[mongo_database]


@pytest.fixture
async def gateway(open_gateway_with):
    """Ours, with a grace and a lease so short that an open job is looked at many times in a test."""
    return await open_gateway_with(publish_grace_ms=1_000, worker_lease_seconds=5, worker_concurrency=20)


@pytest.fixture
def apart(node_packages, redis_place, mongo, mongo_database, tmp_path):
    """A Node system with records of its own, which we do not see; what it applies is counted in ``applied``."""
    system = NodeSystem(
        redis_url=redis_place.url,
        prefix=redis_place.prefix,
        mongo_uri=mongo.uri,
        database=f"{mongo_database}_node",
        applied_database=mongo_database,
        folder=tmp_path,
    )
    yield system
    system.kill()
    with MongoClient(mongo.uri) as client:
        client.drop_database(f"{mongo_database}_node")


def flush(place) -> None:
    """FLUSHALL, for the test's own keys: all at once, as that is."""
    forget = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end"
    with contextlib.closing(Redis.from_url(place.url)) as client:
        client.eval(forget, 0, f"{place.prefix}:*")


def named(number: int) -> dict:
    return a_request(f"e{number}", status="delivered")


async def post_to_us(gateway, numbers) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(number):
        async with slots:
            await post(gateway, named(number))

    await asyncio.gather(*(one(number) for number in numbers))


@contextlib.asynccontextmanager
async def maintained(gateway):
    """Our maintenance alone, as it runs in a process that only serves the API."""
    stop = asyncio.Event()
    running = asyncio.create_task(gateway.system.maintenance().run(stop))
    try:
        yield
    finally:
        stop.set()
        await running


async def all_processed(gateway, number=EVENTS) -> bool:
    return await gateway.store.counts("courier") == {"processed": number}


async def check(gateway, records, open_queue, number=EVENTS) -> Counter:
    """Each event was applied once, and everybody says so. Answers who applied how many."""
    await eventually(lambda: all_processed(gateway, number), within=_LONG)
    # What Node settled by itself, our maintenance has seen once an open job would have been due.
    await eventually(lambda: records.processed_events.count_documents({"dueAt": {"$exists": True}}) == 0, within=_LONG)
    entries = await _entries(gateway)
    by_node = {each["_id"]: each["times"] for each in records.applied.find()}
    by_us = {each.key for each in entries if each.note != "worked_elsewhere"}
    keys = {f"courier-x:e{n}" for n in range(number)}

    assert {each.key for each in entries} == keys
    assert Counter(by_node.values()).keys() <= {1}, "Node applied an event twice"
    assert not by_us & by_node.keys(), "an event was applied by both"
    assert by_us | by_node.keys() == keys, "an event was applied by nobody"
    assert [each for each in entries if each.attempt_count != len(each.attempts)] == []
    assert await gateway.letters() == []
    shipments = {each["shipmentId"]: each["currentState"] for each in records.active_shipments.find()}
    assert all(shipments.get(f"shp_{key.partition(':')[2]}") == "delivered" for key in by_us)
    await _quiet(gateway, open_queue)
    return Counter(us=len(by_us), node=len(by_node))


async def _entries(gateway):
    found, cursor = [], None
    while True:
        page = await gateway.store.find(EntryQuery(workload="courier"), Page(limit=500, cursor=cursor))
        found += page.items
        cursor = page.next
        if cursor is None:
            return found


async def _quiet(gateway, open_queue) -> None:
    """Nothing waits, and three looks of maintenance find nothing to publish."""
    queue = open_queue(MAIN)

    async def empty():
        counts = await queue.counts()
        return not any(counts[state] for state in ("waiting", "active", "delayed", "prioritized"))

    await eventually(empty, within=_LONG)
    maintenance = gateway.system.maintenance()
    for _ in range(3):
        assert (await maintenance.round()).republished == 0


@pytest.mark.parametrize(("received", "remove"), [(True, True), (False, False)])
async def test_their_api_our_worker(gateway, node_system, records, open_queue, received, remove):
    api = await node_system.start_api(received=received, remove_on_complete=remove)
    async with gateway.running():
        await node_system.post(api, map(named, range(EVENTS)))

        assert (await check(gateway, records, open_queue))["us"] == EVENTS


@pytest.mark.parametrize("remove", [True, False])
async def test_our_api_their_worker_with_the_same_records(gateway, node_system, records, open_queue, remove):
    await node_system.start_worker(remove_on_complete=remove, concurrency=50)
    async with maintained(gateway):
        await post_to_us(gateway, range(EVENTS))

        assert (await check(gateway, records, open_queue))["node"] == EVENTS


@pytest.mark.parametrize("remove", [True, False])
async def test_our_api_their_worker_with_records_of_its_own(gateway, apart, records, open_queue, remove):
    await apart.start_worker(remove_on_complete=remove, concurrency=50)
    async with maintained(gateway):
        await post_to_us(gateway, range(EVENTS))

        assert (await check(gateway, records, open_queue))["node"] == EVENTS


async def test_our_api_both_workers(gateway, node_system, records, open_queue):
    await node_system.start_worker(remove_on_complete=True, concurrency=50)
    async with gateway.running():
        await post_to_us(gateway, range(EVENTS))

        applied = await check(gateway, records, open_queue)
    assert applied["node"] > 0
    assert applied["us"] > 0


async def test_both_apis_both_workers(gateway, node_system, records, open_queue):
    api = await node_system.start_api()
    await node_system.start_worker(concurrency=50)
    async with gateway.running():
        await asyncio.gather(
            node_system.post(api, map(named, range(EVENTS // 2))),
            post_to_us(gateway, range(EVENTS // 2, EVENTS)),
        )

        await check(gateway, records, open_queue)


async def test_their_api_their_worker_beside_our_maintenance(gateway, node_system, records, open_queue):
    """Nothing of ours takes part, and nothing of ours disturbs."""
    api = await node_system.start_api(remove_on_complete=True)
    await node_system.start_worker(concurrency=50)
    async with maintained(gateway):
        await node_system.post(api, map(named, range(EVENTS)))

        assert (await check(gateway, records, open_queue))["node"] == EVENTS


@pytest.mark.parametrize("ours_too", [True, False])
async def test_our_api_and_their_worker_through_a_queue_that_forgets_everything(
    gateway, node_system, records, open_queue, redis_place, ours_too
):
    await node_system.start_worker(remove_on_complete=True, concurrency=20)
    async with gateway.running() if ours_too else maintained(gateway):
        posting = asyncio.create_task(post_to_us(gateway, range(EVENTS)))
        for share in (4, 2):
            await eventually(
                lambda share=share: records.processed_events.count_documents({"status": "processed"}) > EVENTS // share,
                within=_LONG,
            )
            flush(redis_place)
        await posting

        await check(gateway, records, open_queue)


@pytest.mark.parametrize("shared", [True, False])
async def test_our_processes_are_away_while_their_worker_goes_on(
    gateway, node_system, apart, records, open_queue, shared
):
    """Away for longer than any grace or lease; what they find when they come back is done, and is not done again."""
    node = node_system if shared else apart
    await post_to_us(gateway, range(EVENTS))
    await node.start_worker(remove_on_complete=False, concurrency=50)
    await eventually(lambda: records.applied.count_documents({}) == EVENTS, within=_LONG)
    await asyncio.sleep(1.2)  # the grace, which nobody of ours watches pass

    async with gateway.running():
        assert (await check(gateway, records, open_queue))["node"] == EVENTS
