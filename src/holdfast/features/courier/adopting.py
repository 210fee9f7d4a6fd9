"""Adoption of courier events that an external producer put straight into the queue.

A job needs only the fields that the specification requires in the queue (C7): ``eventId``, ``idempotencyKey``,
``eventType``, ``traceId`` and ``payload`` with its identifiers. Other fields are used if they are valid. An invalid
field is left out, with a warning on the entry: the event can be processed without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from holdfast import Delivery, Identity, isoformat, scrub

from .contract import (
    IDENTIFIER_PATTERN,
    TEXT_PATTERN,
    CourierEvent,
    Identifier,
    Instant,
    first_problem,
)

_OPTIONAL: Final[Mapping[str, TypeAdapter[Any]]] = {
    "occurredAt": TypeAdapter(Instant),
    "receivedAt": TypeAdapter(Instant),
    "source": TypeAdapter(Identifier),
    "attempt": TypeAdapter(CourierEvent.model_fields["attempt"].rebuild_annotation()),
}
_MAX_NAME: Final = 200
_KEY = re.compile(IDENTIFIER_PATTERN)
_NAME = re.compile(TEXT_PATTERN)
_EVENT_NAMES: Final = ("eventId", "eventType", "source", "traceId", "idempotencyKey")
_PAYLOAD_NAMES: Final = ("shipmentId", "orderId", "status")


def read_event(delivery: Delivery) -> tuple[CourierEvent, tuple[str, ...], Container[str]]:
    """The event, a warning for each invalid field, and the names of the fields that were filled in.

    Raises ``ValidationError`` if a required field is wrong.

    Without ``occurredAt``, ``receivedAt`` is used, or else the time at which the job was added. Without ``source``, the
    part of the key before ``:`` is used.
    """
    content = _object(delivery.data)
    if content is None:  # the contract raises the error
        return CourierEvent.model_validate_json(delivery.data), (), frozenset()
    warnings = [*_remove_invalid(content), *_remove_unportable(content)]
    left_out = {"occurredAt", "source"} - content.keys()
    if "occurredAt" in left_out:
        content["occurredAt"] = content.get("receivedAt") or _added(delivery)
    if "source" in left_out:
        key = content.get("idempotencyKey")
        # Without a key the event is refused for the missing key only, not for its source too.
        content["source"] = (key.partition(":")[0] or key) if isinstance(key, str) else "unknown"
    return CourierEvent.model_validate(content), tuple(warnings), left_out


def identify(content: Mapping[str, Any]) -> Identity:
    """The names of an event that breaks the contract, as far as they can be read."""
    payload = content.get("payload")
    found = {name: content.get(name) for name in _EVENT_NAMES}
    found |= {name: payload.get(name) for name in _PAYLOAD_NAMES} if isinstance(payload, dict) else {}
    labels = {name: value for name, value in found.items() if isinstance(value, str) and _is_a_name(value)}
    key = labels.get("idempotencyKey")
    return Identity(key if key is not None and _KEY.fullmatch(key) else None, labels)


def recover(letter: Mapping[str, Any], seen_at: datetime) -> str:
    """The event of another system's dead letter, as the body of a job.

    The letter has the names and the payload of the event. ``occurredAt`` may be in the payload; otherwise ``seen_at``
    is used. An event that still breaks the contract is kept as it is: its replay fails again.
    """
    event = {name: letter[name] for name in (*_EVENT_NAMES, "occurredAt") if letter.get(name) is not None}
    payload = letter.get("payloadSnapshot")
    if isinstance(payload, Mapping) and "occurredAt" in payload:
        event.setdefault("occurredAt", payload["occurredAt"])
    event.setdefault("traceId", letter["id"])
    body = json.dumps(event | {"payload": payload}, ensure_ascii=False)
    try:
        event_of_letter, _, _ = read_event(Delivery("", "", body, "", sent_at=seen_at))
    except ValidationError:
        return body
    return event_of_letter.model_dump_json()


def _is_a_name(text: str) -> bool:
    """Whether the text may be shown: short, printable, and without data that must be masked."""
    return len(text) <= _MAX_NAME and _NAME.fullmatch(text) is not None and scrub(text) == text


def _object(data: str) -> dict[str, Any] | None:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _remove_invalid(content: dict[str, Any]) -> list[str]:
    """Remove optional fields that are not valid; return a warning for each."""
    warnings = []
    for name, kind in _OPTIONAL.items():
        if content.get(name) is None:
            content.pop(name, None)
            continue
        try:
            kind.validate_python(content[name])
        except ValidationError:
            del content[name]
            warnings.append(f"{name} could not be used and was left out.")
    return warnings


def _remove_unportable(content: dict[str, Any]) -> list[str]:
    """Remove ``signatureMeta`` and unknown fields if a store could not keep them; return a warning for each."""
    warnings = []
    for name in [each for each in content if each not in CourierEvent.model_fields or each == "signatureMeta"]:
        if first_problem({name: content[name]}) is not None:
            del content[name]
            field = name if name == "signatureMeta" else "A field that is not part of the contract"
            warnings.append(f"{field} could not be kept and was left out.")
    return warnings


def _added(delivery: Delivery) -> str | None:
    return None if delivery.sent_at is None else isoformat(delivery.sent_at)
