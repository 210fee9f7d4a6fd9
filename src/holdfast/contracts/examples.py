"""Examples of models, made of the examples of their fields. So no example is written twice, and none is forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_LEFT_OUT: Final = object()
_EXAMPLES: Final[Mapping[object, Any]] = {
    NoneType: None,
    list: [],
    dict: {},
    bool: False,
    int: 1,
    datetime: "2026-02-26T12:00:01.000Z",
}
"""The examples of fields that have none of their own, by type."""


def add_example(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """For ``json_schema_extra``: the example of the model, made of the examples of its fields."""
    schema["examples"] = [example_of(model)]


def example_of(model: type[BaseModel]) -> dict[str, Any]:
    """The example of a model. A field that may be absent is shown only if it has an example of its own."""
    given: Any = model.model_config.get("json_schema_extra")
    if isinstance(given, dict):
        return dict(given["examples"][0])
    values = ((field.alias or name, _value(field)) for name, field in model.model_fields.items())
    return {name: value for name, value in values if value is not _LEFT_OUT}


def _value(field: FieldInfo) -> Any:  # noqa: ANN401 - any JSON value
    if field.examples:
        return field.examples[0]
    if not field.is_required():
        default = field.get_default(call_default_factory=True)
        return _LEFT_OUT if default is None else default
    origin, choices = get_origin(field.annotation), get_args(field.annotation)
    types = (field.annotation, *choices)
    for each in types:
        if isinstance(each, type) and issubclass(each, BaseModel):
            return [example_of(each)] if origin is list else example_of(each)
    if origin is Literal:
        return choices[0]
    if isinstance(field.annotation, type) and issubclass(field.annotation, Enum):
        return next(iter(field.annotation)).value
    return next((value for kind, value in _EXAMPLES.items() if kind in {origin, *types}), "...")
