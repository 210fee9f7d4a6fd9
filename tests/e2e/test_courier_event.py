"""A courier event in the whole system, from the signed request to its last state."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.contracts.dead_letters import ReviewStatus
from holdfast.contracts.errors import ReviewRefused
from holdfast.contracts.ledger import Status
from holdfast.contracts.times import isoformat
from holdfast.features.courier.contract import ActiveShipment, CourierDeadLetter
from tests.support.gateway import Gateway, assert_counts_its_attempts, opened
from tests.support.settings import Settings
from tests.support.waiting import eventually

SECRET = "a secret of courier-x, long enough for this"
ANA = {"actor": "ana", "reason": "the downstream was out of disk"}

LETTER_FIELDS = {
    "eventId",
    "idempotencyKey",
    "traceId",
    "attemptCount",
    "terminalReasonCode",
    "terminalReasonMessage",
    "attemptHistory",
    "payloadSnapshot",
    "deadLetteredAt",
}
"""The fields of a dead letter's payload (C54): these and no others."""


class Downstream:
    """Answers on a real socket: for each event with its own list of answers, then with 200. None: no answer at all."""

    def __init__(self) -> None:
        self.answers: dict[str, list[int | None]] = {}
        self.seen: Counter[str] = Counter()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length: ")[2].split("\r\n")[0])
                event_id = json.loads(await reader.readexactly(length))["eventId"]
                self.seen[event_id] += 1
                answers = self.answers.get(event_id, [])
                status = answers.pop(0) if answers else 200
                if status is None:
                    continue
                writer.write(f"HTTP/1.1 {status} Whatever\r\ncontent-length: 0\r\n\r\n".encode())
                await writer.drain()
        writer.close()


@dataclass
class Courier:
    """Sends events about one shipment to a gateway, which forwards them to ``downstream``."""

    gateway: Gateway
    downstream: Downstream

    async def send(self, event_id: str, *, status: str = "delivered", minutes_ago: int = 1, **changes):
        document = {
            "eventId": event_id,
            "eventType": "shipment.status.updated",
            "occurredAt": isoformat(datetime.now(UTC) - timedelta(minutes=minutes_ago)),
            "source": "courier-x",
            "payload": {"shipmentId": "shp_1", "orderId": "ord_1", "status": status, "weight": 2.5},
        } | changes
        return document, await self.push(document)

    async def push(self, document):
        return await self.gateway.post_event(document, SECRET, x_request_id=f"req_{document['eventId']}")

    async def shipment(self):
        document = await self.gateway.shipment("shp_1")
        return None if document is None else ActiveShipment.model_validate(document)

    async def letter(self, event_id: str):
        (letter,) = await self.gateway.letters(key=f"courier-x:{event_id}")
        assert_counts_its_attempts(letter)
        return letter

    async def published(self) -> list[tuple[str, dict]]:
        """Everything in the dead-letter queue; it stays taken for an hour."""
        queued = await self.gateway.queued("courier-events-dlq", lease=timedelta(hours=1))
        return [(job_id, json.loads(data)) for job_id, data in queued]


@asynccontextmanager
async def running(folder, downstream, *, worker=True):
    settings = Settings(
        holdfast_data=folder,
        courier_secrets={"courier-x": [SECRET]},
        courier_downstream_url=downstream.url,
        courier_downstream_secret="a secret of the downstream",
        courier_downstream_timeout_ms=200,
        retry_max_attempts=3,
        retry_backoff_base_ms=1,
        upkeep_interval_ms=20,
        worker_drain_timeout_ms=5000,
    )
    async with (
        opened(settings, keys="courier-x:") as gateway,
        gateway.running() if worker else contextlib.nullcontext(),
    ):
        yield Courier(gateway, downstream)


@pytest.fixture
async def downstream():
    made = Downstream()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/events"
    yield made
    server.close()


@pytest.fixture
async def courier(tmp_path, downstream):
    async with running(tmp_path, downstream) as made:
        yield made


async def test_an_event_is_applied(courier):
    document, answer = await courier.send("evt_1", status="out_for_delivery")

    assert answer.status_code == 202
    assert answer.json()["traceId"] == "req_evt_1"
    entry = await courier.gateway.until("evt_1", Status.PROCESSED)
    assert entry.attempt_count == 1
    shipment = await courier.shipment()
    assert (shipment.currentState, shipment.lastEventId, shipment.orderId) == ("out_for_delivery", "evt_1", "ord_1")
    assert shipment.metadata == {"weight": 2.5}
    again = await courier.push(document)
    assert (again.status_code, again.json()["duplicate"]) == (202, True)
    assert again.json()["receivedAt"] == answer.json()["receivedAt"]
    assert courier.downstream.seen == {"evt_1": 1}


async def test_an_event_with_other_content_is_a_conflict(courier):
    document, _ = await courier.send("evt_1")
    await courier.gateway.until("evt_1", Status.PROCESSED)

    answer = await courier.push(document | {"payload": document["payload"] | {"status": "returned"}})

    assert (answer.status_code, answer.json()["errorCode"]) == (409, "IDEMPOTENCY_CONFLICT")
    assert (await courier.shipment()).currentState == "delivered"


async def test_a_late_event_does_not_win(courier):
    await courier.send("evt_new", status="delivered", minutes_ago=1)
    await courier.gateway.until("evt_new", Status.PROCESSED)

    await courier.send("evt_old", status="in_transit", minutes_ago=90)

    assert (await courier.gateway.until("evt_old", Status.PROCESSED)).note == "ignored_stale"
    assert (await courier.shipment()).currentState == "delivered"


async def test_an_event_is_retried_until_its_downstream_works(courier):
    courier.downstream.answers["evt_1"] = [None, 503]

    await courier.send("evt_1")

    entry = await courier.gateway.until("evt_1", Status.PROCESSED)
    assert [attempt.error_code for attempt in entry.attempts] == ["TIMEOUT", "HTTP_503", None]
    assert courier.downstream.seen == {"evt_1": 3}


@pytest.mark.parametrize(
    ("answers", "attempts", "reason"),
    [
        ([503, 503, 503], 3, "DOWNSTREAM_HTTP_503_EXHAUSTED"),
        ([422], 1, "HTTP_422"),
    ],
    ids=["transient", "permanent"],
)
async def test_an_event_that_cannot_be_settled_lives_on_as_a_dead_letter(courier, answers, attempts, reason):
    courier.downstream.answers["evt_1"] = list(answers)

    document, _ = await courier.send("evt_1")

    entry = await courier.gateway.until("evt_1", Status.DEAD_LETTERED)
    letter = await courier.letter("evt_1")
    assert (entry.attempt_count, letter.attempt_count, letter.reason_code) == (attempts, attempts, reason)
    assert await courier.shipment() is None
    ((letter_id, payload),) = await eventually(courier.published)
    assert letter_id == letter.id
    assert set(payload) == LETTER_FIELDS
    CourierDeadLetter.model_validate(payload)
    assert payload["attemptCount"] == len(payload["attemptHistory"]) == attempts
    assert (payload["terminalReasonCode"], payload["traceId"]) == (reason, "req_evt_1")
    assert payload["payloadSnapshot"] == document["payload"]


async def test_a_dead_letter_is_reviewed_replayed_and_closed(courier):
    courier.downstream.answers["evt_1"] = [422]
    await courier.send("evt_1")
    await courier.gateway.until("evt_1", Status.DEAD_LETTERED)
    letter = await courier.letter("evt_1")
    review = courier.gateway.review
    with pytest.raises(ReviewRefused):
        await review.replay(letter.id, **ANA)

    await review.review(letter.id, **ANA)
    await review.replay(letter.id, **ANA)

    entry = await courier.gateway.until("evt_1", Status.PROCESSED, generation=2)
    assert entry.attempt_count == 1
    assert (await courier.shipment()).lastEventId == "evt_1"
    closed = await review.close(letter.id, **ANA)
    assert [decision.step for decision in closed.decisions] == [
        ReviewStatus.REVIEWED,
        ReviewStatus.REPLAYED,
        ReviewStatus.CLOSED,
    ]
    assert await courier.published() == []


async def test_a_replayed_event_that_dies_again_gets_a_second_letter(courier):
    courier.downstream.answers["evt_1"] = [422, 404]
    await courier.send("evt_1")
    await courier.gateway.until("evt_1", Status.DEAD_LETTERED)
    first = await courier.letter("evt_1")
    await courier.gateway.review.review(first.id, **ANA)

    await courier.gateway.review.replay(first.id, **ANA)

    await courier.gateway.until("evt_1", Status.DEAD_LETTERED, generation=2)
    letters = await courier.gateway.letters()
    assert [(each.generation, each.reason_code, each.review_status) for each in letters] == [
        (1, "HTTP_422", ReviewStatus.REPLAYED),
        (2, "HTTP_404", ReviewStatus.PENDING),
    ]


async def test_events_that_were_accepted_without_a_worker_wait_for_one(tmp_path, downstream):
    async with running(tmp_path, downstream, worker=False) as courier:
        answers = [await courier.send(f"evt_{n}") for n in range(3)]
        assert [answer.json()["queued"] for _, answer in answers] == [True] * 3
        assert (await courier.gateway.entry("evt_0")).status is Status.RECEIVED

    async with running(tmp_path, downstream) as courier:
        for number in range(3):
            await courier.gateway.until(f"evt_{number}", Status.PROCESSED)


async def test_a_worker_that_stops_hands_its_event_to_the_next(tmp_path, downstream):
    downstream.answers["evt_1"] = [None] * 10
    async with running(tmp_path, downstream) as courier:
        await courier.send("evt_1")
        await eventually(lambda: downstream.seen["evt_1"])
        courier.gateway.stopping.set()

    downstream.answers.clear()
    async with running(tmp_path, downstream) as courier:
        entry = await courier.gateway.until("evt_1", Status.PROCESSED)

    assert {attempt.outcome.value for attempt in entry.attempts} <= {"failed", "succeeded"}


async def test_many_copies_of_one_event_are_one_event(courier):
    document, _ = await courier.send("evt_1")

    answers = await asyncio.gather(*(courier.push(document) for _ in range(200)))

    assert {answer.status_code for answer in answers} == {202}
    await courier.gateway.until("evt_1", Status.PROCESSED)
    assert courier.downstream.seen == {"evt_1": 1}
    assert await courier.gateway.store.counts("courier") == {"processed": 1}
