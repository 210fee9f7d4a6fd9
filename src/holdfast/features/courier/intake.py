"""``POST /v1/events/courier``: the intake of signed courier events.

This is the hot path. It is a plain ASGI callable, and the app calls it before any routing or middleware. The order of
the steps is a guarantee: the size is checked before the body is read, the signature before the body is parsed, and the
event is recorded before it is acknowledged (I1).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from json.encoder import encode_basestring_ascii
from typing import Any, Final

from holdfast.api import strict_json
from holdfast.api.answering import send_json, send_refusal
from holdfast.api.errors import Code, Refusal, intake_refusal_of
from holdfast.api.frame import Endpoint, Frame, Routes
from holdfast.api.reading import (
    BODY_HEADERS,
    CONTENT_LENGTH,
    REQUEST_ID,
    Disconnected,
    Receive,
    Scope,
    Send,
    pick,
    read_body,
    require_plain_json,
    valid_trace_id,
)
from holdfast.contracts.admission import InvalidContent
from holdfast.contracts.errors import HoldfastError
from holdfast.contracts.ledger import RecordedAs
from holdfast.contracts.times import isoformat
from holdfast.engine.intake import Receipt
from holdfast.telemetry import emit_failure, events

from .admission import CourierAdmission
from .feature import COURIER_PATH, CourierService
from .routes import event_routes, shipment_routes
from .signatures import SIGNATURE_HEADERS, SourceSecret, Verifier

_WANTED: Final = BODY_HEADERS | SIGNATURE_HEADERS | {REQUEST_ID}


def intake_routes(courier: CourierService, frame: Frame) -> Routes:
    """All routes of courier events."""
    operators = [frame.operators_only()]
    return Routes(
        routers=[event_routes(courier, operators), shipment_routes(courier, operators)],
        endpoints={COURIER_PATH: Endpoint(CourierIntake(courier, frame.max_body_bytes))},
    )


class CourierIntake:
    """The intake of signed courier events."""

    def __init__(self, courier: CourierService, max_body_bytes: int) -> None:
        self._admission = CourierAdmission(courier.workload)
        self._workload = courier.workload
        self._intake = courier.services.intake
        self._clock = courier.services.clock
        self._ids = courier.services.ids
        self._verifier = Verifier(
            {
                source: [SourceSecret(each.secret.get_secret_value(), each.not_before, each.not_after) for each in held]
                for source, held in courier.settings.courier_secrets.items()
            },
            timedelta(seconds=courier.settings.signature_tolerance_seconds),
        )
        self._limit = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request to this path, with any method."""
        headers, repeated = pick(scope["headers"], _WANTED)
        sent_id = None if REQUEST_ID in repeated else headers.get(REQUEST_ID)
        trace_id = valid_trace_id(sent_id) or self._ids.new("req")
        try:
            body = await self._accept(scope["method"], headers, repeated, receive, trace_id)
        except Disconnected:
            return
        except Exception as error:  # noqa: BLE001 - the outermost frame: every error gets an answer
            await send_refusal(send, _refusal(error, trace_id), trace_id)
        else:
            await send_json(send, 202, body, trace_id)

    async def _accept(
        self,
        method: str,
        headers: Mapping[bytes, bytes],
        repeated: set[bytes],
        receive: Receive,
        trace_id: str,
    ) -> bytes:
        if method != "POST":
            raise Refusal(Code.METHOD_NOT_ALLOWED, headers={"allow": "POST"})
        require_plain_json(headers, repeated)
        raw = await read_body(receive, headers.get(CONTENT_LENGTH), self._limit)

        received_at = self._clock.now()
        if not repeated.isdisjoint(SIGNATURE_HEADERS):
            raise Refusal(Code.INVALID_SIGNATURE)
        verified = self._verifier.verify(headers, raw, received_at.timestamp())
        if verified is None:
            raise Refusal(Code.INVALID_SIGNATURE)

        body = _parse_event(raw)
        source = body.get("source")
        # The contract refuses a source that is not text. A source that is text must own the secret.
        if isinstance(source, str) and source not in verified.sources:
            raise Refusal(Code.INVALID_SIGNATURE)
        data = self._admission.admit(body, meta=verified.meta, trace_id=trace_id, received_at=received_at)
        if not isinstance(source, str):
            raise InvalidContent(())

        receipt = await self._intake.accept(self._workload, data)
        if receipt.recorded_as is RecordedAs.CONFLICT:
            raise Refusal(Code.IDEMPOTENCY_CONFLICT)
        return _acknowledgement(receipt, trace_id)


def _refusal(error: Exception, trace_id: str) -> Refusal:
    if isinstance(error, Refusal):
        return error
    refusal = intake_refusal_of(error) if isinstance(error, HoldfastError) else Refusal(Code.INTERNAL_ERROR)
    if refusal.code is Code.INTERNAL_ERROR:
        emit_failure(events.API_UNEXPECTED, error, trace_id=trace_id)
    return refusal


def _parse_event(raw: bytes) -> dict[str, Any]:
    try:
        body = strict_json.parse(raw)
    except strict_json.NotStrictJson as error:
        raise Refusal(Code.INVALID_PAYLOAD, str(error)) from error
    if not isinstance(body, dict):
        raise Refusal(Code.INVALID_PAYLOAD, "The body must be a JSON object.")
    return body


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
