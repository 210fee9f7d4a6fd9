"""``POST /v1/events/courier``: the door that couriers push their events through.

This is the hot path, so it is a plain ASGI callable that the app reaches before any routing or middleware. The order of
its steps is a promise: a request is measured before it is read, verified before it is parsed, and recorded before it is
acknowledged (I1).
"""

from __future__ import annotations

from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any, Final

from holdfast.contracts.admission import InvalidContent
from holdfast.contracts.errors import HoldfastError
from holdfast.contracts.ledger import RecordedAs
from holdfast.contracts.times import isoformat
from holdfast.engine.intake import Receipt

from . import strict_json
from .answering import send_json, send_refusal
from .errors import Code, Refusal, intake_refusal_of
from .reading import (
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
    sound_trace_id,
)
from .services import ApiOptions, ApiServices, CourierAdmission
from .unexpected import report_unexpected
from .verify import SIGNATURE_HEADERS, Verifier

COURIER_PATH: Final = "/v1/events/courier"

_WANTED: Final = BODY_HEADERS | SIGNATURE_HEADERS | {REQUEST_ID}


class CourierIntake:
    """The signed door of the courier workload."""

    def __init__(self, admission: CourierAdmission, services: ApiServices, options: ApiOptions) -> None:
        self._admission = admission
        self._workload = admission.workload
        self._intake = services.intake
        self._clock = services.clock
        self._ids = services.ids
        self._verifier = Verifier(options.secrets, options.tolerance)
        self._limit = options.max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request to this path, whatever its method."""
        headers, repeated = pick(scope["headers"], _WANTED)
        sent_id = None if REQUEST_ID in repeated else headers.get(REQUEST_ID)
        trace_id = sound_trace_id(sent_id) or self._ids.new("req")
        try:
            body = await self._accept(scope["method"], headers, repeated, receive, trace_id)
        except Disconnected:
            return
        except Exception as error:  # noqa: BLE001 - the last frame of the request: whatever it is, it gets an answer
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
        vouched = self._verifier.vouch(headers, raw, received_at.timestamp())
        if vouched is None:
            raise Refusal(Code.INVALID_SIGNATURE)

        document = _event(raw)
        source = document.get("source")
        # A source that is not text is the contract's to refuse; any text must be a name that the secret vouches for.
        if isinstance(source, str) and source not in vouched.sources:
            raise Refusal(Code.INVALID_SIGNATURE)
        data = self._admission.admit(document, meta=vouched.meta, trace_id=trace_id, received_at=received_at)
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
        report_unexpected(error, trace_id)
    return refusal


def _event(raw: bytes) -> dict[str, Any]:
    try:
        document = strict_json.parse(raw)
    except strict_json.NotStrictJson as error:
        raise Refusal(Code.INVALID_PAYLOAD, str(error)) from error
    if not isinstance(document, dict):
        raise Refusal(Code.INVALID_PAYLOAD, "The body must be a JSON object.")
    return document


def _acknowledgement(receipt: Receipt, trace_id: str) -> bytes:
    """The 202 body. A duplicate gets the first receipt again: the facts are those of the entry that stands."""
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
