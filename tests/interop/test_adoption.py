"""Node producers that put courier events straight into our queue, beside couriers that use the API."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.contracts.ledger import Status
from holdfast.contracts.times import isoformat
from tests.interop.courier import DEAD, MAIN, a_request, an_event, post
from tests.interop.specified_schemas import MAIN_QUEUE_PAYLOAD
from tests.support.courier_documents import without
from tests.support.valkey_server import ON_ONE_SERVER
from tests.support.waiting import eventually

pytestmark = ON_ONE_SERVER


@pytest.fixture
def main(open_queue):
    return open_queue(MAIN)


WAYS = {
    "plain": {},
    "with an id": {"jobId": "node-chose-this"},
    "with a priority": {"priority": 3},
    "later": {"delay": 20},
}


async def test_an_event_that_node_adds_is_recorded_and_processed(main, gateway):
    """Without an id of its own and with one, with a priority, and delayed."""
    async with gateway.running():
        for number, options in enumerate(WAYS.values()):
            job_id = await main.add("courier.event", an_event(f"plain-{number}", status="delivered"), **options)
            outcome = await (await main.waiting_for(job_id))

            assert outcome == {"resolved": {"shipmentId": f"shp_plain-{number}", "status": "delivered"}}
            assert (await main.job(job_id))["state"] == "completed"
            entry = await gateway.entry(f"courier-x:plain-{number}")
            assert (entry.status, entry.attempt_count) == (Status.PROCESSED, 1)
            assert (await gateway.shipment(f"shp_plain-{number}"))["currentState"] == "delivered"
            assert entry.job_id == options.get("jobId", f"courier-x.plain-{number}")


async def test_a_bulk_of_events_from_node_is_processed_each_once(main, gateway, downstream):
    events = [an_event(f"plain-{n}") for n in range(60)]
    jobs = [{"name": "courier.event", "data": event} for event in events]
    async with gateway.running():
        await main.add_bulk(jobs)
        await eventually(lambda: _all_processed(gateway, 60))
        await main.add_bulk(jobs)
        await eventually(lambda: _settled(main))

    assert await gateway.store.counts("courier") == {"processed": 60}
    assert downstream.taken == {event["idempotencyKey"]: 1 for event in events}


BROKEN = {
    "has no key": without(an_event("plain-1"), "idempotencyKey"),
    "has no order": an_event("plain-2") | {"payload": {"shipmentId": "shp_1"}},
    "is empty": {},
    "is text": "just text",
    "is a number": 17,
    "is a list": [1, 2],
    "is null": None,
}


async def test_an_event_that_breaks_the_contract_becomes_a_dead_letter(main, gateway):
    async with gateway.running():
        for number, document in enumerate(BROKEN.values(), start=1):
            job_id = await main.add("courier.event", document)
            outcome = await (await main.waiting_for(job_id))

            assert "VALIDATION_FAILED" in outcome["rejected"]
            assert [each.reason_code for each in await gateway.letters()] == ["VALIDATION_FAILED"] * number

    assert await gateway.store.counts("courier") == {"dead_lettered": len(BROKEN)}
    assert await gateway.shipment("shp_1") is None


async def test_a_broken_event_is_found_by_its_own_names(main, open_queue, gateway):
    dead = open_queue(DEAD)
    async with gateway.running():
        for _ in range(2):  # the same again changes nothing
            await (await main.waiting_for(await main.add("courier-event", BROKEN["has no order"])))
            await eventually(lambda: _one_letter(dead))
        entry = await gateway.entry(key := "courier-x:plain-2")
        (letter,) = await gateway.letters()
        (shown,) = await dead.call("getWaiting")

    names = {"eventId": "plain-2", "eventType": "shipment.status.updated", "traceId": an_event("plain-2")["traceId"]}
    assert entry.status is Status.DEAD_LETTERED
    assert names.items() <= entry.labels.items()
    assert (letter.key, names.items() <= letter.labels.items()) == (key, True)
    assert {name: shown["data"][name] for name in ("idempotencyKey", "eventId", "traceId")} == {
        "idempotencyKey": key,
        "eventId": "plain-2",
        "traceId": names["traceId"],
    }


async def test_a_broken_event_does_not_touch_the_good_one_of_its_key(main, gateway):
    good, broken = an_event("plain-3"), an_event("plain-3") | {"payload": {"shipmentId": "shp_1"}}
    async with gateway.running():
        for document, end in ((good, "resolved"), (broken, "rejected")):
            assert end in await (await main.waiting_for(await main.add("courier-event", document)))

    assert (await gateway.entry("courier-x:plain-3")).status is Status.PROCESSED
    (letter,) = await gateway.letters()
    assert letter.reason_code == "VALIDATION_FAILED"
    assert letter.labels["idempotencyKey"] == "courier-x:plain-3"


LENIENT = {
    "the five required fields": {
        name: value
        for name, value in an_event("plain-1").items()
        if name in {"eventId", "idempotencyKey", "eventType", "traceId", "payload"}
    },
    "another shape of signature": an_event("plain-2")
    | {"signatureMeta": {"algorithm": "sha256", "timestamp": "1772107200", "signatureHeader": "sha256=ab"}},
    "an instant that is none": an_event("plain-3") | {"occurredAt": "yesterday"},
}


async def test_an_event_with_the_required_fields_is_worked_whatever_the_others_say(main, gateway):
    async with gateway.running():
        for document in LENIENT.values():
            job_id = await main.add("courier-event", document, attempts=0)
            assert "resolved" in await (await main.waiting_for(job_id))

    assert await gateway.store.counts("courier") == {"processed": len(LENIENT)}
    entries = [await gateway.entry(document["idempotencyKey"]) for document in LENIENT.values()]
    assert [entry.warnings for entry in entries] == [(), (), ("occurredAt could not be used and was left out.",)]
    assert json.loads(entries[1].body)["signatureMeta"] == LENIENT["another shape of signature"]["signatureMeta"]


async def _one_letter(dead):
    return len(await dead.call("getWaiting")) == 1


async def test_a_duplicate_from_node_of_an_accepted_event_has_no_second_effect(main, gateway, downstream):
    """Whether it is processed already, and whatever job id Node gives it."""
    async with gateway.running():
        request = a_request("plain-1")
        receipt = await post(gateway, request)
        assert (receipt["duplicate"], receipt["queued"]) == (False, True)
        await eventually(lambda: _is_processed(gateway, receipt["idempotencyKey"]))
        (first,) = await main.call("getCompleted")
        before = await gateway.shipment("shp_plain-1")

        for options in ({}, {"jobId": "another-id"}):
            job_id = await main.add("courier.event", first["data"], **options)
            assert "resolved" in await (await main.waiting_for(job_id))
        assert (await post(gateway, request))["duplicate"] is True

    assert downstream.taken == {"courier-x:plain-1": 1}
    assert await gateway.shipment("shp_plain-1") == before
    assert await gateway.store.counts("courier") == {"processed": 1}
    assert (await gateway.entry("courier-x:plain-1")).attempt_count == 1


async def test_the_same_event_through_both_routes_at_once_has_one_effect(main, gateway, downstream):
    requests = [a_request(f"plain-{n}") for n in range(30)]
    async with gateway.running():
        # What Node adds tells the same as the request: only the request's own fields differ.
        doubles = [an_event(each["eventId"]) | {"occurredAt": each["occurredAt"]} for each in requests]
        await asyncio.gather(
            *(post(gateway, each) for each in requests),
            main.add_bulk([{"name": "courier.event", "data": each} for each in doubles]),
        )
        await eventually(lambda: _all_processed(gateway, 30))
        await eventually(lambda: _settled(main))

    assert downstream.taken == {each["idempotencyKey"]: 1 for each in doubles}
    assert await gateway.store.counts("courier") == {"processed": 30}


async def test_an_event_of_node_with_a_known_key_and_other_content_becomes_a_dead_letter(main, gateway, downstream):
    async with gateway.running():
        receipt = await post(gateway, a_request("plain-1", status="delivered"))
        await eventually(lambda: _is_processed(gateway, receipt["idempotencyKey"]))

        job_id = await main.add("courier.event", an_event("plain-1", status="returned"))
        assert "IDEMPOTENCY_CONFLICT" in (await (await main.waiting_for(job_id)))["rejected"]

    assert (await gateway.shipment("shp_plain-1"))["currentState"] == "delivered"
    assert [each.reason_code for each in await gateway.letters()] == ["IDEMPOTENCY_CONFLICT"]


async def test_what_the_intake_accepts_is_in_the_queue_as_the_specification_says(main, gateway, node):
    receipt = await post(gateway, a_request("plain-1"))

    (job,) = await main.call("getWaiting")

    assert job["id"] == "courier-x.plain-1"
    assert job["data"]["traceId"] == receipt["traceId"]
    assert job["data"]["attempt"] == 1
    assert await node("complaints", schema=MAIN_QUEUE_PAYLOAD, documents=[job["data"]]) == [[]]


async def _is_processed(gateway, key) -> bool:
    entry = await gateway.entry(key)
    return entry is not None and entry.status is Status.PROCESSED


@pytest.mark.parametrize("newer_from", ["node", "the API"])
@pytest.mark.parametrize("older_from", ["node", "the API"])
async def test_a_late_event_in_the_same_batch_is_flagged(main, open_gateway_with, newer_from, older_from):
    gateway = await open_gateway_with()
    an_hour_ago = {"occurredAt": isoformat(datetime.now(UTC) - timedelta(hours=1))}
    for name, whence, changes in (("newer", newer_from, {}), ("older", older_from, an_hour_ago)):
        if whence == "node":
            job_id = await main.add("courier.event", an_event(name, shipmentId="shp_1") | changes)
        else:
            await post(gateway, a_request(name, shipmentId="shp_1") | changes)
            job_id = f"courier-x.{name}"

    async with gateway.running():
        await eventually(lambda: _all_processed(gateway, 2))
        await eventually(lambda: _settled(main))

    newer, older = [await gateway.entry(f"courier-x:{name}") for name in ("newer", "older")]
    assert (newer.note, older.note) == (None, "ignored_stale")
    assert older.result == {"note": "ignored_stale", "shipmentId": "shp_1", "status": "out_for_delivery"}
    assert (await main.job(job_id))["returnvalue"] == older.result
    assert (await gateway.shipment("shp_1"))["lastEventId"] == "newer"


async def _all_processed(gateway, count) -> bool:
    return (await gateway.store.counts("courier")).get("processed") == count


async def _settled(queue) -> bool:
    # A copy of a job that was being worked comes back when that lease would be over. We need not wait for that.
    await queue.call("promoteJobs")
    counts = await queue.counts()
    return counts["waiting"] + counts["prioritized"] + counts["active"] + counts["delayed"] == 0
