"""The mapping between the dataclasses of the contracts and what a store has stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum

import pytest

from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.ledger import LedgerEntry
from holdfast.contracts.times import from_ms
from holdfast.stores.fields import LETTER_FROM_ENTRY, LETTER_FROM_TRANSITION, names_of, public_name, reader


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    made_at: datetime
    colour: Colour | None = None


@dataclass(frozen=True, kw_only=True)
class Thing:
    key: str
    colour: Colour
    labels: Mapping[str, str]
    parts: tuple[Part, ...]
    words: tuple[str, ...] = ()
    sold_at: datetime | None = None
    price: int | None = None


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
THING = Thing(key="k", colour=Colour.RED, labels={"a": "b"}, parts=(Part(EPOCH, Colour.RED),), words=("w",), price=0)


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("key", "idempotencyKey"),
        ("attempts", "attemptHistory"),
        ("reason_code", "terminalReasonCode"),
        ("first_seen_at", "firstSeenAt"),
        ("body", "body"),
    ],
)
def test_public_names_are_the_specifications(field, name):
    assert public_name(field) == name


def test_a_document_is_read_under_public_names():
    document = {
        "idempotencyKey": "k",
        "colour": "red",
        "labels": {"a": "b"},
        "parts": [{"madeAt": EPOCH, "colour": "red"}],
        "words": ["w"],
        "soldAt": None,
        "price": 0,
        "another": "field",
    }

    found = reader(Thing)(document)

    assert found == THING
    assert isinstance(found.colour, Colour)
    assert isinstance(found.parts[0].colour, Colour)


def test_a_row_is_read_with_its_json_and_its_milliseconds():
    row = {
        "key": "k",
        "colour": "red",
        "labels": '{"a": "b"}',
        "parts": '[{"madeAt": 0, "colour": "red"}]',
        "words": '["w"]',
        "sold_at": 1500,
        "price": 0,
    }

    found = reader(Thing, stored_as=str, instant=from_ms, nested=json.loads)(row)

    assert found.sold_at == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert (found.parts, found.labels, found.words, found.price) == (THING.parts, THING.labels, THING.words, 0)


def test_a_field_that_the_caller_gives_is_not_read():
    document = {"idempotencyKey": "stored", "colour": "red", "labels": {}, "parts": []}

    assert reader(Thing)(document, key="given").key == "given"


def test_a_field_may_have_a_conversion_of_its_own():
    document = {"idempotencyKey": "k", "colour": "red", "labels": '{"a": "b"}', "parts": []}

    assert reader(Thing, labels=json.loads)(document).labels == {"a": "b"}


def test_a_field_without_a_default_must_be_stored():
    with pytest.raises(TypeError, match="colour"):
        reader(Thing)({"idempotencyKey": "k", "labels": {}, "parts": []})


@pytest.mark.parametrize("kind", [DeadLetter, LedgerEntry])
def test_the_names_are_the_fields_in_their_order(kind):
    assert names_of(kind) == tuple(field.name for field in fields(kind))


def test_a_dead_letter_has_its_entrys_identity_and_its_transitions_reason():
    assert {"reason_code", "reason_message", "body"} <= set(LETTER_FROM_TRANSITION)
    assert {"workload", "key", "job_id", "generation", "attempts", "body", "labels"} <= set(LETTER_FROM_ENTRY)
    assert not {"created_at", "updated_at", "expires_at", "id"} & {*LETTER_FROM_ENTRY, *LETTER_FROM_TRANSITION}
