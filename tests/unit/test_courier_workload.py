"""The courier workload: identity, effects and dead letters."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.contracts.dead_letters import DeadLetter, ReviewStatus
from holdfast.contracts.effects import Upsert
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.jobs import Job
from holdfast.contracts.ledger import Attempt, AttemptOutcome
from holdfast.contracts.outcomes import Done, Reject
from holdfast.contracts.retry import ExponentialBackoff
from holdfast.contracts.workload import Failure, Reason
from holdfast.features.courier.contract import CourierDeadLetter, CourierEvent
from holdfast.features.courier.feature import workload_of
from holdfast.features.courier.settings import CourierSettings
from holdfast.features.courier.workload import Courier, CourierOptions
from tests.support.courier_documents import event_document, payload, without

RECEIVED = datetime(2026, 2, 26, 12, 0, 1, tzinfo=UTC)
FORWARDING = CourierOptions(downstream_url="https://downstream.example/events", downstream_secret="shhh")


def event(**changes) -> CourierEvent:
    return CourierEvent.model_validate(event_document(**changes))


def job(data: CourierEvent, *, received_at: datetime = RECEIVED, generation: int = 1) -> Job[CourierEvent]:
    return Job(data.idempotencyKey, "job-1", data, attempt=1, generation=generation, received_at=received_at)


def letter(body: str, **changes) -> DeadLetter:
    facts = {
        "id": "dl_1",
        "workload": "courier",
        "key": "courier-x:evt_123",
        "job_id": "courier-x.evt_123",
        "generation": 1,
        "reason_code": "DOWNSTREAM_TIMEOUT_EXHAUSTED",
        "reason_message": "Retries exhausted after transient timeouts",
        "attempts": tuple(
            Attempt(number, outcome, "worker-1", RECEIVED, RECEIVED, code, "The downstream did not answer.")
            for number, outcome, code in [(1, AttemptOutcome.FAILED, "TIMEOUT"), (2, AttemptOutcome.LOST, None)]
        ),
        "attempt_count": 2,
        "body": body,
        "labels": {"eventId": "evt_123", "traceId": "req_a1b2c3"},
        "review_status": ReviewStatus.PENDING,
        "decisions": (),
        "created_at": datetime(2026, 2, 26, 12, 5, tzinfo=UTC),
        "updated_at": datetime(2026, 2, 26, 12, 5, tzinfo=UTC),
        "expires_at": datetime(2026, 5, 27, 12, 5, tzinfo=UTC),
    }
    return DeadLetter(**(facts | changes))


# --- names and defaults of the specification ------------------------------------------------------------------------


def test_queues_and_collections_have_the_names_of_the_specification():
    courier = Courier()

    assert (courier.queue, courier.dead_letter_queue) == ("courier-events-main", "courier-events-dlq")
    assert (courier.ledger_name, courier.letters_name) == ("processed_events", "dead_letter_events")


def test_shipments_have_the_key_and_indexes_of_the_specification():
    (shipments,) = Courier().collections

    assert (shipments.name, shipments.key) == ("active_shipments", "shipmentId")
    assert set(shipments.indexes) == {("orderId",), ("currentState", "updatedAt")}


def test_retries_and_retention_have_the_defaults_of_the_specification():
    courier = Courier()

    assert courier.retry == ExponentialBackoff(5, timedelta(milliseconds=1000), 2.0, 20.0)
    assert (courier.retention, courier.letter_retention) == (timedelta(days=30), timedelta(days=90))


def test_options_reach_the_workload():
    policy = ExponentialBackoff(max_attempts=2)
    courier = Courier(CourierOptions(policy, timedelta(seconds=7), timedelta(days=3), timedelta(days=4)))

    assert (courier.retry, courier.timeout) == (policy, timedelta(seconds=7))
    assert (courier.retention, courier.letter_retention) == (timedelta(days=3), timedelta(days=4))


def test_an_attempt_has_time_for_everything_beside_the_slowest_downstream():
    for milliseconds, seconds in ((5_000, 30), (600_000, 625)):
        courier = workload_of(CourierSettings(courier_downstream_timeout_ms=milliseconds))
        assert courier.timeout == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "options",
    [
        {"retention": timedelta(hours=23)},
        {"letter_retention": timedelta(0)},
        {"downstream_url": "https://d.example", "downstream_secret": "s", "downstream_timeout": timedelta(seconds=30)},
        {"downstream_url": "https://d.example", "downstream_secret": "s", "downstream_timeout": timedelta(0)},
        {"downstream_url": "https://d.example"},
        {"downstream_url": "https://d.example", "downstream_secret": ""},
        {"downstream_url": "https://d.example", "downstream_secret": "whsec_%%%"},
        {"downstream_url": "ftp://d.example", "downstream_secret": "s"},
        {"downstream_url": "https://", "downstream_secret": "s"},
        {"downstream_url": "", "downstream_secret": "s"},
        {"downstream_url": "http://[::1", "downstream_secret": "s"},
    ],
)
def test_unusable_options_are_refused(options):
    with pytest.raises(ConfigurationError):
        Courier(CourierOptions(**options))


def test_options_do_not_show_their_secrets():
    shown = repr(CourierOptions(downstream_url="https://user:hunter2@d.example", downstream_secret="hunter3"))

    assert "hunter" not in shown


# --- identity -----------------------------------------------------------------------------------------------


def test_the_idempotency_key_is_the_identity():
    assert Courier().key(event(idempotencyKey="mine")) == "mine"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text("añ9\u2028😀", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(extra=JSON, other=JSON)
def test_a_resend_has_the_same_fingerprint_and_other_content_another(extra, other):
    def shuffled(value):
        if isinstance(value, dict):
            return {key: shuffled(value[key]) for key in reversed(value)}
        return [shuffled(each) for each in value] if isinstance(value, list) else value

    first = event(payload=payload(extra=extra))
    resent = event(
        payload=shuffled(payload(extra=extra)),
        traceId="req_other",
        receivedAt="2026-02-26T13:00:00Z",
        occurredAt="2026-02-26T09:00:00-03:00",
        signatureMeta={"algorithm": "hmac-sha256", "timestamp": 1, "signature": "other"},
        attempt=3,
    )
    fingerprint = Courier().fingerprint

    assert fingerprint(first) == fingerprint(resent)
    assert fingerprint(first) == fingerprint(CourierEvent.model_validate_json(first.model_dump_json()))
    changed = fingerprint(event(payload=payload(extra=other)))
    # JSON text, because 1 and True are equal in Python and not in JSON.
    assert (changed == fingerprint(first)) == (json.dumps(other, sort_keys=True) == json.dumps(extra, sort_keys=True))


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "courier-y"},
        {"eventId": "evt_124"},
        {"eventType": "shipment.created"},
        {"occurredAt": "2026-02-26T12:00:00.001Z"},
        {"payload": payload(shipmentId="shp_457")},
        {"payload": payload(orderId="ord_790")},
        {"payload": payload(status="delivered")},
        {"payload": payload(status="ord_789", orderId="out_for_delivery")},
    ],
)
def test_every_part_of_the_content_counts_in_the_fingerprint(changes):
    assert Courier().fingerprint(event(**changes)) != Courier().fingerprint(event())


def test_labels_have_the_fields_that_an_event_is_found_and_shown_by():
    assert Courier().labels(event()) == {
        "eventId": "evt_123",
        "eventType": "shipment.status.updated",
        "source": "courier-x",
        "traceId": "req_a1b2c3",
        "shipmentId": "shp_456",
        "orderId": "ord_789",
        "status": "out_for_delivery",
        "occurredAt": "2026-02-26T12:00:00.000Z",
        "receivedAt": "2026-02-26T12:00:01.000Z",
    }
    assert {*Courier().indexed_labels, *Courier().label_columns} <= set(Courier().labels(event()))


def test_a_job_without_a_receipt_has_no_label_for_it():
    adopted = CourierEvent.model_validate(without(event_document(), "receivedAt"))

    assert "receivedAt" not in Courier().labels(adopted)


# --- the work -----------------------------------------------------------------------------------------------


async def test_an_event_is_applied_to_its_shipment():
    data = event(payload=payload(weight=2.5, address={"city": "Recife"}), occurredAt="2026-02-26T09:00:00-03:00")

    outcome = await Courier().handle(job(data), context=None)

    assert outcome == Done(
        effects=[
            Upsert(
                "active_shipments",
                "shp_456",
                set={
                    "orderId": "ord_789",
                    "currentState": "out_for_delivery",
                    "lastEventId": "evt_123",
                    "lastEventType": "shipment.status.updated",
                    "lastEventAt": "2026-02-26T12:00:00.000Z",
                    "metadata": {"weight": 2.5, "address": {"city": "Recife"}},
                },
                only_if_newer="lastEventAt",
            ),
        ],
        result={"shipmentId": "shp_456", "status": "out_for_delivery"},
    )


@pytest.mark.parametrize(
    ("age", "generation", "code"),
    [
        (timedelta(days=30) - timedelta(seconds=1), 1, None),
        (timedelta(days=30) + timedelta(seconds=1), 1, "EVENT_TOO_OLD"),
        (timedelta(days=60), 2, None),
        (-timedelta(minutes=64), 1, None),
        (-timedelta(minutes=66), 1, "EVENT_IN_THE_FUTURE"),
        (-timedelta(minutes=66), 2, "EVENT_IN_THE_FUTURE"),
    ],
)
async def test_an_adopted_job_must_be_timely_too(age, generation, code):
    data = event()

    outcome = await Courier().handle(job(data, received_at=data.occurredAt + age, generation=generation), context=None)

    assert (outcome.code if isinstance(outcome, Reject) else None) == code


# --- dead letters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("TIMEOUT", Reason("DOWNSTREAM_TIMEOUT_EXHAUSTED", "Retries exhausted after transient timeouts")),
        ("HTTP_503", Reason("DOWNSTREAM_HTTP_503_EXHAUSTED", "Retries exhausted after transient HTTP 503 answers")),
        ("THROTTLED", Reason("DOWNSTREAM_THROTTLED_EXHAUSTED", "Retries exhausted after transient throttling")),
        (
            "ECONNREFUSED",
            Reason("DOWNSTREAM_ECONNREFUSED_EXHAUSTED", "Retries exhausted after transient connection refusals"),
        ),
        ("UNCLASSIFIED", Reason("UNCLASSIFIED_EXHAUSTED", "Retries exhausted after 5 attempts: why")),
    ],
)
def test_exhausted_retries_name_the_downstream(code, reason):
    assert Courier(FORWARDING).exhausted(Failure(code, "why", retry=True), 5) == reason


def test_without_a_downstream_the_reason_does_not_mention_one():
    assert Courier().exhausted(Failure("TIMEOUT", "why", retry=True), 5).code == "TIMEOUT_EXHAUSTED"


def test_a_dead_letter_is_published_as_in_the_specification():
    published = Courier().dead_letter_payload(letter(event(payload=payload(weight=1)).model_dump_json()))

    assert published == {
        "eventId": "evt_123",
        "idempotencyKey": "courier-x:evt_123",
        "traceId": "req_a1b2c3",
        "attemptCount": 2,
        "terminalReasonCode": "DOWNSTREAM_TIMEOUT_EXHAUSTED",
        "terminalReasonMessage": "Retries exhausted after transient timeouts",
        "attemptHistory": [
            {"attempt": 1, "outcome": "failed", "errorCode": "TIMEOUT"},
            {"attempt": 2, "outcome": "lost", "errorCode": "LOST"},
        ],
        "payloadSnapshot": payload(weight=1),
        "deadLetteredAt": "2026-02-26T12:05:00.000Z",
    }
    CourierDeadLetter.model_validate(published)


@pytest.mark.parametrize(
    ("body", "event_id", "trace_id", "snapshot"),
    [
        ('{"eventId": "e", "traceId": "t", "payload": {"a": 1}}', "e", "t", {"a": 1}),
        ('{"eventId": 7, "traceId": "", "payload": [1]}', "key", "dl_1", {"eventId": 7, "traceId": "", "payload": [1]}),
        ("[1, 2]", "key", "dl_1", {"unreadable": "[1, 2]"}),
        ('"password=hunter2"', "key", "dl_1", {"unreadable": '"password=***"'}),
        ("not json, password=hunter2", "key", "dl_1", {"unreadable": "not json, password=***"}),
        (
            '{"eventId": "e", "payload": {"a": NaN}}',
            "e",
            "dl_1",
            {"unreadable": '{"eventId": "e", "payload": {"a": NaN}}'},
        ),
        ('{"eventId": "\\ud800"}', "key", "dl_1", {"unreadable": '{"eventId": "\\ud800"}'}),
        ("", "key", "dl_1", {"unreadable": ""}),
    ],
)
def test_a_job_that_broke_its_contract_gets_a_valid_dead_letter(body, event_id, trace_id, snapshot):
    broken = letter(body, key="key", labels={}, attempts=(), attempt_count=0)

    published = Courier().dead_letter_payload(broken)

    assert (published["eventId"], published["traceId"]) == (event_id, trace_id)
    assert published["payloadSnapshot"] == snapshot
    CourierDeadLetter.model_validate_json(json.dumps(published, allow_nan=False).encode())


def test_a_body_that_is_nested_too_deep_gets_a_dead_letter():
    published = Courier().dead_letter_payload(letter("[" * 100_000, labels={}))

    assert published["payloadSnapshot"]["unreadable"].startswith("[[[")


async def test_a_batch_has_the_same_outcomes_as_its_events_one_by_one():
    courier = Courier()
    timely, late = job(event()), job(event(occurredAt="2020-01-01T00:00:00Z"))

    alone = [await courier.handle(each, None) for each in (timely, late)]

    assert list(await courier.handle_batch([timely, late], None)) == alone
    assert [type(each) for each in alone] == [Done, Reject]


def test_events_for_a_downstream_are_not_handled_in_batches():
    assert Courier().batch_size is not None
    forwarding = CourierOptions(downstream_url="http://127.0.0.1:9/", downstream_secret="a secret of sixteen")
    assert Courier(forwarding).batch_size is None


class Shipments(dict):
    """The records that a handler reads."""

    async def get(self, collection, key):
        assert collection == "active_shipments"
        return dict.get(self, key)


class Forwarded(list):
    async def forward(self, data):
        self.append(data)
        return Done()


@pytest.mark.parametrize(("owner", "forwarded"), [(None, 1), ("courier-x", 1), ("courier-y", 0)])
async def test_an_event_for_the_shipment_of_another_source_is_not_forwarded(owner, forwarded):
    courier = Courier(CourierOptions(owned=True))
    courier._downstream = Forwarded()
    data = event()
    assert data.source == "courier-x"
    outcome = await courier.handle(job(data), Shipments({data.payload.shipmentId: {"source": owner}}))
    assert len(courier._downstream) == forwarded
    if forwarded:
        (effect,) = outcome.effects
        assert (effect.set["source"], effect.only_if_same) == ("courier-x", {"source": "SHIPMENT_OF_ANOTHER_SOURCE"})
    else:
        assert (type(outcome), outcome.code) == (Reject, "SHIPMENT_OF_ANOTHER_SOURCE")


async def test_without_the_setting_a_shipment_has_no_owner():
    (effect,) = (await Courier().handle(job(event()), Shipments())).effects
    assert "source" not in effect.set
    assert not effect.only_if_same
