"""Adoption of courier events that an external producer put straight into the queue."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from holdfast.contracts.queues import Delivery
from holdfast.contracts.times import isoformat
from holdfast.features.courier.workload import Courier
from tests.support.courier_documents import event_document, payload, without

ADDED = datetime(2026, 2, 26, 12, 0, 7, tzinfo=UTC)
REQUIRED = ("eventId", "idempotencyKey", "eventType", "traceId", "payload")


def delivery(body, *, sent_at=ADDED):
    data = body if isinstance(body, str) else json.dumps(body)
    return Delivery("courier-events-main", "17", data, "token", "courier-event", sent_at)


def adopt(body, **options):
    return Courier().adopt(delivery(body, **options))


def five_fields(**changes):
    return {name: value for name, value in event_document().items() if name in REQUIRED} | changes


def test_five_fields_are_enough():
    adopted = adopt(five_fields())

    assert (adopted.data.source, isoformat(adopted.data.occurredAt)) == ("courier-x", isoformat(ADDED))
    assert adopted.warnings == ()


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("value", ["missing", None, 7])
def test_each_of_the_five_is_needed(name, value):
    body = without(five_fields(), name) if value == "missing" else five_fields(**{name: value})

    with pytest.raises(ValidationError) as refused:
        adopt(body)
    assert {error["loc"][0] for error in refused.value.errors()} == {name}


@pytest.mark.parametrize("name", ["shipmentId", "orderId", "status"])
def test_the_payload_needs_its_identifiers(name):
    with pytest.raises(ValidationError) as refused:
        adopt(five_fields(payload=without(payload(), name)))
    assert [error["loc"] for error in refused.value.errors()] == [("payload", name)]


def test_the_time_of_receipt_replaces_a_missing_time():
    adopted = adopt(without(event_document(receivedAt="2026-02-26T12:00:01Z"), "occurredAt"))

    assert isoformat(adopted.data.occurredAt) == "2026-02-26T12:00:01.000Z"


@pytest.mark.parametrize(
    ("key", "source"),
    [("dhl:br:1", "dhl"), ("evt_1", "evt_1"), (":evt_1", ":evt_1"), ("courier-x:evt_123", "courier-x")],
)
def test_the_beginning_of_the_key_replaces_a_missing_source(key, source):
    assert adopt(five_fields(idempotencyKey=key)).data.source == source


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("occurredAt", value) for value in ("yesterday", 1772107200, "2026-02-26T12:00:00", [], {})),
        *(("receivedAt", value) for value in ("soon", 5)),
        *(("source", value) for value in ("two words", 7, "", "x" * 201)),
        *(("attempt", value) for value in (0, "2", 1.5, -1)),
    ],
)
def test_an_invalid_field_is_left_out_with_a_warning_that_repeats_no_value(name, value):
    adopted = adopt(event_document(**{name: value}))

    assert adopted.warnings == (f"{name} could not be used and was left out.",)
    assert adopted.data.attempt == 1
    assert adopted.data.source == "courier-x"


@pytest.mark.parametrize("name", ["occurredAt", "receivedAt", "source", "attempt", "signatureMeta"])
def test_null_is_the_same_as_a_missing_field(name):
    assert adopt(event_document(**{name: None})).warnings == ()


@pytest.mark.parametrize(
    "meta",
    [{"algorithm": "sha256", "timestamp": "1772107200", "signatureHeader": "sha256=ab"}, "ab", [1, {"a": None}], 0, {}],
)
def test_the_signature_is_kept_in_any_shape(meta):
    kept = json.loads(adopt(event_document(signatureMeta=meta)).data.model_dump_json())

    assert kept["signatureMeta"] == meta


@pytest.mark.parametrize("name", ["signatureMeta", "extra"])
@pytest.mark.parametrize("value", ["\ud800", 10**40, {"a": {"\0": 1}}])
def test_a_field_that_no_store_could_keep_is_left_out_with_a_warning(name, value):
    adopted = adopt(event_document(**{name: value}))

    assert len(adopted.warnings) == 1
    assert name not in json.loads(adopted.data.model_dump_json())


def test_fields_that_the_contract_does_not_know_are_kept():
    assert json.loads(adopt(event_document(region="br-se")).data.model_dump_json())["region"] == "br-se"


@pytest.mark.parametrize("text", ["", "null", "[]", "7", '"text"', "{", "[" * 100_000])
def test_a_body_that_is_not_an_object_breaks_the_contract(text):
    with pytest.raises(ValidationError):
        adopt(text)


def test_without_any_time_the_contract_is_broken():
    with pytest.raises(ValidationError) as refused:
        adopt(five_fields(), sent_at=None)
    assert [error["loc"] for error in refused.value.errors()] == [("occurredAt",)]


@pytest.mark.parametrize("missing", [("occurredAt",), ("source",), ("occurredAt", "source", "receivedAt")])
def test_the_same_event_is_the_same_when_it_comes_again(missing):
    body = without(event_document(), *missing)
    later = datetime(2026, 3, 1, tzinfo=UTC)
    again = body | {"traceId": "req_other", "signatureMeta": "other"}

    assert adopt(body).fingerprint == adopt(again, sent_at=later).fingerprint
    assert adopt(body).fingerprint != adopt(body | {"payload": payload(status="lost")}).fingerprint


def test_a_whole_event_has_the_fingerprint_that_our_own_intake_gives_it():
    adopted = adopt(event_document())

    assert adopted.fingerprint == Courier().fingerprint(adopted.data)


# --- the names of what is refused ---------------------------------------------------------------------------------


def test_a_broken_event_keeps_the_names_that_can_be_read():
    identity = Courier().identify(without(event_document(), "payload"))

    assert identity.key == "courier-x:evt_123"
    assert identity.labels == {
        "eventId": "evt_123",
        "eventType": "shipment.status.updated",
        "source": "courier-x",
        "traceId": "req_a1b2c3",
        "idempotencyKey": "courier-x:evt_123",
    }


@pytest.mark.parametrize(
    "value", [None, 7, "", " ", "a\nb", "x" * 201, ["a"], "\ud800", "390.533.447-05", "token=abcdef123"]
)
def test_a_value_that_must_not_be_shown_is_not_a_name(value):
    identity = Courier().identify({"idempotencyKey": value, "eventId": "evt_1", "payload": {"shipmentId": value}})

    assert identity.key is None
    assert identity.labels == {"eventId": "evt_1"}
