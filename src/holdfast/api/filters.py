"""Filters and pages of lists, as queries have them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import AwareDatetime, BeforeValidator, Field

from holdfast.contracts.admission import FieldProblem

from .errors import Code, Refusal

MAX_PAGE: Final = 200
_DATE_AND_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T")

Filter = Annotated[str, Field(min_length=1, max_length=500)]


def _require_date_and_time(value: object) -> object:
    """Refuse a bare number: pydantic would read it as a time, in seconds or in milliseconds, by its size."""
    if not isinstance(value, str) or _DATE_AND_TIME.match(value) is None:
        message = "must be an instant in ISO 8601 with its offset, such as 2026-02-26T12:00:00Z"
        raise ValueError(message)
    return value


Instant = Annotated[AwareDatetime, BeforeValidator(_require_date_and_time)]


def conditions(parameter: str, given: Iterable[str]) -> dict[str, str]:
    """``name=value`` of a parameter that may be repeated, each name once."""
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals or name in found:
            problem = "must be name=value, and each name may be given once: all conditions must hold"
            raise Refusal(Code.INVALID_QUERY, details=[FieldProblem(parameter, problem)])
        found[name] = value
    return found
