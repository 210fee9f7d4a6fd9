"""Examples of models are made of the examples of their fields."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from holdfast.contracts.examples import add_example, example_of


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Wheel(BaseModel):
    inches: int = Field(examples=[26])


class Named(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "as written"}]})

    name: str = Field(examples=["not this"])


class Bicycle(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, json_schema_extra=add_example)

    frame_number: str = Field(examples=["b-1", "b-2"])
    without: str
    colour: Colour
    kind: Literal["city", "race"]
    sold: bool
    gears: int
    bought_at: datetime
    owner: str | None
    last_owner: str | None = None
    next_owner: str | None = Field(default=None, examples=["ana"])
    parts: list[str]
    labels: dict[str, Any]
    front: Wheel
    spare: Wheel | None
    wheels: list[Wheel]
    named: Named
    bell: bool = True


EXAMPLE = {
    "frameNumber": "b-1",
    "without": "...",
    "colour": "red",
    "kind": "city",
    "sold": False,
    "gears": 1,
    "boughtAt": "2026-02-26T12:00:01.000Z",
    "owner": None,
    "nextOwner": "ana",
    "parts": [],
    "labels": {},
    "front": {"inches": 26},
    "spare": {"inches": 26},
    "wheels": [{"inches": 26}],
    "named": {"name": "as written"},
    "bell": True,
}


def test_an_example_has_a_value_for_every_field_but_those_that_are_usually_absent():
    assert example_of(Bicycle) == EXAMPLE


def test_the_example_is_in_the_schema():
    assert Bicycle.model_json_schema()["examples"] == [EXAMPLE]


def test_a_subclass_has_an_example_of_its_own():
    class Tandem(Bicycle):
        seats: int = Field(examples=[2])

    assert Tandem.model_json_schema()["examples"] == [EXAMPLE | {"seats": 2}]
