"""Which JSON values every queue and every store can keep unchanged.

Python accepts more than JSON: it reads ``NaN``, half characters (lone surrogates) and integers of any size. Each of
these would fail later or change silently, in a queue or in a store. So the contract refuses them at intake, where the
sender still gets an answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import to_json

MAX_DEPTH: Final = 64
"""Levels of nested objects and lists. MongoDB allows 100, with the fields around the payload."""

MAX_INTEGER: Final = 2**63 - 1

Path = tuple[str | int, ...]

_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def first_problem(content: Mapping[str, Any]) -> tuple[Path, str] | None:
    """The path of a value that is not portable, and the reason; None if all values are portable.

    The hot path is one pass of pydantic's encoder. The values are searched one by one only if this pass fails, or if
    its output may contain a number, a field name or a depth that is not portable.
    """
    try:
        text = to_json(content, inf_nan_mode="constants")
    except ValueError:  # a lone surrogate, or a cycle
        return _search(content) or ((), "must be JSON")
    suspicious = b"NaN" in text or b"Infinity" in text or b"\\u0000" in text or _LONG_NUMBER.search(text) is not None
    # The depth is at most the number of brackets.
    nested = text.count(b"{") + text.count(b"[") > MAX_DEPTH and _depth(content) > MAX_DEPTH
    return _search(content) if suspicious or nested else None


def _depth(content: Mapping[str, Any]) -> int:
    depth = 0
    layer: list[Mapping[str, Any] | list[Any]] = [content]
    while layer:
        depth += 1
        children = (child for each in layer for child in (each if isinstance(each, list) else each.values()))
        layer = [child for child in children if isinstance(child, dict | list)]
    return depth


def _search(content: Mapping[str, Any]) -> tuple[Path, str] | None:
    waiting: list[tuple[Path, Any]] = [((), content)]
    while waiting:
        path, value = waiting.pop()
        problem = _problem_of(value, depth=len(path) + 1)
        if problem is not None:
            return path, problem
        if isinstance(value, Mapping):
            waiting += [((*path, key), child) for key, child in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [((*path, position), child) for position, child in enumerate(value)]
    return None


def _problem_of(value: object, *, depth: int) -> str | None:  # noqa: PLR0911 - one line for each kind of value
    match value:
        case None | bool():
            return None
        case str():
            return None if _encodable(value) else "must not contain half of a character (a lone surrogate)"
        case int():
            return None if -MAX_INTEGER - 1 <= value <= MAX_INTEGER else "must fit into 64 bits; send it as a string"
        case float():
            return None if math.isfinite(value) else "must be a finite number"
        case Mapping() | list() | tuple() if depth > MAX_DEPTH:
            return f"must not be nested deeper than {MAX_DEPTH} levels"
        case Mapping():
            keys_are_valid = all(isinstance(key, str) and "\0" not in key and _encodable(key) for key in value)
            return None if keys_are_valid else "must have field names of whole characters without NUL"
        case list() | tuple():
            return None
        case _:
            return "must be JSON"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
