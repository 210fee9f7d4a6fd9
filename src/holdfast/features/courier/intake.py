"""``POST /v1/events/courier``: the intake of signed courier events.

This is the hot path. It is a plain ASGI callable, and the app calls it before any routing or middleware. The order of
the steps is a guarantee: the size is checked before the body is read, the signature before the body is parsed, and the
event is recorded before it is acknowledged (I1).
"""

from __future__ import annotations

from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any, Final

from holdfast.api import strict_json
from holdfast.api.answering import send_json, send_refusal
from holdfast.api.errors import Code, Refusal, intake_refusal_of
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
from holdfast.api.services import ApiOptions, ApiServices, CourierAdmission
from holdfast.contracts.admission import InvalidContent
from holdfast.contracts.errors import HoldfastError
from holdfast.contracts.ledger import RecordedAs
from holdfast.contracts.times import isoformat
from holdfast.engine.intake import Receipt
from holdfast.telemetry import emit_failure, events

from .signatures import SIGNATURE_HEADERS, Verifier

COURIER_PATH: Final = "/v1/events/courier"

_WANTED: Final = BODY_HEADERS | SIGNATURE_HEADERS | {REQUEST_ID}


class CourierIntake:
    """The intake of signed courier events."""

    def __init__(self, admission: CourierAdmission, services: ApiServices, options: ApiOptions) -> None:
        self._admission = admission
        self._workload = admission.workload
        self._intake = services.intake
        self._clock = services.clock
        self._ids = services.ids
        self._verifier = Verifier(options.secrets, options.tolerance)
        self._limit = options.max_body_bytes

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
