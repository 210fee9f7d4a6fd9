"""Our API and maintenance beside a worker of Node's that knows nothing of our ledger.

The worker's records are in a database of its own, or nowhere: all that we learn, the queue tells us.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pymongo import MongoClient
from redis.asyncio import Redis

from holdfast.contracts.ledger import Status
from holdfast.telemetry import attach, detach, events
from tests.interop.courier import MAIN, a_request, post
from tests.support.node_system import NodeSystem
from tests.support.valkey_server import ON_ONE_SERVER
from tests.support.waiting import eventually

pytestmark = ON_ONE_SERVER

LONG_AGO = datetime.now(UTC) - timedelta(hours=1)
PROCESSED, DEAD_LETTERED, RECEIVED = Status.PROCESSED, Status.DEAD_LETTERED, Status.RECEIVED


@pytest.fixture
async def gateway(open_gateway_with):
    return await open_gateway_with()


@pytest.fixture
def records(mongo, mongo_database):
    with MongoClient(mongo.uri, tz_aware=True, readConcernLevel="majority") as client:
        yield client[mongo_database]


@pytest.fixture
async def redis(redis_place):
    async with Redis.from_url(redis_place.url, decode_responses=True) as client:
        yield client


@pytest.fixture
async def node_workers(node_packages, redis_place, mongo, mongo_database, tmp_path):
    """Node's workers, without a database; what they apply is counted in ours, in ``applied``."""
    system = NodeSystem(
        redis_url=redis_place.url,
        prefix=redis_place.prefix,
        mongo_uri=mongo.uri,
        database=None,
        applied_database=mongo_database,
        folder=tmp_path,
    )
    yield system
    system.kill()


@pytest.fixture
def seen():
    found = []

    def hear(event, fields):
        found.append((event, fields))

    attach(hear)
    yield found
    detach(hear)


def key(name):
    return f"courier-x:{name}"


async def post_all(gateway, *names, **facts):
    for name in names:
        await post(gateway, a_request(name, **facts))


async def worked(open_queue, *, left=0):
    """Wait until nothing waits and nothing is in work."""
    queue = open_queue(MAIN)

    async def quiet():
        counts = await queue.counts()
        return counts["waiting"] + counts["active"] + counts["delayed"] + counts["prioritized"] == left

    await eventually(quiet)


def make_due(records):
    """As if the grace for what is open had passed."""
    records.processed_events.update_many({"dueAt": {"$exists": True}}, {"$set": {"dueAt": LONG_AGO}})


async def test_what_node_completes_is_processed_with_its_return_value(gateway, node_workers, open_queue, records):
    await post_all(gateway, *(f"e{n}" for n in range(30)))
    await node_workers.start_worker()
    await worked(open_queue)

    report = await gateway.system.maintenance().round()

    assert (report.worked_elsewhere, report.republished) == (30, 0)
    entry = await gateway.entry(key("e7"))
    assert (entry.status, entry.note, entry.result) == (PROCESSED, "worked_elsewhere", {"status": "processed"})
    assert [(each.attempt, each.outcome, each.worker) for each in entry.attempts] == [(1, "succeeded", "elsewhere")]
    assert await gateway.store.counts("courier") == {"processed": 30}
    make_due(records)
    assert (await gateway.system.maintenance().round()).republished == 0


async def test_what_node_completes_and_removes_is_found_in_the_history(gateway, node_workers, open_queue, records):
    await node_workers.start_worker(remove_on_complete=True)
    maintenance = gateway.system.maintenance()
    for batch in range(3):  # the second and the third follow from where the first was read
        await post_all(gateway, *(f"e{batch}-{n}" for n in range(20)))
        await worked(open_queue)
        assert (await maintenance.round()).worked_elsewhere == 20

    assert (await open_queue(MAIN).counts())["completed"] == 0
    assert await gateway.store.counts("courier") == {"processed": 60}
    assert [each["times"] for each in records.applied.find()] == [1] * 60


async def test_what_node_keeps_is_known_when_its_history_is_gone(gateway, node_workers, open_queue, records, redis):
    await post_all(gateway, "e1", "e2")
    await node_workers.start_worker()
    await worked(open_queue)
    await redis.xtrim(f"{open_queue(MAIN).at['prefix']}:{MAIN}:events", maxlen=0)
    make_due(records)

    report = await gateway.system.maintenance().round()

    assert report.republished == 0
    assert await gateway.store.counts("courier") == {"processed": 2}


@pytest.mark.parametrize("remove", [False, True])
async def test_what_node_fails_is_one_dead_letter_with_its_reason(gateway, node_workers, open_queue, records, remove):
    await post_all(gateway, "e1", status="fail_permanently")
    await node_workers.start_worker(remove_on_fail=remove)
    await worked(open_queue)

    for _ in range(2):
        await gateway.system.maintenance().round()
        make_due(records)

    (letter,) = await gateway.letters()
    assert (letter.key, letter.reason_code, letter.attempt_count) == (key("e1"), "FAILED_ELSEWHERE", 1)
    assert "malformed payload" in letter.reason_message
    assert (await gateway.entry(key("e1"))).status is DEAD_LETTERED


async def test_the_failure_before_a_replay_does_not_end_the_replay(gateway, node_workers, open_queue):
    await post_all(gateway, "e1", status="fail_permanently")
    worker = await node_workers.start_worker()
    await worked(open_queue)
    await gateway.system.maintenance().round()
    await worker.terminate()
    (letter,) = await gateway.letters()
    store = gateway.store
    await store.review([letter.id], actor="ana", reason="looked at it")

    # The replay is decided while the queue is away: the queue has nothing but the old failure.
    assert await store.replay([(letter.id, None)], actor="ana", reason="mended") == [letter.id]
    report = await gateway.system.maintenance().round()

    assert report.worked_elsewhere == 0
    assert (await gateway.entry(key("e1"))).status is RECEIVED
    assert len(await gateway.letters()) == 1


async def test_our_own_work_is_not_taken_for_somebody_elses(gateway, open_queue, records):
    """Not even by a ledger that was restored from an older copy, and does not know it any more."""
    async with gateway.running():
        await post_all(gateway, "e1", "e2")
        await eventually(lambda: _processed(gateway, 2))
    await worked(open_queue)
    restored = {"status": "received", "fence": 0, "attemptCount": 0, "attemptHistory": [], "dueAt": LONG_AGO}
    records.processed_events.update_many({}, {"$set": restored, "$unset": {"expiresAt": ""}})
    records.active_shipments.delete_many({})

    report = await gateway.system.maintenance().round()

    assert (report.worked_elsewhere, report.republished) == (0, 2)
    async with gateway.running():
        await eventually(lambda: _processed(gateway, 2))
    assert (await gateway.shipment("shp_e1"))["lastEventId"] == "e1"


async def test_what_cannot_be_told_from_loss_is_published_again_with_one_warning(
    gateway, node_workers, open_queue, records, redis, seen
):
    maintenance = gateway.system.maintenance()
    worker = await node_workers.start_worker(remove_on_complete=True)
    await post_all(gateway, "e1")
    await worked(open_queue)
    await maintenance.round()
    for name in ("e2", "e3"):
        await post_all(gateway, name)
        await worked(open_queue)
        await redis.xtrim(f"{open_queue(MAIN).at['prefix']}:{MAIN}:events", maxlen=0)
        make_due(records)
        await worker.terminate()

        assert (await maintenance.round()).republished == 1

        worker = await node_workers.start_worker(remove_on_complete=True)
        await worked(open_queue)
        await maintenance.round()

    assert await gateway.store.counts("courier") == {"processed": 3}
    assert [event for event, _ in seen].count(events.QUEUE_UNSURE) == 1
    assert [event for event, _ in seen].count(events.QUEUE_SHARED) == 1


async def test_a_lost_queue_of_our_own_warns_of_nobody(gateway, open_queue, redis, seen, records):
    await post_all(gateway, "e1")
    await gateway.system.maintenance().round()
    await open_queue(MAIN).call("obliterate", {"force": True})
    make_due(records)

    assert (await gateway.system.maintenance().round()).republished == 1
    assert events.QUEUE_UNSURE not in [event for event, _ in seen]


async def test_a_job_that_bullmq_gave_up_as_stalled_is_run_again(gateway, open_queue, records, redis):
    """Node's workers look for lost workers, ours too, and fail their jobs. How often is too often, the ledger says."""
    await post_all(gateway, "e1")
    base = f"{open_queue(MAIN).at['prefix']}:{MAIN}:"
    job_id = (await gateway.entry(key("e1"))).job_id
    await redis.lrem(f"{base}wait", 0, job_id)
    await redis.hset(f"{base}{job_id}", mapping={"failedReason": "job stalled more than allowable limit"})
    await redis.zadd(f"{base}failed", {job_id: 1_772_107_200_000})
    await redis.xadd(
        f"{base}events", {"event": "failed", "jobId": job_id, "failedReason": "job stalled more than allowable limit"}
    )
    make_due(records)

    report = await gateway.system.maintenance().round()

    assert (report.worked_elsewhere, report.republished) == (0, 1)
    async with gateway.running():
        await eventually(lambda: _processed(gateway, 1))
    assert await gateway.letters() == []


async def _processed(gateway, number):
    return (await gateway.store.counts("courier")).get("processed") == number
