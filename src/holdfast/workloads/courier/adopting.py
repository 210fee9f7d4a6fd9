"""Courier events that somebody else put straight into the queue: read leniently, named by what can be read of them.

A job needs what the specification requires of it: ``eventId``, ``idempotencyKey``, ``eventType``, ``traceId`` and
``payload`` with its identifiers. All else is used where it is sound. What is not sound is left out, with a warning on
the entry; it is no reason to refuse work that can be done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from holdfast.contracts.queues import Delivery
from holdfast.contracts.redaction import scrub
from holdfast.contracts.times import isoformat
from holdfast.contracts.workload import Adopted, Identity

from .contract import IDENTIFIER_PATTERN, TEXT_PATTERN, CourierEvent, Identifier, Instant, fingerprint_of
from .portable import first_problem

_OPTIONAL: Final[Mapping[str, TypeAdapter[Any]]] = {
    "occurredAt": TypeAdapter(Instant),
    "receivedAt": TypeAdapter(Instant),
    "source": TypeAdapter(Identifier),
    "attempt": TypeAdapter(CourierEvent.model_fields["attempt"].rebuild_annotation()),
}
_LONGEST_NAME: Final = 200
_KEY = re.compile(IDENTIFIER_PATTERN)
_NAME = re.compile(TEXT_PATTERN)
_NAMES_OF_THE_EVENT: Final = ("eventId", "eventType", "source", "traceId", "idempotencyKey")
_NAMES_OF_THE_PAYLOAD: Final = ("shipmentId", "orderId", "status")


def adopt(delivery: Delivery) -> Adopted[CourierEvent]:
    """The event, and what was not sound in it. Raises ``ValidationError`` where a required field is missing or wrong.

    ``occurredAt`` may be missing: ``receivedAt`` stands for it, or else the time at which the job was added. So may
    ``source``: the key's part before ``:`` stands for it.
    """
    content = _object(delivery.data)
    if content is None:  # the contract says why
        return Adopted(CourierEvent.model_validate_json(delivery.data))
    warnings = [*_without_unsound(content), *_without_what_cannot_travel(content)]
    left_out = {"occurredAt", "source"} - content.keys()
    if "occurredAt" in left_out:
        content["occurredAt"] = content.get("receivedAt") or _added(delivery)
    if "source" in left_out:
        key = content.get("idempotencyKey")
        # Without a key the event is refused for that, and for nothing that follows from it.
        content["source"] = (key.partition(":")[0] or key) if isinstance(key, str) else "unknown"
    event = CourierEvent.model_validate(content)
    # What was made up differs when the same event comes again: it does not make it another event.
    return Adopted(event, tuple(warnings), fingerprint_of(event, left_out=left_out))


def identify(content: Mapping[str, Any]) -> Identity:
    """The names of an event that breaks the contract, as far as they can be read."""
    payload = content.get("payload")
    found = {name: content.get(name) for name in _NAMES_OF_THE_EVENT}
    found |= {name: payload.get(name) for name in _NAMES_OF_THE_PAYLOAD} if isinstance(payload, dict) else {}
    labels = {name: value for name, value in found.items() if isinstance(value, str) and _is_a_name(value)}
    key = labels.get("idempotencyKey")
    return Identity(key if key is not None and _KEY.fullmatch(key) else None, labels)


def recover(letter: Mapping[str, Any], seen_at: datetime) -> str:
    """The event that a dead letter of another system tells of, as a job's body.

    The letter has the event's names and its payload. Of the rest, ``occurredAt`` may be in the payload; otherwise
    ``seen_at`` stands for it. An event that breaks the contract all the same is kept as it is: a replay fails again.
    """
    event = {name: letter[name] for name in (*_NAMES_OF_THE_EVENT, "occurredAt") if letter.get(name) is not None}
    payload = letter.get("payloadSnapshot")
    if isinstance(payload, Mapping) and "occurredAt" in payload:
        event.setdefault("occurredAt", payload["occurredAt"])
    event.setdefault("traceId", letter["id"])
    body = json.dumps(event | {"payload": payload}, ensure_ascii=False)
    try:
        return adopt(Delivery("", "", body, "", sent_at=seen_at)).data.model_dump_json()
    except ValidationError:
        return body


def _is_a_name(text: str) -> bool:
    """Whether people may see it: short, readable, and nothing that has to be masked."""
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None and scrub(text) == text


def _object(data: str) -> dict[str, Any] | None:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _without_unsound(content: dict[str, Any]) -> list[str]:
    """Remove optional fields that are not what they should be; return a warning for each."""
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


def _without_what_cannot_travel(content: dict[str, Any]) -> list[str]:
    """Remove what no store could keep: the signature's facts, and fields that the contract does not know."""
    warnings = []
    for name in [each for each in content if each not in CourierEvent.model_fields or each == "signatureMeta"]:
        if first_problem({name: content[name]}) is not None:
            del content[name]
            known = name if name == "signatureMeta" else "A field that is not part of the contract"
            warnings.append(f"{known} could not be kept and was left out.")
    return warnings


def _added(delivery: Delivery) -> str | None:
    return None if delivery.sent_at is None else isoformat(delivery.sent_at)
