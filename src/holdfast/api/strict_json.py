"""JSON without the parts that two parsers read differently.

Python's ``json`` takes the last of two equal keys, reads NaN, turns 1e999 into infinity, accepts half a surrogate pair
and recurses without limit. What we accept is stored, queued and read by other programs, for example in Node. So this
module refuses what they could read differently: it enforces the I-JSON profile (RFC 7493). It also limits how deep and
how many values are: checking a hundred thousand empty lists would keep the event loop busy for long (I18).
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

from holdfast.telemetry import refused

from .errors import Code, Refusal

MAX_DEPTH: Final = 32
MAX_VALUES: Final = 5_000
"""The most values in a body: members of objects and elements of lists, at all levels."""
MAX_MEMBERS: Final = 1_000
"""The most members of one object."""
_MAX_SAFE_INTEGER: Final = 2**53 - 1
_MAX_SAFE_DIGITS: Final = 17  # a sign and sixteen digits

_STRING_OR_SIGN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{},]', re.DOTALL)
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


class NotStrictJson(Refusal):
    """The body is not JSON that every parser reads in the same way. The message never repeats the body."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INVALID_PAYLOAD, message)

    def __str__(self) -> str:
        return self.message


def parse(raw: bytes, most_values: int = MAX_VALUES) -> Any:  # noqa: ANN401 - any JSON value
    """The JSON value in ``raw``. Raises :class:`NotStrictJson`."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        message = "The body is not UTF-8."
        raise NotStrictJson(message) from error
    if text.startswith("\ufeff"):
        message = "The body starts with a byte order mark."
        raise NotStrictJson(message)
    # With fewer opening brackets than levels, the body cannot be too deep; and each value but the first of its list or
    # object has a comma before it. Most bodies need no other check.
    opening = raw.count(b"{") + raw.count(b"[")
    if opening > MAX_DEPTH or opening + raw.count(b",") > most_values:
        _check_shape(text, most_values)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        message = f"The body is not valid JSON (line {error.lineno}, column {error.colno})."
        raise NotStrictJson(message) from error
    if _SURROGATE.search(text) is not None:
        _check_surrogates(value)
    return value


def parse_object(raw: bytes) -> dict[str, Any]:
    """The same for a body that must be an object."""
    body = parse(raw)
    if not isinstance(body, dict):
        message = "The body must be a JSON object."
        raise NotStrictJson(message)
    return body


def _check_shape(text: str, most_values: int) -> None:
    depth = values = 0
    for token in _STRING_OR_SIGN.finditer(text):
        sign = token.group()
        if sign in "{[,":
            values += 1
            if values > most_values:
                _refuse_over("json_values", f"The body has more than {most_values:,} values.")
        if sign in "{[":
            depth += 1
            if depth > MAX_DEPTH:
                _refuse_over("json_depth", f"The body is nested deeper than {MAX_DEPTH} levels.")
        elif sign in "}]":
            depth -= 1


def _refuse_over(bound: str, message: str) -> NoReturn:
    """Refuse a body over a limit, and count it."""
    refused(bound)
    raise NotStrictJson(message)


def _check_surrogates(value: Any) -> None:  # noqa: ANN401 - any JSON value
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        message = "A string contains half of a surrogate pair."
        raise NotStrictJson(message) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        message = "An object contains the same key twice."
        raise NotStrictJson(message)
    if len(members) > MAX_MEMBERS:
        _refuse_over("json_members", f"An object has more than {MAX_MEMBERS:,} members.")
    return members


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        message = "A number is too large."
        raise NotStrictJson(message)
    return number


def _safe_integer(digits: str) -> int:
    if len(digits) > _MAX_SAFE_DIGITS or abs(number := int(digits)) > _MAX_SAFE_INTEGER:
        message = "An integer is larger than 2^53 - 1, which not every parser can read exactly; write it as a string."
        raise NotStrictJson(message)
    return number


def _refuse_constant(name: str) -> None:
    message = f"{name} is not JSON."
    raise NotStrictJson(message)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_float=_finite,
    parse_int=_safe_integer,
    parse_constant=_refuse_constant,
)
