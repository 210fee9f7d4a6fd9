"""The Node system that other tests set beside ours does what the specification says of it."""

from __future__ import annotations

from datetime import datetime

import pytest
from bson import ObjectId
from pymongo import MongoClient

from tests.interop.courier import DEAD, MAIN, a_request
from tests.support.valkey_server import ON_ONE_SERVER
from tests.support.waiting import eventually

pytestmark = ON_ONE_SERVER

RECORD = {
    "_id",
    "idempotencyKey",
    "eventId",
    "eventType",
    "status",
    "attemptCount",
    "lastErrorCode",
    "lastErrorMessage",
    "firstSeenAt",
    "updatedAt",
}


@pytest.fixture
def records(mongo, mongo_database):
    with MongoClient(mongo.uri, tz_aware=True, readConcernLevel="majority") as client:
        yield client[mongo_database]


@pytest.mark.parametrize(("dates", "kind", "expiry"), [("text", str, datetime), ("date", datetime, datetime)])
async def test_an_event_goes_through_its_api_and_its_worker(node_system, records, open_queue, dates, kind, expiry):
    api = await node_system.start_api(dates=dates)
    await node_system.post(api, [a_request("e1", status="delivered", weight=3)])

    (job,) = await open_queue(MAIN).call("getWaiting")
    assert (job["name"], job["id"], job["opts"]["attempts"]) == ("courier-event", "1", 0)
    assert set(job["data"]["signatureMeta"]) == {"algorithm", "timestamp", "signatureHeader"}
    record = records.processed_events.find_one()
    assert set(record) == RECORD
    assert (record["status"], record["attemptCount"]) == ("received", 0)
    assert isinstance(record["_id"], ObjectId)
    assert isinstance(record["firstSeenAt"], kind)

    await node_system.start_worker(dates=dates)
    await eventually(lambda: records.processed_events.find_one({"status": "processed"}))

    record = records.processed_events.find_one()
    assert (record["attemptCount"], type(record["updatedAt"]), type(record["expiresAt"])) == (1, kind, expiry)
    shipment = records.active_shipments.find_one({"shipmentId": "shp_e1"})
    assert (shipment["currentState"], shipment["lastEventId"], shipment["metadata"]) == (
        "delivered",
        "e1",
        {"weight": 3},
    )
    assert isinstance(shipment["lastEventAt"], kind)
    assert list(records.applied.find()) == [{"_id": "courier-x:e1", "times": 1}]


@pytest.mark.parametrize("retries", ["loop", "queue"])
async def test_what_fails_is_tried_again_and_becomes_a_dead_letter_in_the_end(
    node_system, records, open_queue, retries
):
    api = await node_system.start_api(job_attempts=3, backoff_ms=5)
    statuses = {"e1": "fail_transiently_2", "e2": "fail_transiently_3", "e3": "fail_permanently"}
    await node_system.post(api, [a_request(name, status=status) for name, status in statuses.items()])

    await node_system.start_worker(retries=retries, retry_max_attempts=3, retry_backoff_base_ms=5)
    await eventually(lambda: records.dead_letter_events.count_documents({}) == 2)
    await eventually(lambda: records.processed_events.count_documents({"status": "processed"}) == 1)

    told = {each["eventId"]: each for each in records.dead_letter_events.find()}
    assert {name: (each["terminalReasonCode"], each["attemptCount"]) for name, each in told.items()} == {
        "e2": ("ETIMEDOUT_EXHAUSTED", 3),
        "e3": ("VALIDATION_FAILED", 1),
    }
    assert [each["attempt"] for each in told["e2"]["attemptHistory"]] == [1, 2, 3]
    assert told["e3"]["payloadSnapshot"]["shipmentId"] == "shp_e3"
    assert {each["eventId"]: each["attemptCount"] for each in records.processed_events.find()} == {
        "e1": 3,
        "e2": 3,
        "e3": 1,
    }
    queue = open_queue(DEAD)
    await eventually(lambda: _waiting(queue, 2))


@pytest.mark.parametrize("says", ["the job", "the worker"])
async def test_a_completed_job_is_removed_where_it_is_told_so(node_system, records, open_queue, says):
    api = await node_system.start_api(**({"remove_on_complete": True} if says == "the job" else {}))
    await node_system.start_worker(**({"remove_on_complete": True} if says == "the worker" else {}))
    await node_system.post(api, [a_request("e1")])
    await eventually(lambda: records.applied.find_one({"times": 1}))
    await node_system.stop()

    assert await open_queue(MAIN).counts() == dict.fromkeys(await open_queue(MAIN).counts(), 0)


async def test_a_duplicate_is_skipped_and_a_killed_worker_is_gone(node_system, records, open_queue):
    api = await node_system.start_api()
    worker = await node_system.start_worker()
    await node_system.post(api, [a_request("e1")])
    await eventually(lambda: records.applied.find_one({"times": 1}))
    await node_system.post(api, [a_request("e1")])
    main = open_queue(MAIN)
    await eventually(lambda: _completed(main, 2))
    worker.kill()

    assert not worker.alive
    assert records.applied.find_one() == {"_id": "courier-x:e1", "times": 1}


async def _waiting(queue, count) -> bool:
    return (await queue.counts())["waiting"] == count


async def _completed(queue, count) -> bool:
    return (await queue.counts())["completed"] == count
