"""The problems of an invalid email: the field, and one sentence for the sender, without the value (I14)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from holdfast.contracts.admission import FieldProblem
from holdfast.contracts.personal_data import find_personal_data
from holdfast.contracts.validation import sentence_of

_SAFE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def problems_of(error: ValidationError, whole: str) -> list[FieldProblem]:
    """Every problem, in the order in which pydantic found them. ``whole`` is the name of the object with the fields."""
    return [_problem(each, whole) for each in error.errors(include_url=False, include_input=False)]


def _problem(error: Mapping[str, Any], whole: str) -> FieldProblem:
    if error["type"] == "model_type" and not error["loc"]:
        return FieldProblem(whole, "must be a JSON object")
    sentence = "is not a field of an email" if error["type"] == "extra_forbidden" else sentence_of(error)
    return FieldProblem(_path(error["loc"]) or whole, sentence)


def _path(parts: tuple[str | int, ...]) -> str:
    """The field, as ``cc.0``. A part that does not look like a name may be a value: it is shown as ``*``."""
    return ".".join(str(part) if isinstance(part, int) or _is_a_name(part) else "*" for part in parts)


def _is_a_name(part: str) -> bool:
    return _SAFE_NAME.fullmatch(part) is not None and find_personal_data(part) is None
