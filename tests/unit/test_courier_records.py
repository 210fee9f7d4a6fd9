"""The records of courier events: entries, shipments and dead letters, as the specification describes them.

The real embedded store and the engine's own transitions, on a clock that the test moves.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from holdfast.brokers.sqlite import SqliteBroker
from holdfast.contracts.dead_letters import ReviewStatus
from holdfast.contracts.entries import new_entry
from holdfast.contracts.ledger import Claimed, LedgerEntry, NotNow, RecordedAs, Status
from holdfast.contracts.outcomes import Outcome, Reject, Retry
from holdfast.contracts.queries import LetterQuery
from holdfast.contracts.queues import Delivery
from holdfast.contracts.times import from_ms, to_ms
from holdfast.contracts.transitions import Settlement
from holdfast.engine.adoption import adopt
from holdfast.engine.handling import job_of
from holdfast.engine.projection import Projection
from holdfast.engine.transitions import Decider, RunningJob
from holdfast.features.courier.contract import ActiveShipment, CourierDeadLetter, CourierEvent
from holdfast.features.courier.workload import Courier
from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore
from tests.support.courier_documents import event_document, payload
from tests.support.letters import whole_letters

KEY = "courier-x:evt_123"
DAY = timedelta(days=1)


class Records:
    """A store with the courier workload, and the transitions of an event, one by one."""

    def __init__(self) -> None:
        self.ms = to_ms(datetime(2026, 2, 26, 12, 0, 1, tzinfo=UTC))
        self.courier = Courier()
        self.database = Database(None, now=lambda: self.ms)
        self.store = SqliteStore(self.database, [self.courier])
        self.broker = SqliteBroker(self.database)
        self.decider = Decider(self.courier, Random(1))

    def later(self, wait: timedelta) -> None:
        self.ms += wait // timedelta(milliseconds=1)

    async def arrive(self, **changes) -> RecordedAs:
        event = CourierEvent.model_validate(event_document(**changes))
        (answer,) = await self.store.record([new_entry(self.courier, event)])
        return answer.recorded_as

    async def claim(self, key: str = KEY) -> Claimed:
        entry = await self.entry(key)
        self.ms = max(self.ms, to_ms(entry.not_before))
        (claim,) = await self.store.claim(
            "courier",
            [entry.job_id],
            worker="worker-1",
            lease=timedelta(seconds=30),
            max_attempts=self.courier.retry.max_attempts,
        )
        assert isinstance(claim, Claimed)
        return claim

    async def work(self, key: str = KEY, outcome: Outcome | None = None) -> LedgerEntry:
        """One attempt: with the courier's own handler, or with an outcome of the test."""
        claim = await self.claim(key)
        await self.store.settle([await self.settlement(claim, outcome)])
        return await self.entry(key)

    async def settlement(self, claim: Claimed, outcome: Outcome | None = None) -> Settlement:
        job = job_of(self.courier, claim)
        if outcome is None:
            outcome = job if isinstance(job, Reject) else await self.courier.handle(job, None)
        running = RunningJob(claim, None)
        return Settlement("courier", running.lease, self.decider.decide(outcome, running))

    async def entry(self, key: str = KEY) -> LedgerEntry:
        entry = await self.store.entry("courier", key)
        assert entry is not None
        return entry

    async def shipment(self) -> dict:
        record = await self.store.get("active_shipments", "shp_456")
        assert record is not None
        ActiveShipment.model_validate(record)
        return dict(record)

    async def letters(self) -> list:
        return await whole_letters(self.store, LetterQuery(workload="courier"))

    async def dead_letter_queue(self) -> list[CourierDeadLetter]:
        await Projection(self.store, self.broker).publish(self.courier)
        taken = await self.broker.take("courier-events-dlq", 10, wait=timedelta(0), lease=timedelta(seconds=30))
        return [CourierDeadLetter.model_validate_json(delivery.data) for delivery in taken]

    async def rows(self, statement: str) -> list:
        return await self.database.read(lambda connection: connection.execute(statement).fetchall())


@pytest.fixture
async def records() -> AsyncIterator[Records]:
    made = Records()
    await made.store.open()
    await made.broker.open()
    yield made
    await made.database.close()


# --- names, fields and indexes ----------------------------------------------------------------------------


async def test_the_ledger_can_be_read_by_the_names_of_the_specification(records):
    await records.arrive()
    await records.work(outcome=Retry("TIMEOUT", "too slow"))

    fields = "idempotencyKey, eventId, eventType, status, attemptCount, lastErrorCode, lastErrorMessage"
    (row,) = await records.rows(f"SELECT {fields} FROM processed_events")  # noqa: S608 - a constant
    assert row == (KEY, "evt_123", "shipment.status.updated", "failed", 1, "TIMEOUT", "too slow")
    (times,) = await records.rows("SELECT firstSeenAt, updatedAt, expiresAt FROM processed_events")
    assert times == ("2026-02-26T12:00:01.000Z", "2026-02-26T12:00:01.000Z", None)


async def test_dead_letters_can_be_read_by_the_names_of_the_specification(records):
    await records.arrive()
    await records.work(outcome=Reject("HTTP_404", "gone"))

    fields = "eventId, idempotencyKey, eventType, terminalReasonCode, terminalReasonMessage, attemptCount, reviewStatus"
    (row,) = await records.rows(f"SELECT {fields} FROM dead_letter_events")  # noqa: S608 - a constant
    assert row == ("evt_123", KEY, "shipment.status.updated", "HTTP_404", "gone", 1, "pending")
    ((history, snapshot, created, expires),) = await records.rows(
        "SELECT attemptHistory, payloadSnapshot, createdAt, expiresAt FROM dead_letter_events",
    )
    assert [each["attempt"] for each in json.loads(history)] == [1]
    assert "shp_456" in snapshot
    assert (created, expires) == ("2026-02-26T12:00:01.000Z", "2026-05-27T12:00:01.000Z")


@pytest.mark.parametrize(
    ("table", "columns", "unique"),
    [
        ("ledger_entries", ["workload", "key"], 1),
        ("ledger_entries", ["workload", "status", "updated_at"], 0),
        ("ledger_entries", ["expires_at"], 0),
        ("active_shipments", ["shipmentId"], 1),
        ("active_shipments", ["orderId"], 0),
        ("active_shipments", ["currentState", "updatedAt"], 0),
        ("dead_letters", ["review_status", "created_at"], 0),
        ("dead_letters", ["created_at"], 0),
        ("dead_letters", ["expires_at"], 0),
    ],
)
async def test_the_indexes_of_the_specification_exist(records, table, columns, unique):
    indexes = await records.rows(f"SELECT name, \"unique\" FROM pragma_index_list('{table}')")  # noqa: S608 - a constant
    found = [
        ([row[0] for row in await records.rows(f"SELECT name FROM pragma_index_info('{name}')")], is_unique)  # noqa: S608
        for name, is_unique in indexes
    ]

    assert (columns, unique) in found


# --- identity -----------------------------------------------------------------------------------------------


async def test_one_key_is_one_entry(records):
    assert await records.arrive() is RecordedAs.NEW
    assert await records.arrive(traceId="req_other", attempt=2) is RecordedAs.DUPLICATE
    assert await records.arrive(payload=payload(status="delivered")) is RecordedAs.CONFLICT

    assert await records.rows("SELECT count(*) FROM processed_events") == [(1,)]


# --- transitions --------------------------------------------------------------------------------------------


async def test_an_event_is_received_then_processing_then_processed(records):
    await records.arrive()
    assert (await records.entry()).status is Status.RECEIVED
    await records.claim()
    assert (await records.entry()).status is Status.PROCESSING
    records.later(timedelta(seconds=31))  # that worker is gone
    assert (await records.work()).status is Status.PROCESSED


async def test_a_transient_failure_is_failed_then_processing_again(records):
    await records.arrive()
    failed = await records.work(outcome=Retry("TIMEOUT", "too slow"))
    assert (failed.status, failed.last_error_code) == (Status.FAILED, "TIMEOUT")
    assert timedelta(milliseconds=1000) <= failed.not_before - failed.updated_at <= timedelta(milliseconds=1200)
    (too_soon,) = await records.store.claim(
        "courier", [failed.job_id], worker="w", lease=timedelta(seconds=30), max_attempts=5
    )
    assert isinstance(too_soon, NotNow)

    claim = await records.claim()

    assert claim.attempt == 2
    assert job_of(records.courier, claim).data.attempt == 2


async def test_the_fifth_transient_failure_is_dead_lettered(records):
    await records.arrive()
    for attempt in range(1, 5):
        entry = await records.work(outcome=Retry("TIMEOUT", "too slow"))
        assert (entry.status, entry.attempt_count) == (Status.FAILED, attempt)

    entry = await records.work(outcome=Retry("TIMEOUT", "too slow"))

    assert (entry.status, entry.attempt_count) == (Status.DEAD_LETTERED, 5)
    assert len(await records.letters()) == 1
    (published,) = await records.dead_letter_queue()
    assert published.attemptCount == len(published.attemptHistory) == 5
    assert {each.errorCode for each in published.attemptHistory} == {"TIMEOUT"}


async def test_a_permanent_failure_is_dead_lettered_at_once(records):
    await records.arrive()

    entry = await records.work(outcome=Reject("HTTP_404", "gone"))

    assert (entry.status, entry.attempt_count) == (Status.DEAD_LETTERED, 1)
    assert len(await records.letters()) == 1
    (published,) = await records.dead_letter_queue()
    assert (published.terminalReasonCode, published.attemptCount) == ("HTTP_404", 1)


@pytest.mark.parametrize(
    ("data", "event_id"),
    [
        (json.dumps(event_document(payload={"shipmentId": "shp_456"})), "evt_123"),
        ('{"eventId": "evt_9"}', "evt_9"),
        ("not even JSON", None),
    ],
)
async def test_a_malformed_job_from_the_queue_is_dead_lettered_at_once(records, data, event_id):
    (job_id,) = await adopt(records.store, records.courier, [Delivery("courier-events-main", "evt-9", data, "token")])
    (claim,) = await records.store.claim("courier", [job_id], worker="w", lease=timedelta(seconds=30), max_attempts=5)
    await records.store.settle([await records.settlement(claim)])

    (published,) = await records.dead_letter_queue()
    assert (published.terminalReasonCode, published.attemptCount) == ("VALIDATION_FAILED", 1)
    assert published.eventId == (event_id or published.idempotencyKey)


# --- the shipment -------------------------------------------------------------------------------------------


async def test_an_event_becomes_the_state_of_its_shipment(records):
    await records.arrive(payload=payload(weight=2.5))
    entry = await records.work()

    assert entry.note is None
    assert entry.result == {"shipmentId": "shp_456", "status": "out_for_delivery"}
    assert await records.shipment() == {
        "shipmentId": "shp_456",
        "orderId": "ord_789",
        "currentState": "out_for_delivery",
        "lastEventId": "evt_123",
        "lastEventType": "shipment.status.updated",
        "lastEventAt": "2026-02-26T12:00:00.000Z",
        "metadata": {"weight": 2.5},
        "createdAt": "2026-02-26T12:00:01.000Z",
        "updatedAt": "2026-02-26T12:00:01.000Z",
    }


async def test_an_event_is_applied_once_however_often_it_is_settled(records):
    await records.arrive()
    claim = await records.claim()
    settlement = await records.settlement(claim)
    (first,) = await records.store.settle([settlement])
    records.later(timedelta(seconds=5))

    (second,) = await records.store.settle([settlement])

    assert (first.status, second.stale) == (Status.PROCESSED, True)
    assert await records.arrive() is RecordedAs.DUPLICATE
    assert (await records.shipment())["updatedAt"] == "2026-02-26T12:00:01.000Z"


@pytest.mark.parametrize(
    ("occurred_at", "state", "note"),
    [
        ("2026-02-26T12:00:00.001Z", "delivered", None),
        ("2026-02-26T11:59:59.999Z", "out_for_delivery", "ignored_stale"),
        ("2026-02-26T13:59:59+02:00", "out_for_delivery", "ignored_stale"),
    ],
)
async def test_the_newest_event_wins_in_any_order(records, occurred_at, state, note):
    await records.arrive()
    await records.work()
    records.later(timedelta(seconds=5))
    await records.arrive(
        eventId="evt_2", idempotencyKey="k2", occurredAt=occurred_at, payload=payload(status="delivered")
    )

    entry = await records.work("k2")

    assert (entry.status, entry.note) == (Status.PROCESSED, note)
    shipment = await records.shipment()
    assert shipment["currentState"] == state
    assert shipment["createdAt"] == "2026-02-26T12:00:01.000Z"


# --- retention ----------------------------------------------------------------------------------------------


async def test_a_processed_entry_is_kept_for_thirty_days(records):
    await records.arrive()
    entry = await records.work()
    assert entry.expires_at == from_ms(records.ms) + 30 * DAY

    records.later(30 * DAY - timedelta(milliseconds=1))
    await records.store.prune(10)
    assert await records.store.entry("courier", KEY) is not None
    records.later(timedelta(milliseconds=1))
    await records.store.prune(10)
    assert await records.store.entry("courier", KEY) is None


async def test_a_dead_letter_and_its_entry_are_kept_for_ninety_days(records):
    await records.arrive()
    await records.work(outcome=Reject("HTTP_404", "gone"))

    records.later(90 * DAY - timedelta(milliseconds=1))
    await records.store.prune(10)
    assert len(await records.letters()) == 1
    assert await records.arrive() is RecordedAs.DUPLICATE
    records.later(timedelta(milliseconds=1))
    await records.store.prune(10)
    assert await records.letters() == []


async def test_an_open_entry_does_not_expire(records):
    await records.arrive()
    assert (await records.entry()).expires_at is None

    records.later(3650 * DAY)
    await records.store.prune(10)

    assert (await records.entry()).status is Status.RECEIVED


# --- replay -------------------------------------------------------------------------------------------------


async def test_a_replay_runs_the_same_event_again_and_old_age_does_not_stop_it(records):
    await records.arrive()
    await records.work(outcome=Reject("HTTP_404", "gone"))
    (letter,) = await records.letters()
    records.later(60 * DAY)
    await records.store.review([letter.id], actor="ana", reason="downstream moved")
    assert await records.store.replay([(letter.id, None)], actor="ana", reason="mended") == [letter.id]

    entry = await records.work()

    assert (entry.status, entry.generation, entry.attempt_count) == (Status.PROCESSED, 2, 1)
    assert (await records.shipment())["lastEventId"] == "evt_123"


async def test_a_letter_is_pending_then_reviewed_then_replayed_then_closed(records):
    await records.arrive()
    await records.work(outcome=Reject("HTTP_404", "gone"))
    (letter,) = await records.letters()
    store, who = records.store, {"actor": "ana", "reason": "because"}
    assert letter.review_status is ReviewStatus.PENDING
    assert (await store.replay([(letter.id, None)], **who), await store.close([letter.id], **who)) == ([], [])

    assert await store.review([letter.id], **who) == [letter.id]
    assert await store.replay([(letter.id, None)], **who) == [letter.id]
    assert await store.replay([(letter.id, None)], **who) == []
    assert await store.close([letter.id], **who) == [letter.id]

    (letter,) = await records.letters()
    assert [(step.step, step.actor, step.reason) for step in letter.decisions] == [
        (step, "ana", "because") for step in (ReviewStatus.REVIEWED, ReviewStatus.REPLAYED, ReviewStatus.CLOSED)
    ]
