"""The courier's rules and examples, on both deployments."""

from __future__ import annotations

import errno
import json
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from holdfast import PermanentError, ThrottledError, TransientError
from holdfast.contracts.times import isoformat
from holdfast.contracts.transitions import EDGES
from holdfast.engine.failures import classify
from holdfast.features.courier.feature import workload_of as courier_of
from holdfast.features.courier.signatures import sign
from tests.specification.places import CLUSTER, EMBEDDED, Place
from tests.support.downstream import Downstream
from tests.support.settings import Settings
from tests.support.specification import example
from tests.support.waiting import eventually

MAIN, DEAD = "courier-events-main", "courier-events-dlq"
LEDGER, SHIPMENTS, LETTERS = "processed_events", "active_shipments", "dead_letter_events"
SECRET = "a secret for the specification 0123456789"
JOB, DEAD_LETTER = example("courier-job"), example("courier-dead-letter")
REQUIRED = ("eventId", "idempotencyKey", "eventType", "traceId", "payload")
DAY = timedelta(days=1)

LONG_MEMORY = {"processed_events_ttl_days": 3_650}
"""The example's event happened in February 2026. The ledger must remember that long, or the event is too old."""
OURS = {"courier_secrets": {"courier-x": [SECRET]}}


def now() -> str:
    return isoformat(datetime.now(UTC))


def an_event(name: str, **changes: Any) -> dict[str, Any]:
    """The example's event, with another name; it happened just now."""
    key = f"{JOB['source']}:{name}"
    payload = JOB["payload"] | {"shipmentId": f"shp_{name}"}
    return JOB | {"eventId": name, "idempotencyKey": key, "occurredAt": now(), "payload": payload} | changes


async def post(
    place: Place, document: dict[str, Any], *, secret: str = SECRET, age: timedelta = timedelta(0)
) -> httpx.Response:
    """Post a signed event, under the example's trace id."""
    body, timestamp = json.dumps(document).encode(), int(time.time() - age.total_seconds())
    headers = {
        "content-type": "application/json",
        "x-request-id": JOB["traceId"],
        "x-signature": sign(secret, timestamp, body),
        "x-signature-timestamp": str(timestamp),
        "x-signature-algorithm": "hmac-sha256",
    }
    transport = httpx.ASGITransport(place.gateway.system.api())
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        return await client.post("/v1/events/courier", content=body, headers=headers)


async def entry(place: Place, key: str) -> dict[str, Any]:
    """The record of the ledger."""
    (found,) = [each for each in await place.records(LEDGER) if each["idempotencyKey"] == key]
    return found


async def until(place: Place, key: str, status: str) -> dict[str, Any]:
    """The record of the ledger, once it is in this state."""

    async def reached() -> dict[str, Any] | None:
        found = [each for each in await place.records(LEDGER) if each["idempotencyKey"] == key]
        return found[0] if found and found[0]["status"] == status else None

    return await eventually(reached)


def instant(value: Any) -> datetime:
    """A time of a record: MongoDB has dates, the file has text."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


@pytest.fixture
async def downstream():
    async with Downstream() as server:
        yield server


def forwarding(url: str) -> dict[str, Any]:
    return {"courier_downstream_url": url, "courier_downstream_secret": "for the downstream 0123456789"}


# --- all goes well ----------------------------------------------------------------------------------------------------


async def test_the_example_comes_over_http_and_is_processed(open_place, statement):  # noqa: PLR0915 - one whole job
    place = await open_place(**OURS, **LONG_MEMORY)
    began = datetime.now(UTC)

    answer = await post(place, JOB)
    (job,) = await place.waiting(MAIN)
    data = job["data"]
    with statement("C1 C4", "a signed event that the API accepts is in courier-events-main"):
        assert (answer.status_code, len(await place.waiting(MAIN))) == (202, 1)
    with statement("C6 C15", "the job has the ten fields of the example, and no others"):
        assert set(data) == set(JOB)
    with statement("C6", "the job repeats what the courier said"):
        said = ("eventId", "eventType", "source", "idempotencyKey", "payload")
        assert {name: data[name] for name in said} == {name: JOB[name] for name in said}
    with statement("C6", "traceId is the id of the request"):
        assert data["traceId"] == JOB["traceId"] == answer.json()["traceId"]
    with statement("C8", "occurredAt is the example's instant"):
        assert datetime.fromisoformat(data["occurredAt"]) == datetime.fromisoformat(JOB["occurredAt"])
    with statement("C9", "source is the courier whose secret signed"):
        assert data["source"] == "courier-x"
    with statement("C10", "signatureMeta has the three facts of the signature"):
        meta = data["signatureMeta"]
        assert set(meta) == set(JOB["signatureMeta"])
        assert (meta["algorithm"], type(meta["timestamp"]), type(meta["signature"])) == ("hmac-sha256", int, str)
    with statement("C11", "receivedAt is the time of the request"):
        assert began - timedelta(seconds=1) <= datetime.fromisoformat(data["receivedAt"]) <= datetime.now(UTC)
    with statement("C13", "attempt is 1"):
        assert data["attempt"] == 1
    key = JOB["idempotencyKey"]
    received = await entry(place, key)
    with statement("C32 C33", "processed_events has one record, under the idempotency key"):
        assert [each["idempotencyKey"] for each in await place.records(LEDGER)] == [key]
    with statement("C36 C42", "the record begins as received"):
        assert (received["status"], received["attemptCount"]) == ("received", 0)
    with statement("C37", "lastErrorCode and lastErrorMessage are null as long as nothing failed"):
        assert (received["lastErrorCode"], received["lastErrorMessage"]) == (None, None)
    with statement("C38", "a record that is open has no expiresAt"):
        assert received.get("expiresAt") is None

    async with place.gateway.running():
        processed = await until(place, key, "processed")
        with statement("C5", "the worker takes the job out of the queue"):
            await eventually(lambda: _is_empty(place, MAIN))
        with statement("C32 C34 C51", "the same event again is a duplicate, and changes nothing"):
            before = await place.records(SHIPMENTS)
            again = await post(place, JOB)
            assert (again.status_code, again.json()["duplicate"]) == (202, True)
            assert await place.records(SHIPMENTS) == before
        with statement("C32 C34", "the same key with other content is refused"):
            other = JOB | {"payload": JOB["payload"] | {"status": "delivered"}}
            assert (await post(place, other)).status_code == 409
        with statement("C52", "an older event does not change the shipment, and its entry is flagged"):
            late = JOB | {"eventId": "evt_122", "idempotencyKey": "courier-x:evt_122"}
            late |= {"occurredAt": "2026-02-26T11:59:59Z", "payload": JOB["payload"] | {"status": "picked_up"}}
            await post(place, late)
            await until(place, late["idempotencyKey"], "processed")
            assert await place.records(SHIPMENTS) == before
            assert (await place.gateway.system.store.entry("courier", late["idempotencyKey"])).note == "ignored_stale"

    with statement("C35", "the record has the example's idempotencyKey, eventId, eventType and one attempt"):
        assert {name: processed[name] for name in ("idempotencyKey", "eventId", "eventType", "attemptCount")} == {
            "idempotencyKey": key,
            "eventId": "evt_123",
            "eventType": "shipment.status.updated",
            "attemptCount": 1,
        }
    with statement("C38", "a record has firstSeenAt and updatedAt, and expiresAt when it is final"):
        assert instant(processed["firstSeenAt"]) <= instant(processed["updatedAt"]) < instant(processed["expiresAt"])
    with statement("C42 C43", "received -> processing -> processed, and nothing else"):
        assert await place.transitions(key) == [
            (None, "received"),
            ("received", "processing"),
            ("processing", "processed"),
        ]
    (shipment,) = await place.records(SHIPMENTS)
    with statement("C47", "the shipment is the example's, with every field"):
        assert {name: shipment[name] for name in ("shipmentId", "orderId", "currentState", "metadata")} == {
            "shipmentId": "shp_456",
            "orderId": "ord_789",
            "currentState": "out_for_delivery",
            "metadata": {},
        }
        assert shipment["lastEventType"] == "shipment.status.updated"
        assert instant(shipment["lastEventAt"]) == datetime.fromisoformat(JOB["occurredAt"])
    with statement("C48", "the shipment has createdAt and updatedAt"):
        assert began - timedelta(seconds=5) < instant(shipment["createdAt"]) <= instant(shipment["updatedAt"])
    with statement("C53", "lastEventId is the event's id"):
        assert shipment["lastEventId"] == "evt_123"


async def _is_empty(place: Place, queue: str) -> bool:
    return await place.waiting(queue) == []


async def test_what_the_api_refuses(open_place, statement):
    place = await open_place(**OURS)
    with statement("C16", "an event that another secret signed is refused"):
        assert (await post(place, an_event("forged"), secret="another secret 0123456789")).status_code == 401
    with statement("C17", "a signature that is an hour old is refused"):
        assert (await post(place, an_event("old"), age=timedelta(hours=1))).status_code == 401
    with statement("C17", "a signature that is an hour ahead is refused"):
        assert (await post(place, an_event("ahead"), age=timedelta(hours=-1))).status_code == 401
    for name in ("eventId", "eventType", "occurredAt", "source", "payload"):
        with statement("C15", f"an event without {name} is refused"):
            without = {field: value for field, value in an_event("bare").items() if field != name}
            assert 400 <= (await post(place, without)).status_code < 500
    for name in ("shipmentId", "orderId", "status"):
        with statement("C12", f"a payload without {name} is refused"):
            facts = {field: value for field, value in JOB["payload"].items() if field != name}
            assert (await post(place, an_event("bare", payload=facts))).status_code == 400
    assert await place.records(LEDGER) == []
    assert await place.waiting(MAIN) == []


# --- straight into the queue ------------------------------------------------------------------------------------------


async def test_an_external_producer_adds_the_example_to_the_queue(open_place, statement, deployment):
    place = await open_place(**LONG_MEMORY)
    bare = {name: value for name, value in an_event("bare").items() if name in REQUIRED}
    async with place.gateway.running():
        job_id = await place.add(MAIN, "courier-event", JOB)
        processed = await until(place, JOB["idempotencyKey"], "processed")
        with statement("C3 C5 C6", "the example, added to the queue by its producer, is processed"):
            assert (processed["eventId"], processed["attemptCount"]) == ("evt_123", 1)
            assert [each["lastEventId"] for each in await place.records(SHIPMENTS)] == ["evt_123"]
        if deployment == CLUSTER:
            with statement("C3", "BullMQ in Node sees the job completed"):
                await eventually(lambda: _completed(place, job_id))
        with statement("C34 C51", "the same job again changes nothing"):
            before = await place.records(SHIPMENTS)
            await place.add(MAIN, "courier-event", JOB)
            await eventually(lambda: _is_empty(place, MAIN))
            assert (await entry(place, JOB["idempotencyKey"]))["attemptCount"] == 1
            assert await place.records(SHIPMENTS) == before
        with statement("C7", "a job with the five required fields and no others is processed"):
            await place.add(MAIN, "courier-event", bare)
            assert (await until(place, bare["idempotencyKey"], "processed"))["attemptCount"] == 1
        for count, name in enumerate(REQUIRED, start=1):
            broken = {field: value for field, value in an_event(f"no-{name}").items() if field != name}
            with statement("C7 C21 C26", f"a job without {name} is a dead letter after one attempt"):
                await place.add(MAIN, "courier-event", broken)
                await eventually(lambda count=count: _holds(place, DEAD, count))
                letters = [each["data"] for each in await place.waiting(DEAD)]
                assert [each["attemptCount"] for each in letters] == [1] * count
    with statement("C54 C55", "the dead letter of a job that breaks the contract has every field too"):
        assert {frozenset(each) for each in letters} == {frozenset(DEAD_LETTER)}
        assert all(each["terminalReasonCode"] and each["deadLetteredAt"] for each in letters)


async def _completed(place: Place, job_id: str) -> bool:
    return await place.queue(MAIN).state(job_id) == "completed"


async def _holds(place: Place, queue: str, count: int) -> bool:
    return len(await place.waiting(queue)) == count


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"


async def test_the_example_that_times_out_five_times_is_the_example_of_a_dead_letter(  # noqa: PLR0915 - one whole job
    open_place, statement, silent, monkeypatch, deployment
):
    hurry = {"courier_downstream_timeout_ms": 50, "retry_backoff_base_ms": 5}
    place = await open_place(**LONG_MEMORY, **hurry, **forwarding(silent))
    key = JOB["idempotencyKey"]
    async with place.gateway.running():
        job_id = await place.add(MAIN, "courier-event", JOB)
        dead = await until(place, key, "dead_lettered")
        (job,) = await eventually(lambda: place.waiting(DEAD))
    letter = job["data"]
    with statement("C2 C54", "courier-events-dlq has one job with exactly the example's fields"):
        assert set(letter) == set(DEAD_LETTER)
    with statement("C54 C56", "it is the example, but for the time and for the attempts that the example leaves out"):
        other = {"deadLetteredAt", "attemptHistory"}
        assert {name: value for name, value in letter.items() if name not in other} == {
            name: value for name, value in DEAD_LETTER.items() if name not in other
        }
    with statement("C57", "the first attempt is the example's"):
        assert letter["attemptHistory"][0] == DEAD_LETTER["attemptHistory"][0]
    with statement("C57 C59", "every attempt is listed, and attemptCount is their number and the highest"):
        numbers = [each["attempt"] for each in letter["attemptHistory"]]
        assert letter["attemptCount"] == len(numbers) == max(numbers) == 5
        assert {frozenset(each) for each in letter["attemptHistory"]} == {
            frozenset({"attempt", "outcome", "errorCode"})
        }
    with statement("C58", "payloadSnapshot is the event's payload"):
        assert letter["payloadSnapshot"] == JOB["payload"]
    with statement("C18 C25 C27", "timeouts are retried until five attempts are made"):
        assert (dead["attemptCount"], dead["lastErrorCode"]) == (5, "TIMEOUT")
    with statement("C37", "the record says what went wrong last"):
        assert isinstance(dead["lastErrorMessage"], str)
    if deployment == CLUSTER:
        with statement("C14", "attempt in the queue's job is 5 in the end"):
            assert (await place.queue(MAIN).job(job_id))["data"]["attempt"] == 5
    steps = await place.transitions(key)
    with statement("C44 C45", "processing -> failed -> processing, four times"):
        between = [step for step in steps if step in {("processing", "failed"), ("failed", "processing")}]
        assert between[:8] == [("processing", "failed"), ("failed", "processing")] * 4
    with statement("C46", "the last failure ends as dead_lettered"):
        assert steps[-1][1] == "dead_lettered"
        if deployment == EMBEDDED:  # MongoDB shows both steps as one write
            assert steps[-2:] == [("processing", "failed"), ("failed", "dead_lettered")]
    with statement("C42 C43 C44 C45 C46", "every step is one of the table's"):
        legal = {(start.value, end.value) for start, end in EDGES} | {("processing", "dead_lettered")}
        assert {step for step in steps if step[0] is not None} <= legal

    (stored,) = await place.records(LETTERS)
    with statement("C60 C61", "one failure is one record in dead_letter_events and one job in courier-events-dlq"):
        assert (len(await place.records(LETTERS)), len(await place.waiting(DEAD))) == (1, 1)
    with statement("C62 C66", "the record has the example's names, reason and count"):
        named = ("eventId", "idempotencyKey", "terminalReasonCode", "terminalReasonMessage", "attemptCount")
        assert {name: stored[name] for name in named} == {name: DEAD_LETTER[name] for name in named}
        assert stored["eventType"] == "shipment.status.updated"
    with statement("C63", "the record has the history and the payload"):
        assert [each["attempt"] for each in stored["attemptHistory"]] == [1, 2, 3, 4, 5]
        assert _snapshot(stored)["payload"] == JOB["payload"]
    with statement("C64", "a new dead letter is pending"):
        assert stored["reviewStatus"] == "pending"
    with statement("C65 C68", "a dead letter is kept for 90 days"):
        assert instant(stored["expiresAt"]) - instant(stored["createdAt"]) == 90 * DAY

    with statement("C69", "a letter that nobody reviewed is not replayed"):
        assert await place.command(monkeypatch, "dlq", "replay", "--limit", "5", "--yes") == 1
        assert await _review_status(place) == "pending"
    with statement("C69", "pending -> reviewed"):
        assert await place.command(monkeypatch, "dlq", "review", "--limit", "5", "--reason", "seen", "--yes") == 0
        assert await _review_status(place) == "reviewed"
    with statement("C69 C70", "dlq replay --limit N replays: reviewed -> replayed"):
        assert await place.command(monkeypatch, "dlq", "replay", "--limit", "5", "--yes") == 0
        assert await _review_status(place) == "replayed"
        assert (await entry(place, key))["status"] == "received"
    with statement("C69", "replayed -> closed"):
        letter_id = stored["_id"] if deployment == CLUSTER else stored["id"]
        assert await place.command(monkeypatch, "dlq", "close", letter_id, "--reason", "done", "--yes") == 0
        assert await _review_status(place) == "closed"


def _snapshot(stored: dict[str, Any]) -> dict[str, Any]:
    snapshot = stored["payloadSnapshot"]
    return json.loads(snapshot) if isinstance(snapshot, str) else snapshot


async def _review_status(place: Place) -> str:
    (stored,) = await place.records(LETTERS)
    return stored["reviewStatus"]


async def test_a_failure_that_passes_and_one_that_does_not(open_place, statement, downstream):
    place = await open_place(**OURS, retry_backoff_base_ms=5, **forwarding(downstream.url))
    async with place.gateway.running():
        for name in ("flaky-1", "doomed-1"):
            assert (await post(place, an_event(name))).status_code == 202
        processed = await until(place, "courier-x:flaky-1", "processed")
        dead = await until(place, "courier-x:doomed-1", "dead_lettered")
        (job,) = await eventually(lambda: place.waiting(DEAD))
    with statement("C25 C44 C45", "received -> processing -> failed -> processing -> processed"):
        assert await place.transitions("courier-x:flaky-1") == [
            (None, "received"),
            ("received", "processing"),
            ("processing", "failed"),
            ("failed", "processing"),
            ("processing", "processed"),
        ]
    with statement("C14 C35", "a retry is one more attempt"):
        assert processed["attemptCount"] == downstream.deliveries["courier-x:flaky-1"] == 2
    with statement("C41", "a processed record is kept for 30 days"):
        assert instant(processed["expiresAt"]) - instant(processed["updatedAt"]) == 30 * DAY
    with statement("C23 C26", "a refusal of the downstream is not retried"):
        assert dead["attemptCount"] == downstream.deliveries["courier-x:doomed-1"] == 1
    with statement("C26 C60", "the refused event is stored and published at once"):
        (stored,) = await place.records(LETTERS)
        assert stored["eventId"] == job["data"]["eventId"] == "doomed-1"
        assert stored["terminalReasonCode"] == job["data"]["terminalReasonCode"] == "HTTP_422"
    with statement("C53", "an event that failed for good is no shipment's last event"):
        assert [each["lastEventId"] for each in await place.records(SHIPMENTS)] == ["flaky-1"]


# --- indexes ----------------------------------------------------------------------------------------------------------


async def test_the_indexes_of_the_data_model(open_place, statement):
    place = await open_place()
    for cited, collection, fields, unique in (
        ("C39", LEDGER, ("idempotencyKey",), True),
        ("C40", LEDGER, ("status", "updatedAt"), False),
        ("C41", LEDGER, ("expiresAt",), False),
        ("C49", SHIPMENTS, ("shipmentId",), True),
        ("C50", SHIPMENTS, ("orderId",), False),
        ("C50", SHIPMENTS, ("currentState", "updatedAt"), False),
        ("C67", LETTERS, ("reviewStatus", "createdAt"), False),
        ("C67", LETTERS, ("createdAt",), False),
        ("C68", LETTERS, ("expiresAt",), False),
    ):
        with statement(cited, f"{collection} has an index on {', '.join(fields)}"):
            assert (await place.indexes(collection)).get(place.indexed(collection, *fields)) is unique


# --- defaults and classification --------------------------------------------------------------------------------------


class Chance:
    """Gives this part of every range."""

    def __init__(self, part: float) -> None:
        self.part = part

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self.part


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("retry_max_attempts", 5, marks=pytest.mark.rule("C27")),
        pytest.param("retry_backoff_base_ms", 1000, marks=pytest.mark.rule("C28")),
        pytest.param("retry_backoff_multiplier", 2, marks=pytest.mark.rule("C29")),
        pytest.param("retry_jitter_percent", 20, marks=pytest.mark.rule("C30")),
        pytest.param("processed_events_ttl_days", 30, marks=pytest.mark.rule("C41")),
        pytest.param("dlq_ttl_days", 90, marks=pytest.mark.rule("C68")),
    ],
)
def test_the_default_of_a_setting(name, value):
    assert getattr(Settings(), name) == value


@pytest.mark.rule("C31")
@pytest.mark.parametrize(("attempt", "least", "most"), [(1, 1, 1.2), (2, 2, 2.4), (3, 4, 4.8), (4, 8, 9.6)])
def test_the_delay_after_an_attempt_in_seconds(attempt, least, most):
    policy = courier_of(Settings()).retry

    assert policy.delay(attempt, Chance(0)) == timedelta(seconds=least)
    assert policy.delay(attempt, Chance(1)) == timedelta(seconds=most)


@pytest.mark.rule("C31")
def test_the_settings_change_the_delay():
    changed = Settings(retry_backoff_base_ms=10, retry_backoff_multiplier=3, retry_jitter_percent=50)

    assert courier_of(changed).retry.delay(3, Chance(1)) == timedelta(milliseconds=10 * 3**2 * 1.5)


TRANSIENT = {
    "ETIMEDOUT": ("C18", OSError(errno.ETIMEDOUT, "timed out")),
    "a timeout": ("C18", TimeoutError()),
    "a client's timeout": ("C18", httpx.ReadTimeout("slow")),
    "ECONNREFUSED": ("C19", ConnectionRefusedError(errno.ECONNREFUSED, "refused")),
    "the network": ("C19", OSError(errno.ENETUNREACH, "unreachable")),
    "a database that is away": ("C19", TransientError("DB_AWAY", "no primary")),
    "throttling": ("C20", ThrottledError("THROTTLED", "slow down", retry_after=timedelta(seconds=1))),
    "something unknown": ("C24", RuntimeError("surprise")),
    "something unknown of the language": ("C24", ZeroDivisionError()),
}
PERMANENT = {
    "a validation error": ("C21", ValueError("validation failed: orderId is missing")),
    "a malformed payload": ("C21", ValueError("Malformed business payload")),
    "an invalid payload": ("C21", RuntimeError("invalid payload")),
    "a violated business rule": ("C22", RuntimeError("irrecoverable domain validation failure")),
    "a refusal of a dependency": ("C23", PermanentError("REJECTED", "no such order")),
}


@pytest.mark.parametrize("what", TRANSIENT)
def test_an_error_is_transient(statement, what):
    cited, error = TRANSIENT[what]
    with statement(cited, f"{what} is transient"):
        assert classify(error, courier_of(Settings())).retry


@pytest.mark.parametrize("what", PERMANENT)
def test_an_error_is_permanent(statement, what):
    cited, error = PERMANENT[what]
    with statement(cited, f"{what} is permanent"):
        assert not classify(error, courier_of(Settings())).retry
