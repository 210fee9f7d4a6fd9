"""The problems of an invalid request: one for each wrong field, without the values (I14)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from holdfast.contracts.admission import FieldProblem
from holdfast.contracts.redaction import scrub
from holdfast.contracts.validation import sentence_of

_MAX_PROBLEMS: Final = 50
_MAX_FIELD: Final = 200
_SHORTEST_ECHO: Final = 3

# Pydantic's messages describe the rule, except these: they may repeat the input, or a workload wrote them.
_MAY_ECHO: Final = frozenset({"value_error", "assertion_error", "union_tag_invalid", "uuid_parsing", "url_parsing"})
_DESCRIBE_THE_RULE: Final = frozenset(get_args(ErrorType)) - _MAY_ECHO


def field_problems(errors: Sequence[ErrorDetails]) -> list[FieldProblem]:
    """One problem for each error, at most fifty. The name of the body itself is ``(body)``."""
    return [FieldProblem(_field(error["loc"]), _problem(error)) for error in errors[:_MAX_PROBLEMS]]


def _field(location: tuple[int | str, ...]) -> str:
    # The sender chose the name of an unknown field, so it may hold personal data.
    return scrub(".".join(str(part) for part in location))[:_MAX_FIELD] or "(body)"


def _problem(error: ErrorDetails) -> str:
    message = sentence_of(error)
    if error["type"] in _DESCRIBE_THE_RULE:
        return message
    if any(echo in message for echo in _texts(error["input"])):
        return "This value breaks a rule of the contract"
    return scrub(message)


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - any input
    """Every text in the input that is long enough to be found in a message."""
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
    elif len(text := str(value)) >= _SHORTEST_ECHO:
        yield text
