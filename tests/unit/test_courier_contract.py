"""The courier contracts: what they accept and refuse, and that no data is lost in JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.contracts.times import isoformat
from holdfast.features.courier.contract import (
    MAX_DEPTH,
    MAX_INTEGER,
    ActiveShipment,
    CourierDeadLetter,
    CourierEvent,
    CourierIntake,
)
from tests.support.courier_documents import event_document, intake_document, payload, without

EXAMPLE_DEAD_LETTER = {
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
    "payloadSnapshot": payload(),
    "deadLetteredAt": "2026-02-26T12:05:00Z",
}


def nested(levels: int) -> dict:
    inner: dict = {}
    for _ in range(levels - 1):
        inner = {"in": inner}
    return inner


def refused_at(model, body) -> set[str]:
    with pytest.raises(ValidationError) as refusal:
        model.model_validate(body)
    return {".".join(str(part) for part in each["loc"]) for each in refusal.value.errors()}


# --- the main queue's payload -------------------------------------------------------------------------------


def test_the_example_of_the_specification_is_a_job_and_keeps_every_field():
    written = json.loads(CourierEvent.model_validate(event_document()).model_dump_json())

    assert written == event_document(occurredAt="2026-02-26T12:00:00.000Z", receivedAt="2026-02-26T12:00:01.000Z")


@pytest.mark.parametrize(
    "name", ["eventId", "idempotencyKey", "eventType", "traceId", "payload", "occurredAt", "source"]
)
def test_a_job_needs_its_required_fields(name):
    assert refused_at(CourierEvent, without(event_document(), name)) == {name}


def test_a_producer_may_leave_out_what_only_a_request_has():
    sparse = without(event_document(), "signatureMeta", "receivedAt", "attempt")

    event = CourierEvent.model_validate(sparse)

    assert event.attempt == 1
    assert json.loads(event.model_dump_json()) == sparse | {"occurredAt": "2026-02-26T12:00:00.000Z", "attempt": 1}


@pytest.mark.parametrize("attempt", [0, -1, 1.5, "1", True])
def test_attempts_are_whole_numbers_from_one(attempt):
    assert refused_at(CourierEvent, event_document(attempt=attempt)) == {"attempt"}


def test_fields_that_a_producer_adds_are_kept():
    event = CourierEvent.model_validate(event_document(tenant={"id": 7}))

    assert json.loads(event.model_dump_json())["tenant"] == {"id": 7}


@pytest.mark.parametrize("name", ["eventId", "idempotencyKey", "source", "traceId"])
@pytest.mark.parametrize("value", ["", "x" * 201, "with space", "tab\t", "line\n", "ação", 123, None, "\ud800"])
def test_identifiers_are_visible_ascii(name, value):
    assert refused_at(CourierEvent, event_document(**{name: value})) == {name}


@pytest.mark.parametrize("name", ["eventId", "idempotencyKey", "source", "traceId"])
def test_identifiers_may_be_two_hundred_characters_long(name):
    CourierEvent.model_validate(event_document(**{name: "~" * 199 + "!"}))


@pytest.mark.parametrize("name", ["shipmentId", "orderId", "status"])
def test_the_business_identifiers_are_required(name):
    assert refused_at(CourierEvent, event_document(payload=without(payload(), name))) == {f"payload.{name}"}


@pytest.mark.parametrize("name", ["shipmentId", "orderId", "status"])
@pytest.mark.parametrize("value", ["", "  ", "a\x00", "a\x1f", "a\x7f", "a\x85", "é" * 201, 12, None, ["a"], "\ud800"])
def test_business_identifiers_are_text(name, value):
    assert refused_at(CourierEvent, event_document(payload=payload(**{name: value}))) == {f"payload.{name}"}


def test_business_identifiers_may_use_any_script():
    event = CourierEvent.model_validate(
        event_document(payload=payload(shipmentId="envio nº 7 / São Paulo", status="配達中"))
    )

    assert event.payload.shipmentId == "envio nº 7 / São Paulo"


@pytest.mark.parametrize("event_type", ["", "x" * 101, "a\n"])
def test_event_types_have_a_length(event_type):
    assert refused_at(CourierEvent, event_document(eventType=event_type)) == {"eventType"}


@pytest.mark.parametrize(
    "value",
    [
        "2026-02-26T12:00:00",  # no zone
        "2026-02-26",
        "2026-02-31T12:00:00Z",
        "2026-W09-4T12:00:00Z",
        "20260226T120000Z",
        "2026-02-26T12:00:60Z",
        "2026-02-26T12:00:00+25:00",
        "1969-12-31T23:59:59Z",
        "0001-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "1772107200",
        1772107200,
        None,
        "٢٠٢٦-02-26T12:00:00Z",
        datetime(2026, 2, 26, 12),  # noqa: DTZ001 - the point
    ],
)
def test_instants_are_iso_with_a_zone(value):
    assert refused_at(CourierEvent, event_document(occurredAt=value)) == {"occurredAt"}


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("2026-02-26T12:00:00Z", "2026-02-26T12:00:00.000Z"),
        ("2026-02-26T09:00:00.5-03:00", "2026-02-26T12:00:00.500Z"),
        ("2026-02-26T12:00:00.123999999+00:00", "2026-02-26T12:00:00.123Z"),
    ],
)
def test_instants_become_utc_with_milliseconds(written, kept):
    event = CourierEvent.model_validate(event_document(occurredAt=written))

    assert isoformat(event.occurredAt) == kept
    assert event.occurredAt.tzinfo is UTC
    assert CourierEvent.model_validate_json(event.model_dump_json()) == event


@pytest.mark.parametrize("meta", [{"algorithm": "sha256", "signatureHeader": "sha256=ab"}, "ab", [1], 7, {}, False])
def test_the_signature_of_a_job_is_kept_in_any_shape(meta):
    body = event_document() | {"signatureMeta": meta}

    assert json.loads(CourierEvent.model_validate(body).model_dump_json())["signatureMeta"] == meta


# --- what an open payload may hold --------------------------------------------------------------------------


@pytest.mark.parametrize("value", [[], "text", None, 7])
def test_a_payload_is_an_object(value):
    assert refused_at(CourierEvent, event_document(payload=value)) == {"payload"}


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        "\ud800",
        {"\udfff": 1},
        {"nul\0": 1},
        MAX_INTEGER + 1,
        -MAX_INTEGER - 2,
        10**40,
        nested(MAX_DEPTH),
        nested(5000),
    ],
)
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: {"deep": [0, {"er": value}]}])
def test_content_that_is_not_portable_is_refused(value, wrap):
    assert refused_at(CourierEvent, event_document(payload=payload(extra=wrap(value)))) == {"payload"}
    assert refused_at(CourierEvent, event_document(extra=wrap(value))) == {""}


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", '"\\ud800"', str(2**63)])
def test_content_that_is_not_portable_is_refused_in_json_text(text):
    body = json.dumps(event_document(payload=payload(extra="HERE"))).replace('"HERE"', text)

    with pytest.raises(ValidationError):
        CourierEvent.model_validate_json(body)


@pytest.mark.parametrize(
    "value",
    [
        "NaN",
        "\\u0000",
        "nul\0 in a value",
        "1234567890123456789012",
        MAX_INTEGER,
        -MAX_INTEGER - 1,
        1.5e300,
        None,
        nested(MAX_DEPTH - 1),
        [{}] * (MAX_DEPTH * 3),
        {"NaN": "😀", "a.b": 1, "$set": 2, "": 3},
    ],
)
def test_content_that_only_looks_suspicious_is_kept(value):
    event = CourierEvent.model_validate(event_document(payload=payload(extra=value)))

    assert json.loads(event.model_dump_json())["payload"]["extra"] == value


@pytest.mark.parametrize("name", ["metadata", "model_dump", "__class__", "copy", "payload", "model_config", "_private"])
def test_a_courier_may_use_any_field_name(name):
    event = CourierEvent.model_validate(event_document(payload=payload(**{name: "theirs"})))

    assert event.payload.model_extra == {name: "theirs"}
    assert json.loads(event.model_dump_json())["payload"] == payload(**{name: "theirs"})


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER - 1, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
CONTENT = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=15,
)
IDENTIFIERS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=200)
TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"]), min_size=1, max_size=200)
INSTANTS = st.datetimes(datetime(1970, 1, 2), datetime(2999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@settings(deadline=None)
@given(
    body=st.fixed_dictionaries(
        {
            "eventId": IDENTIFIERS,
            "eventType": TEXTS.map(lambda text: text[:100]),
            "occurredAt": st.builds(lambda at, zone: at.astimezone(zone).isoformat(), INSTANTS, ZONES),
            "source": IDENTIFIERS,
            "idempotencyKey": IDENTIFIERS,
            "traceId": IDENTIFIERS,
            "payload": st.builds(
                lambda known, extra: extra | known,
                st.fixed_dictionaries({"shipmentId": TEXTS, "orderId": TEXTS, "status": TEXTS}),
                st.dictionaries(NAMES, CONTENT, max_size=5),
            ),
        },
    ),
)
def test_every_job_survives_json_unchanged(body):
    event = CourierEvent.model_validate(body)
    again = CourierEvent.model_validate_json(event.model_dump_json())

    assert again == event
    assert again.payload.model_dump() == body["payload"]
    assert datetime.fromisoformat(body["occurredAt"]) - again.occurredAt < timedelta(milliseconds=1)


# --- the intake ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["carrier", "traceid", "trace_id", "shipmentId"])
def test_an_intake_with_other_fields_is_refused(name):
    assert refused_at(CourierIntake, intake_document(**{name: "x"})) == {name}


# --- the dead letter and the shipment -----------------------------------------------------------------------


def test_the_dead_letter_of_the_specification_is_valid():
    written = CourierDeadLetter.model_validate(EXAMPLE_DEAD_LETTER).model_dump(mode="json")

    assert written == EXAMPLE_DEAD_LETTER | {"deadLetteredAt": "2026-02-26T12:05:00.000Z"}


@pytest.mark.parametrize("name", sorted(EXAMPLE_DEAD_LETTER))
def test_a_dead_letter_needs_all_its_fields(name):
    assert refused_at(CourierDeadLetter, without(EXAMPLE_DEAD_LETTER, name)) == {name}


@pytest.mark.parametrize("numbers", [[], [1], [1, 2, 3], [2, 1], [1, 1], [1, 3], [2, 2]])
def test_a_dead_letter_counts_the_attempts_that_it_lists(numbers):
    history = [{"attempt": number, "outcome": "failed", "errorCode": "TIMEOUT"} for number in numbers]

    assert refused_at(CourierDeadLetter, EXAMPLE_DEAD_LETTER | {"attemptHistory": history}) == {""}


def test_a_dead_letter_may_have_no_attempts():
    CourierDeadLetter.model_validate(EXAMPLE_DEAD_LETTER | {"attemptHistory": [], "attemptCount": 0})


@pytest.mark.parametrize("name", ["terminalReasonCode", "eventId", "idempotencyKey", "traceId"])
def test_a_dead_letter_has_its_identifiers_and_its_reason(name):
    assert refused_at(CourierDeadLetter, EXAMPLE_DEAD_LETTER | {name: ""}) == {name}


def test_a_shipment_has_the_fields_of_the_specification():
    """And its owner, with a setting of ours."""
    assert set(ActiveShipment.model_fields) - {"source"} == {
        *("shipmentId", "orderId", "currentState", "lastEventId", "lastEventType", "lastEventAt"),
        *("metadata", "createdAt", "updatedAt"),
    }


@pytest.mark.parametrize("model", [CourierEvent, CourierIntake, CourierDeadLetter])
def test_the_published_examples_keep_their_contract(model):
    examples = model.model_json_schema()["examples"]

    assert [model.model_validate(example).model_dump() for example in examples]
