"""``POST /v1/events/courier``: the intake of signed courier events.

This is the hot path. It is a plain ASGI callable, and the app calls it before any routing or middleware. Our own server
does not even make an ASGI request: it gives the whole body to :meth:`CourierEndpoint.take`. The order of the steps is a
guarantee: the size is checked before the body is read, the signature before the body is parsed, and the
event is recorded before it is acknowledged (I1).

The admission turns the body of a verified request into a job, or refuses the body.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii
from types import MappingProxyType
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import to_json

from holdfast import FieldProblem, InvalidContent, isoformat, sentence_of
from holdfast.feature import NewEntry, Receipt, RecordedAs, Sender, TenantLimits, job_id_for, sent_labels
from holdfast.http import (
    BODY_HEADERS,
    CONTENT_LENGTH,
    REQUEST_ID,
    TRACEPARENT,
    AsgiRoute,
    Code,
    Disconnected,
    FeatureRoutes,
    Frame,
    Headers,
    Receive,
    Refusal,
    Reply,
    Scope,
    Send,
    Shortcut,
    pick,
    read_body,
    refusal_of_any,
    reply_refusal,
    require_plain_json,
    send_json,
    send_refusal,
    strict_json,
    valid_trace_id,
)

from .contract import (
    IDENTIFIER_PATTERN,
    IDENTIFIER_RULE,
    NOT_PORTABLE,
    CourierIntake,
)
from .feature import COURIER_PATH, CourierService
from .routes import CHAPTER, SECURITY_SCHEMES, courier_operation, event_routes, shipment_routes
from .signatures import INVALID_SIGNATURE, SIGNATURE_HEADERS, SignatureMeta, SourceSecret, Verifier
from .workload import Courier, facts_of, fingerprint_of, labels_of, problem_at_intake

_MAX_PROBLEMS: Final = 20

_SAFE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_IDENTIFIER = re.compile(IDENTIFIER_PATTERN)
_SIGNATURE = re.compile(r"[ -~]{1,4000}")

_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
_LONG_KEY: Final = "give an idempotencyKey: <source>:<eventId> is longer than 200 characters"
_UNUSABLE_SIGNATURE: Final = "must be 1 to 4000 printable ASCII characters"
_UNKNOWN_FIELD: Final = "is not a field of an event; put facts of your own inside payload"


class CourierAdmission:
    """Admission for ``POST /v1/events/courier``, once the signature has been verified."""

    def __init__(self, workload: Courier) -> None:
        self.workload = workload

    def admit(
        self,
        body: object,
        *,
        meta: SignatureMeta,
        trace_id: str,
        received_at: datetime,
        labels: Mapping[str, str] = _NO_LABELS,
    ) -> NewEntry:
        """The entry for this body. Raises :class:`InvalidContent`, which names fields and never repeats values.

        The entry is the one that ``new_entry`` would make of the same event, in one pass: every part of it was
        validated here or comes from our own code. ``labels`` are more labels; the event's own win.
        """
        try:
            intake = CourierIntake.model_validate(body)
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
        if not _SIGNATURE.fullmatch(meta.signature):
            raise InvalidContent([FieldProblem("signature", _UNUSABLE_SIGNATURE)])
        event = {
            "eventId": intake.eventId,
            "eventType": intake.eventType,
            "occurredAt": isoformat(intake.occurredAt),
            "source": intake.source,
            "idempotencyKey": key,
            "traceId": trace_id,
            "signatureMeta": {"algorithm": meta.algorithm, "timestamp": meta.timestamp, "signature": meta.signature},
            "payload": facts_of(intake.payload),
            "receivedAt": isoformat(received_at),
            "attempt": 1,
        }
        workload = self.workload
        return NewEntry(
            workload=workload.name,
            key=key,
            job_id=job_id_for(key),
            body=to_json(event).decode(),
            fingerprint=fingerprint_of(event),
            labels={**labels, **labels_of(event)},
            ttl=workload.ttl,
            ttl_includes_replays=workload.ttl_includes_replays,
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


_WANTED: Final = BODY_HEADERS | SIGNATURE_HEADERS | {REQUEST_ID, TRACEPARENT}


def courier_routes(courier: CourierService, frame: Frame) -> FeatureRoutes:
    """The intake with its description, and what operators read."""
    admission, guard = CourierAdmission(courier.workload), frame.operators_only()
    endpoint = CourierEndpoint(admission, courier, frame.max_body_bytes)
    intake = AsgiRoute(
        path=COURIER_PATH,
        method="POST",
        app=endpoint,
        shortcut=Shortcut(endpoint.take, frame.max_body_bytes),
        describe=lambda: courier_operation(admission.intake_schema()),
        chapter=CHAPTER,
        security_schemes=SECURITY_SCHEMES,
    )
    return FeatureRoutes([event_routes(courier, guard), shipment_routes(courier, guard)], [intake])


class CourierEndpoint:
    """The intake of signed courier events."""

    def __init__(self, admission: CourierAdmission, courier: CourierService, max_body_bytes: int) -> None:
        self._admission = admission
        self._workload = courier.workload
        self._intake = courier.services.intake
        self._clock = courier.services.clock
        self._ids = courier.services.ids
        self._verifier = Verifier(
            {
                source: [SourceSecret(each.secret.get_secret_value(), each.not_before, each.not_after) for each in held]
                for source, held in courier.settings.courier_secrets.items()
            },
        )
        self._limit = max_body_bytes
        self._limits = courier.services.limits
        rate = TenantLimits(requests_per_second=courier.settings.courier_requests_per_second)
        self._senders = {
            source: Sender(f"courier:{source}", limits=rate) for source in courier.settings.courier_secrets
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request to this path, with any method."""
        headers, repeated = pick(scope["headers"], _WANTED)
        trace_id = self._trace_id(headers, repeated)
        try:
            if scope["method"] != "POST":
                raise Refusal(Code.METHOD_NOT_ALLOWED, headers={"allow": "POST"})  # noqa: TRY301 - answered below
            require_plain_json(headers, repeated)
            raw = await read_body(receive, headers.get(CONTENT_LENGTH), self._limit)
        except Disconnected:
            return
        except Exception as error:  # noqa: BLE001 - the outermost frame: every error gets an answer
            await send_refusal(send, refusal_of_any(error, trace_id), trace_id)
            return
        answered: asyncio.Future[tuple[int, bytes, str, Headers]] = asyncio.get_running_loop().create_future()

        def reply(status: int, body: bytes, trace_id: str, headers: Headers = ()) -> None:
            if not answered.done():
                answered.set_result((status, body, trace_id, headers))

        self._take(headers, repeated, raw, _Answer(reply, trace_id))
        await send_json(send, *await answered)

    def take(self, all_headers: Headers, raw: bytes, reply: Reply) -> None:
        """Answer a POST whose body has arrived: see :class:`Shortcut`."""
        headers, repeated = pick(all_headers, _WANTED)
        self._take(headers, repeated, raw, _Answer(reply, self._trace_id(headers, repeated)))

    def _trace_id(self, headers: Mapping[bytes, bytes], repeated: set[bytes]) -> str:
        sent = None if REQUEST_ID in repeated else headers.get(REQUEST_ID)
        return valid_trace_id(sent) or self._ids.new("req")

    def _take(self, headers: Mapping[bytes, bytes], repeated: set[bytes], raw: bytes, answer: _Answer) -> None:
        try:
            require_plain_json(headers, repeated)
            self._accept(headers, repeated, raw, answer)
        except Exception as error:  # noqa: BLE001 - the outermost frame: every error gets an answer
            answer.set_exception(error)

    def _accept(self, headers: Mapping[bytes, bytes], repeated: set[bytes], raw: bytes, answer: _Answer) -> None:
        received_at = self._clock.now()
        if not repeated.isdisjoint(SIGNATURE_HEADERS):
            raise Refusal(INVALID_SIGNATURE)
        verified = self._verifier.verify(headers, raw, received_at.timestamp())
        if verified is None:
            raise Refusal(INVALID_SIGNATURE)

        body = strict_json.parse_object(raw)
        source = body.get("source")
        # The contract refuses a source that is not text. A source that is text must own the secret.
        if isinstance(source, str) and source not in verified.sources:
            raise Refusal(INVALID_SIGNATURE)
        sender = self._senders.get(source) if isinstance(source, str) else None
        if sender is not None and (too_fast := self._limits.count_now(sender)) is not None:
            self._limits.hold_back(too_fast, answer.set_exception)
            return
        entry = self._admission.admit(
            body,
            meta=verified.meta,
            trace_id=answer.trace_id,
            received_at=received_at,
            labels=_sent_labels(headers, repeated),
        )
        if not isinstance(source, str):
            raise InvalidContent(())
        self._intake.begin(self._workload, entry, answer, sender=sender)


def _sent_labels(headers: Mapping[bytes, bytes], repeated: set[bytes]) -> Mapping[str, str]:
    """What the request says about itself. The event has a trace id of its own, so the request needs none."""
    if REQUEST_ID not in headers and TRACEPARENT not in headers:
        return _NO_LABELS
    sent = {name: value for name, value in headers.items() if name not in repeated}
    return sent_labels(valid_trace_id(sent.get(REQUEST_ID)), sent.get(TRACEPARENT, b"").decode("latin-1"))


class _Answer:
    """The answer to one request. It is sent when the ledger has the event, or when the event is refused."""

    __slots__ = ("_reply", "trace_id")

    def __init__(self, reply: Reply, trace_id: str) -> None:
        self._reply = reply
        self.trace_id = trace_id

    def done(self) -> bool:
        """Whether nobody waits for it: only the connection knows."""
        return False

    def set_result(self, receipt: Receipt) -> None:
        """The ledger has the event."""
        if receipt.recorded_as is RecordedAs.CONFLICT:
            self.set_exception(Refusal(Code.IDEMPOTENCY_CONFLICT))
        else:
            self._reply(202, _acknowledgement(receipt, self.trace_id), self.trace_id)

    def set_exception(self, error: Exception) -> None:
        """The event is refused."""
        reply_refusal(self._reply, refusal_of_any(error, self.trace_id), self.trace_id)


def _acknowledgement(receipt: Receipt, trace_id: str) -> bytes:
    """The 202 body. A duplicate gets the first receipt again: the values of the first entry."""
    text = encode_basestring_ascii
    labels = receipt.labels
    return (
        f'{{"acknowledged":true,"eventId":{text(labels.get("eventId", ""))}'
        f',"idempotencyKey":{text(receipt.key)}'
        f',"traceId":{text(labels.get("traceId") or trace_id)}'
        f',"queued":{"true" if receipt.queued else "false"}'
        f',"duplicate":{"true" if receipt.recorded_as is RecordedAs.DUPLICATE else "false"}'
        f',"receivedAt":{text(labels.get("receivedAt") or isoformat(receipt.received_at))}}}'
    ).encode("ascii")
