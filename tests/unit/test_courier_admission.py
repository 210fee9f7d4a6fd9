"""The admission of courier events: a verified body becomes a job, or a list of problems without values."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.contracts.admission import InvalidContent
from holdfast.contracts.entries import new_entry
from holdfast.contracts.times import isoformat
from holdfast.features.courier.contract import CourierEvent, CourierIntake
from holdfast.features.courier.intake import CourierAdmission
from holdfast.features.courier.signatures import SignatureMeta
from holdfast.features.courier.workload import Courier, CourierOptions
from tests.support.courier_documents import event_document, intake_document, payload, without

NOW = datetime(2026, 2, 26, 12, 0, 1, 234567, tzinfo=UTC)
META = SignatureMeta(algorithm="hmac-sha256", timestamp=1772107200, signature="hex-or-base64")
CANARY = "sk_live_canary"
LABELS = {"requestId": "req_1", "traceId": "of the request"}


def admit(body, *, meta=META, trace_id="req_a1b2c3", received_at=NOW, retention=timedelta(days=30)) -> CourierEvent:
    workload = Courier(CourierOptions(retention=retention))
    entry = CourierAdmission(workload).admit(body, meta=meta, trace_id=trace_id, received_at=received_at, labels=LABELS)
    event = workload.read(entry.body)
    # The entry is the one that the general way makes of this event, byte for byte.
    assert entry == new_entry(workload, event, labels=LABELS)
    assert list(entry.labels) == list(new_entry(workload, event, labels=LABELS).labels)
    return event


def problems(body, **circumstances) -> dict[str, str]:
    with pytest.raises(InvalidContent) as refusal:
        admit(body, **circumstances)
    return {each.field: each.problem for each in refusal.value.problems}


def test_an_admitted_body_is_the_job_of_the_specification():
    written = json.loads(admit(intake_document()).model_dump_json())

    assert written == event_document(occurredAt="2026-02-26T12:00:00.000Z", receivedAt="2026-02-26T12:00:01.234Z")


def test_a_body_without_a_key_gets_one_of_source_and_event():
    assert admit(intake_document()).idempotencyKey == "courier-x:evt_123"
    assert admit(intake_document(idempotencyKey="mine")).idempotencyKey == "mine"


def test_a_key_that_would_be_too_long_must_be_given():
    long = intake_document(source="s" * 100, eventId="e" * 100)

    assert set(problems(long)) == {"body"}
    assert admit(long | {"idempotencyKey": "short"}).idempotencyKey == "short"
    assert len(admit(long | {"eventId": "e" * 99}).idempotencyKey) == 200


@pytest.mark.parametrize(
    "sent",
    [
        event_document(traceId="req_of_the_sender", receivedAt="2020-01-01T00:00:00Z", attempt=7),
        intake_document(traceId="", signatureMeta="none", receivedAt=CANARY, attempt=-1),
        intake_document(traceId=None, signatureMeta=None, receivedAt=None, attempt=None),
        intake_document(traceId="\ud800", signatureMeta=[{"deep": CANARY}]),
    ],
)
def test_the_fields_of_the_transport_may_be_sent_and_our_values_win(sent):
    assert admit(sent) == admit(intake_document())


def test_an_admitted_event_is_what_the_worker_will_read():
    event = admit(intake_document(idempotencyKey="mine", payload=payload(weight=1.5, note="São João", tags=[1, None])))

    assert CourierEvent.model_validate_json(event.model_dump_json()) == event
    assert CourierEvent.model_validate(event.model_dump()) == event


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ([], {"body": "must be a JSON object"}),
        (None, {"body": "must be a JSON object"}),
        (CANARY, {"body": "must be a JSON object"}),
        (without(intake_document(), "eventId"), {"eventId": "is required"}),
        (intake_document(payload=without(payload(), "shipmentId")), {"payload.shipmentId": "is required"}),
        (intake_document(payload=CANARY), {"payload": "must be an object"}),
        (intake_document(payload=payload(orderId=7)), {"payload.orderId": "must be a string"}),
        (intake_document(payload=payload(status="")), {"payload.status": "must not be empty"}),
        (
            intake_document(payload=payload(status=" \n")),
            {"payload.status": "must not be blank and must not contain control characters"},
        ),
        (
            intake_document(payload=payload(status=CANARY * 50)),
            {"payload.status": "must not be longer than 200 characters"},
        ),
        (
            intake_document(eventId=f"{CANARY} x"),
            {"eventId": "must be 1 to 200 visible ASCII characters, without spaces"},
        ),
        (
            intake_document(carrier=CANARY),
            {"carrier": "is not a field of an event; put facts of your own inside payload"},
        ),
        (
            intake_document(**{f"Bearer {CANARY}": 1}),
            {"*": "is not a field of an event; put facts of your own inside payload"},
        ),
        (
            intake_document(occurredAt=CANARY),
            {"occurredAt": "must be an ISO-8601 instant with a time zone, such as 2026-02-26T12:00:00Z"},
        ),
        (
            intake_document(source="s" * 120, eventId="e" * 120),
            {"body": "give an idempotencyKey: <source>:<eventId> is longer than 200 characters"},
        ),
        (
            intake_document(payload=payload(items=[{"weight": float("nan")}])),
            {"payload.items.0.weight": "must be a finite number"},
        ),
        (
            intake_document(payload=payload(**{f"key {CANARY}": {"n": 2**64}})),
            {"payload.*.n": "must fit into 64 bits; send it as a string"},
        ),
        (
            intake_document(payload=payload(note="\ud800")),
            {"payload.note": "must not contain half of a character (a lone surrogate)"},
        ),
        (
            intake_document(eventId="\ud800"),
            {"eventId": "must not contain half of a character (a lone surrogate)"},
        ),
    ],
)
def test_refusals_name_the_field_and_the_rule(body, expected):
    found = problems(body)

    assert found == expected
    assert CANARY not in json.dumps(found)


def test_all_problems_are_reported_at_once():
    assert set(problems({"eventId": "", "payload": {"shipmentId": ""}})) == {
        *("eventId", "eventType", "occurredAt", "source"),
        *("payload.shipmentId", "payload.orderId", "payload.status"),
    }


def test_the_list_of_problems_is_short():
    assert len(problems(intake_document(**{f"extra{number}": 1 for number in range(500)}))) == 20


def test_no_error_contains_the_body():
    with pytest.raises(InvalidContent) as refusal:
        admit(intake_document(carrier=CANARY, payload=payload(orderId=[CANARY])))

    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__
    assert CANARY not in str(refusal.value)


# --- I12: neither too old nor from the future ---------------------------------------------------------------


@pytest.mark.parametrize("retention", [timedelta(days=30), timedelta(days=2)])
def test_an_event_whose_first_entry_may_be_deleted_is_refused(retention):
    oldest = NOW - retention + timedelta(hours=1)

    admit(intake_document(occurredAt=isoformat(oldest + timedelta(seconds=1))), retention=retention)
    found = problems(intake_document(occurredAt=isoformat(oldest - timedelta(seconds=1))), retention=retention)

    assert found == {
        "occurredAt": f"must not be older than {retention.days} days: whether it is a duplicate is no longer known",
    }


def test_an_event_from_the_future_is_refused():
    latest = NOW + timedelta(minutes=5)

    admit(intake_document(occurredAt=isoformat(latest - timedelta(seconds=1))))
    found = problems(intake_document(occurredAt=isoformat(latest + timedelta(seconds=1))))

    assert found == {"occurredAt": "must not be in the future"}


# --- what comes with the request ----------------------------------------------------------------------------


@pytest.mark.parametrize("trace_id", ["", "a b", "x" * 201, "line\n", "é"])
def test_a_trace_id_that_the_queue_would_refuse_is_refused_here(trace_id):
    assert set(problems(intake_document(), trace_id=trace_id)) == {"traceId"}


@pytest.mark.parametrize("signature", ["", "é", "x" * 4001])
def test_a_signature_that_the_queue_would_refuse_is_refused_here(signature):
    assert set(problems(intake_document(), meta=SignatureMeta("hmac-sha256", 1, signature))) == {"signature"}


# --- OpenAPI ------------------------------------------------------------------------------------------------


def test_the_schema_has_no_references():
    schema = CourierAdmission(Courier()).intake_schema()

    assert "$ref" not in json.dumps(schema)
    assert set(schema["required"]) == {"eventId", "eventType", "occurredAt", "source", "payload"}
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]["payload"]["required"]) == {"shipmentId", "orderId", "status"}
    assert set(schema["properties"]) == set(CourierIntake.model_fields)


def test_the_example_would_be_admitted_today():
    (example,) = CourierAdmission(Courier()).intake_schema()["examples"]

    admit(example, received_at=datetime.now(UTC))
