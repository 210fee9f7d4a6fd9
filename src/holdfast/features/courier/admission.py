"""The admission of courier events: turns the body of a verified request into a job, or refuses the body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from holdfast import FieldProblem, InvalidContent, isoformat, sentence_of

from .contract import (
    IDENTIFIER_PATTERN,
    IDENTIFIER_RULE,
    NOT_PORTABLE,
    CourierEvent,
    CourierIntake,
    CourierSignature,
)
from .signatures import SignatureMeta
from .workload import Courier, problem_at_intake

_MAX_PROBLEMS: Final = 20

_SAFE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_IDENTIFIER = re.compile(IDENTIFIER_PATTERN)

_LONG_KEY: Final = "give an idempotencyKey: <source>:<eventId> is longer than 200 characters"
_UNKNOWN_FIELD: Final = "is not a field of an event; put facts of your own inside payload"


class CourierAdmission:
    """Admission for ``POST /v1/events/courier``, once the signature has been verified."""

    def __init__(self, workload: Courier) -> None:
        self.workload = workload

    def admit(self, body: object, *, meta: SignatureMeta, trace_id: str, received_at: datetime) -> CourierEvent:
        """The job for this body. Raises :class:`InvalidContent`, which names fields and never repeats values.

        The job is not validated again: every part of it was validated here or comes from our own code.
        """
        try:
            intake = CourierIntake.model_validate(body)
            signature = CourierSignature(algorithm=meta.algorithm, timestamp=meta.timestamp, signature=meta.signature)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            raise InvalidContent([_problem(each) for each in found[:_MAX_PROBLEMS]]) from None
        key = intake.idempotencyKey or f"{intake.source}:{intake.eventId}"
        if not _IDENTIFIER.fullmatch(key):
            raise InvalidContent([FieldProblem("body", _LONG_KEY)])
        problem = problem_at_intake(intake.occurredAt, received_at, self.workload.retention)
        if problem is not None:
            raise InvalidContent([FieldProblem("occurredAt", problem)])
        if not _IDENTIFIER.fullmatch(trace_id):
            raise InvalidContent([FieldProblem("traceId", IDENTIFIER_RULE)])
        return CourierEvent.model_construct(
            eventId=intake.eventId,
            eventType=intake.eventType,
            occurredAt=intake.occurredAt,
            source=intake.source,
            idempotencyKey=key,
            traceId=trace_id,
            signatureMeta=signature.model_dump(),
            payload=intake.payload,
            receivedAt=received_at.astimezone(UTC).replace(microsecond=received_at.microsecond // 1000 * 1000),
            attempt=1,
        )

    def intake_schema(self) -> dict[str, Any]:
        """The JSON Schema of the body, without references, so that it fits anywhere in an OpenAPI document.

        The example has the present time: an event with a fixed date would become too old to be accepted.
        """
        schema = CourierIntake.model_json_schema()
        definitions = schema.pop("$defs", {})
        inlined: dict[str, Any] = _inlined(schema, definitions)
        inlined["examples"] = [
            example | {"occurredAt": isoformat(datetime.now(UTC))} for example in inlined["examples"]
        ]
        return inlined


def _problem(error: Mapping[str, Any]) -> FieldProblem:
    kind, context = error["type"], error.get("ctx", {})
    if kind == NOT_PORTABLE:
        return FieldProblem(_path((*error["loc"], *context["path"])), context["problem"])
    if not error["loc"] and kind == "model_type":
        return FieldProblem("body", "must be a JSON object")
    sentence = _UNKNOWN_FIELD if kind == "extra_forbidden" else sentence_of(error)
    return FieldProblem(_path(error["loc"]), sentence)


def _path(parts: tuple[str | int, ...]) -> str:
    """The field, as ``payload.items.0``. A part that does not look like a name may be a value: it is shown as ``*``."""
    shown = [str(part) if isinstance(part, int) or _SAFE_NAME.fullmatch(part) else "*" for part in parts]
    return ".".join(shown) or "body"


def _inlined(node: Any, definitions: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any part of a JSON Schema
    if isinstance(node, list):
        return [_inlined(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return _inlined(
            {**definitions[name], **{key: value for key, value in node.items() if key != "$ref"}}, definitions
        )
    return {key: _inlined(value, definitions) for key, value in node.items()}
