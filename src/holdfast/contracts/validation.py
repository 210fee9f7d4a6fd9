"""Validation errors of pydantic as sentences for people: the field and the rule, and never the value (I14).

Senders, operators and readers of dead letters all read these. No sentence shows a regular expression: each pattern has
its own sentence, defined beside the pattern (:func:`described`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from .redaction import scrub

BODY: Final = "body"
"""The place of a problem that belongs to no single field."""

HALF_A_CHARACTER: Final = "must not contain half of a character (a lone surrogate)"

_MOST_PROBLEMS: Final = 10
_NO_WORDS_FOR_THE_PATTERN: Final = "does not have the form that is required"

_patterns: dict[str, str] = {}

_SENTENCES: Final[Mapping[str, str]] = {
    "missing": "is required",
    "extra_forbidden": "is not a known field",
    "string_type": "must be a string",
    "string_unicode": HALF_A_CHARACTER,
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "invalid_key": "must have field names of whole characters",
    "json_invalid": "must be JSON",
    "string_too_long": "must not be longer than {max_length} characters",
    "too_long": "must not be more than {max_length}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
}


def described(pattern: str, sentence: str) -> str:
    """Return the pattern. From now on, text that does not match the pattern gets this sentence."""
    _patterns[pattern] = sentence
    return pattern


def sentence_of(error: Mapping[str, Any]) -> str:
    """The broken rule of one pydantic error, as the words after the name of the field.

    A kind that is not in the table has a sentence of our own contracts, or of pydantic, with a type or a limit in it.
    """
    kind, context = error["type"], error.get("ctx", {})
    if kind == "string_pattern_mismatch":
        return _patterns.get(context.get("pattern", ""), _NO_WORDS_FOR_THE_PATTERN)
    if kind == "string_too_short":
        least = context["min_length"]
        return "must not be empty" if least == 1 else f"must have at least {least} characters"
    if kind in _SENTENCES:
        return _SENTENCES[kind].format_map(context)
    return str(error["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")


def describe_validation(error: ValidationError) -> str:
    """All problems, in one line."""
    problems = error.errors(include_url=False, include_input=False)[:_MOST_PROBLEMS]
    return scrub("; ".join(f"{'.'.join(map(str, each['loc'])) or BODY}: {sentence_of(each)}" for each in problems))
