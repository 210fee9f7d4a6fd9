"""What is wrong, in words: no regular expression, no value, and no word that the reader does not know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from holdfast import ErrorCode
from holdfast.api.dead_letters import LetterFilter, ReplayBody
from holdfast.api.errors import Code
from holdfast.api.operators import DecisionBody
from holdfast.contracts.validation import describe_validation, described, sentence_of
from holdfast.features.courier.contract import CourierEvent, CourierIntake
from holdfast.features.documents.admission import DocumentRequest
from holdfast.features.documents.callbacks import CallbackJob
from holdfast.features.documents.contract import DocumentJob
from tests.support.courier_documents import event_document, payload

CONTRACTS = [
    CourierEvent,
    CourierIntake,
    DocumentJob,
    DocumentRequest,
    CallbackJob,
    DecisionBody,
    LetterFilter,
    ReplayBody,
]
CANARY = "hunter2hunter2"
WORDS = described(r"^[a-f]+$", "must be letters from a to f")


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    code: Annotated[str, StringConstraints(pattern=WORDS)] = "abc"
    name: Annotated[str, StringConstraints(pattern=r"^[xyz]+$", max_length=9, min_length=2)] = "xyz"
    lines: Annotated[list[int], Field(max_length=2)] = []
    kind: Literal["small", "large"] = "small"
    number: Annotated[int, Field(ge=1, le=9)] = 1
    paid: bool = False
    weight: float = 1.0
    note: str = ""

    @field_validator("note")
    @classmethod
    def _calm(cls, note: str) -> str:
        if note.endswith("!"):
            message = "must not shout"
            raise ValueError(message)
        return note


def told(contract: type[BaseModel], document: object) -> str:
    with pytest.raises(ValidationError) as refusal:
        contract.model_validate(document)
    return describe_validation(refusal.value)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"code": CANARY}, "code: must be letters from a to f"),
        ({"name": "abc"}, "name: does not have the form that is required"),
        ({"name": "x"}, "name: must have at least 2 characters"),
        ({"name": "x" * 10}, "name: must not be longer than 9 characters"),
        ({"name": None}, "name: must be a string"),
        ({"lines": CANARY}, "lines: must be a list"),
        ({"lines": [1, 2, 3]}, "lines: must not be more than 2"),
        ({"lines": [1.5]}, "lines.0: must be a whole number"),
        ({"kind": CANARY}, "kind: must be 'small' or 'large'"),
        ({"number": 0}, "number: must be at least 1"),
        ({"number": 10}, "number: must be at most 9"),
        ({"number": CANARY}, "number: must be a whole number"),
        ({"paid": CANARY}, "paid: must be true or false"),
        ({"weight": CANARY}, "weight: must be a number"),
        ({"note": "now!"}, "note: must not shout"),
        ({"colour": CANARY}, "colour: is not a known field"),
        (CANARY, "body: must be an object"),
        ({"code": "x", "number": 0}, "code: must be letters from a to f; number: must be at least 1"),
    ],
)
def test_a_problem_is_a_sentence_about_the_rule(document, sentence):
    assert told(Order, document) == sentence


def test_text_that_is_no_json_is_said_to_be_none():
    with pytest.raises(ValidationError) as refusal:
        Order.model_validate_json("{")

    assert describe_validation(refusal.value) == "body: must be JSON"


def _patterns(schema: Any) -> Iterator[str]:
    """The patterns that pydantic itself checks, and would show."""
    if isinstance(schema, dict):
        if schema.get("type") == "str" and "pattern" in schema:
            yield schema["pattern"]
        for each in schema.values():
            yield from _patterns(each)
    elif isinstance(schema, list | tuple):
        for each in schema:
            yield from _patterns(each)


def test_patterns_are_found():
    assert set(_patterns(Order.__pydantic_core_schema__)) == {"^[a-f]+$", "^[xyz]+$"}


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
def test_every_pattern_of_a_shipped_contract_has_words(contract):
    for pattern in _patterns(contract.__pydantic_core_schema__):
        error = {"type": "string_pattern_mismatch", "loc": ("x",), "msg": "", "ctx": {"pattern": pattern}}

        assert sentence_of(error).startswith("must ")


def test_a_broken_event_is_told_of_in_words():
    words = told(CourierEvent, event_document(eventId="a b", traceId=7, payload=payload(status="a\x00b")))

    assert words.split("; ") == [
        "eventId: must be 1 to 200 visible ASCII characters, without spaces",
        "traceId: must be a string",
        "payload.status: must not be blank and must not contain control characters",
    ]


def test_senders_are_not_told_of_documents():
    assert [
        each.message
        for each in vars(Code).values()
        if isinstance(each, ErrorCode) and "document" in each.message.lower()
    ] == []
