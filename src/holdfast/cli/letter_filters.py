"""Conditions on dead letters, as people write them, turned into the engine's query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.contracts.dead_letters import ReviewStatus
from holdfast.contracts.queries import LetterQuery

from .failures import Stop
from .options import conditions, instant

# The names of the options, and the JSON names of the same fields.
_FIELDS: Final[Mapping[str, str]] = {
    "workload": "workload",
    "status": "review_status",
    "reviewStatus": "review_status",
    "reason": "reason_code",
    "terminalReasonCode": "reason_code",
    "key": "key",
    "idempotencyKey": "key",
    "created-after": "created_after",
    "createdAfter": "created_after",
    "created-before": "created_before",
    "createdBefore": "created_before",
}
_NO_CONDITION: Final = frozenset(
    {"id", "jobId", "generation", "attemptCount", "createdAt", "updatedAt", "expiresAt", "terminalReasonMessage"}
)
_LABEL: Final = "label."

HELP: Final = (
    "A condition, repeatable: workload, status, reason, key, created-after, created-before, or a label such as "
    "eventType or shipmentId (label.status=... if a label has the name of a field)."
)


def query_of(where: Iterable[str], **given: str | None) -> LetterQuery:
    """All conditions together; ``given`` are the conditions with their own option."""
    fields: dict[str, Any] = {}
    labels: dict[str, str] = {}
    by_option = [(name, value) for name, value in given.items() if value is not None]
    for name, value in [*by_option, *conditions(where).items()]:
        field = _FIELDS.get(name)
        if field is None:
            labels[_label(name)] = value
        elif field in fields:
            message = f"{name} is given twice; all conditions must hold, so one of them could never match."
            raise Stop(message)
        else:
            fields[field] = _value(field, name, value)
    return LetterQuery(**fields, labels=labels)


def _label(name: str) -> str:
    if name in _NO_CONDITION:
        message = f"Dead letters cannot be chosen by {name}. {HELP}"
        raise Stop(message)
    return name.removeprefix(_LABEL)


def _value(field: str, name: str, value: str) -> object:
    if field in {"created_after", "created_before"}:
        return instant(name, value)
    if field == "review_status":
        try:
            return ReviewStatus(value)
        except ValueError:
            message = f"{name} is one of {', '.join(ReviewStatus)}, not {value!r}."
            raise Stop(message) from None
    return value
