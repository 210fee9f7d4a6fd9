"""What is wrong with an email, in words for its sender: the field, and one sentence that repeats no value (I14)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from holdfast.contracts.admission import FieldProblem
from holdfast.contracts.personal_data import find_personal_data

from .texts import HALF_A_CHARACTER

_SAFE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

_SENTENCES: Final[Mapping[str, str]] = {
    "missing": "is required",
    "extra_forbidden": "is not a field of an email",
    "string_type": "must be a string",
    "string_unicode": HALF_A_CHARACTER,
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "tuple_type": "must be a list",
    "int_type": "must be a whole number",
    "invalid_key": "must have field names of whole characters",
    "json_invalid": "must be JSON",
}


def problems_of(error: ValidationError, whole: str) -> list[FieldProblem]:
    """Every problem, in the order of discovery. ``whole`` is what to call that in which the fields are."""
    return [_problem(each, whole) for each in error.errors(include_url=False, include_input=False)]


def _problem(error: Mapping[str, Any], whole: str) -> FieldProblem:
    kind, context = error["type"], error.get("ctx", {})
    match kind:
        case "model_type" if not error["loc"]:
            sentence = "must be a JSON object"
        case "string_too_long":
            sentence = f"must not be longer than {context['max_length']} characters"
        case "too_long":
            sentence = f"must not be more than {context['max_length']}"
        case "greater_than_equal":
            sentence = f"must be at least {context['ge']}"
        case "less_than_equal":
            sentence = f"must be at most {context['le']}"
        case _:
            # The other messages are our own (PydanticCustomError); pydantic's name types, never the input.
            sentence = _SENTENCES.get(kind, error["msg"])
    return FieldProblem(_path(error["loc"]) or whole, sentence)


def _path(parts: tuple[str | int, ...]) -> str:
    """The field, as ``cc.0``. What does not look like a name may be a misplaced value: not repeated."""
    return ".".join(str(part) if isinstance(part, int) or _is_a_name(part) else "*" for part in parts)


def _is_a_name(part: str) -> bool:
    return _SAFE_NAME.fullmatch(part) is not None and find_personal_data(part) is None
