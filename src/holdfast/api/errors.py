"""The errors of the API: one shape, one code for each cause, one sentence for a person.

::

    {"acknowledged": false, "errorCode": "...", "message": "...", "traceId": "..."}     and, where fields are wrong,
    {..., "details": [{"field": "payload.status", "problem": "Field required"}]}

``acknowledged: false`` guarantees that nothing was accepted. No answer repeats what the sender wrote (I14), and no
answer shows internals of the system.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from holdfast.contracts.admission import (
    FieldProblem,
    InvalidContent,
    NotAcceptable,
    NotificationRefused,
    RecipientSuppressed,
    UnknownRecipient,
    UnknownReference,
)
from holdfast.contracts.errors import (
    BrokerUnavailable,
    HoldfastError,
    IntakeSaturated,
    InvalidQuery,
    NotFound,
    ReviewRefused,
    StoreUnavailable,
)
from holdfast.contracts.files import FileMissing, FilesUnavailable, UploadTooLarge
from holdfast.contracts.tenants import KeyRefused, ScopeMissing


class Code(StrEnum):
    """The causes of an error, as a client sees them."""

    INVALID_PAYLOAD = "INVALID_PAYLOAD"
    INVALID_QUERY = "INVALID_QUERY"
    INVALID_SIGNATURE = "INVALID_SIGNATURE"
    UNAUTHORIZED = "UNAUTHORIZED"
    INVALID_API_KEY = "INVALID_API_KEY"
    MISSING_SCOPE = "MISSING_SCOPE"
    UNTRUSTED_NOTIFICATION = "UNTRUSTED_NOTIFICATION"
    NOT_FOUND = "NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    REQUEST_TIMEOUT = "REQUEST_TIMEOUT"
    IDEMPOTENCY_CONFLICT = "IDEMPOTENCY_CONFLICT"
    REVIEW_STATE_CONFLICT = "REVIEW_STATE_CONFLICT"
    TOO_LATE_TO_CANCEL = "TOO_LATE_TO_CANCEL"
    NOT_FINISHED = "NOT_FINISHED"
    GONE = "GONE"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    UNSUPPORTED_MEDIA_TYPE = "UNSUPPORTED_MEDIA_TYPE"
    RECIPIENT_SUPPRESSED = "RECIPIENT_SUPPRESSED"
    UNKNOWN_HTML_REF = "UNKNOWN_HTML_REF"
    UNKNOWN_RECIPIENT = "UNKNOWN_RECIPIENT"
    NOT_ACCEPTABLE = "NOT_ACCEPTABLE"
    TOO_MANY_REQUESTS = "TOO_MANY_REQUESTS"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    INTAKE_UNAVAILABLE = "INTAKE_UNAVAILABLE"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"


STATUS_OF: Final[Mapping[Code, int]] = {
    Code.INVALID_PAYLOAD: 400,
    Code.INVALID_QUERY: 400,
    Code.INVALID_SIGNATURE: 401,
    Code.UNAUTHORIZED: 401,
    Code.INVALID_API_KEY: 401,
    Code.MISSING_SCOPE: 403,
    Code.UNTRUSTED_NOTIFICATION: 403,
    Code.NOT_FOUND: 404,
    Code.METHOD_NOT_ALLOWED: 405,
    Code.REQUEST_TIMEOUT: 408,
    Code.IDEMPOTENCY_CONFLICT: 409,
    Code.REVIEW_STATE_CONFLICT: 409,
    Code.TOO_LATE_TO_CANCEL: 409,
    Code.NOT_FINISHED: 409,
    Code.GONE: 410,
    Code.PAYLOAD_TOO_LARGE: 413,
    Code.UNSUPPORTED_MEDIA_TYPE: 415,
    Code.RECIPIENT_SUPPRESSED: 422,
    Code.UNKNOWN_HTML_REF: 422,
    Code.UNKNOWN_RECIPIENT: 422,
    Code.NOT_ACCEPTABLE: 422,
    Code.TOO_MANY_REQUESTS: 429,
    Code.INTERNAL_ERROR: 500,
    Code.INTAKE_UNAVAILABLE: 503,
    Code.SERVICE_UNAVAILABLE: 503,
}

MESSAGES: Final[Mapping[Code, str]] = {
    Code.INVALID_PAYLOAD: "The body does not fulfil its contract.",
    Code.INVALID_QUERY: "The query is not valid.",
    # One message for every cause: the answer gives no hint to a forger.
    Code.INVALID_SIGNATURE: "The request is not signed by its source.",
    Code.UNAUTHORIZED: "This needs the operator token: Authorization: Bearer <OPERATOR_TOKEN>.",
    Code.INVALID_API_KEY: "This needs a valid API key: Authorization: Bearer hf_..., or x-api-key.",
    Code.MISSING_SCOPE: "The API key does not have the scope that this needs.",
    Code.UNTRUSTED_NOTIFICATION: "The notification is not from a topic that is trusted here.",
    Code.NOT_FOUND: "There is no such record.",
    Code.METHOD_NOT_ALLOWED: "This path does not have that method.",
    Code.REQUEST_TIMEOUT: "The body stopped arriving, and the time limit is over.",
    Code.IDEMPOTENCY_CONFLICT: "Another request was accepted under this idempotency key.",
    Code.REVIEW_STATE_CONFLICT: "The dead letter is not in a state that allows this step.",
    Code.TOO_LATE_TO_CANCEL: "It is too late to cancel this.",
    Code.NOT_FINISHED: "The job is not finished yet.",
    Code.GONE: "The files of this result are not kept any more.",
    Code.PAYLOAD_TOO_LARGE: "The body is too large.",
    Code.UNSUPPORTED_MEDIA_TYPE: "The body must be application/json in UTF-8, and not compressed.",
    Code.RECIPIENT_SUPPRESSED: "An address of this email gets no more emails.",
    Code.UNKNOWN_HTML_REF: "The htmlRef refers to no HTML of this tenant.",
    Code.UNKNOWN_RECIPIENT: "The recipientId names no recipient of this tenant.",
    Code.NOT_ACCEPTABLE: "The body fulfils its contract, but it cannot be accepted here.",
    Code.TOO_MANY_REQUESTS: "Too many requests are waiting to be recorded; try again shortly.",
    Code.INTERNAL_ERROR: "An unexpected error occurred; search the log for the trace id.",
    Code.INTAKE_UNAVAILABLE: "The ledger cannot record this now; try again later.",
    Code.SERVICE_UNAVAILABLE: "The records cannot be reached now; try again later.",
}

_RETRY_AFTER: Final[Mapping[Code, str]] = {
    Code.TOO_MANY_REQUESTS: "1",
    Code.INTAKE_UNAVAILABLE: "5",
    Code.SERVICE_UNAVAILABLE: "5",
}


class Refusal(Exception):
    """A request that is answered with an error."""

    def __init__(
        self,
        code: Code,
        message: str | None = None,
        *,
        details: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code.value)
        self.code = code
        self.message = message or MESSAGES[code]
        self.details = tuple(details)
        self.headers = dict(headers or {})
        if code in _RETRY_AFTER:
            self.headers["retry-after"] = _RETRY_AFTER[code]

    @property
    def status(self) -> int:
        """The HTTP status of this code."""
        return STATUS_OF[self.code]

    def body(self, trace_id: str) -> bytes:
        """The answer's body."""
        answer: dict[str, object] = {
            "acknowledged": False,
            "errorCode": self.code.value,
            "message": self.message,
            "traceId": trace_id,
        }
        if self.details:
            answer["details"] = [{"field": each.field, "problem": each.problem} for each in self.details]
        return json.dumps(answer).encode()


def refusal_of(error: HoldfastError) -> Refusal:
    """The answer to an error that the engine or a workload raised."""
    return _admission_refusal(error) or _other_refusal(error)


def _admission_refusal(error: HoldfastError) -> Refusal | None:
    refusal = None
    match error:
        case KeyRefused():
            refusal = Refusal(Code.INVALID_API_KEY, headers={"www-authenticate": 'Bearer realm="holdfast"'})
        case ScopeMissing():
            refusal = Refusal(Code.MISSING_SCOPE, error.message)
        case RecipientSuppressed():
            refusal = Refusal(Code.RECIPIENT_SUPPRESSED, details=error.problems)
        case UnknownReference():
            refusal = Refusal(Code.UNKNOWN_HTML_REF, details=error.problems)
        case UnknownRecipient():
            refusal = Refusal(Code.UNKNOWN_RECIPIENT, details=error.problems)
        case NotAcceptable():
            refusal = Refusal(Code.NOT_ACCEPTABLE, details=error.problems)
        case NotificationRefused():
            refusal = Refusal(Code.UNTRUSTED_NOTIFICATION)
        case UploadTooLarge():
            refusal = Refusal(Code.PAYLOAD_TOO_LARGE, "The file is too large.")
    return refusal


def _other_refusal(error: HoldfastError) -> Refusal:
    match error:
        case InvalidContent():
            refusal = Refusal(Code.INVALID_PAYLOAD, details=error.problems)
        case InvalidQuery():
            refusal = Refusal(Code.INVALID_QUERY, error.message)
        case NotFound():
            refusal = Refusal(Code.NOT_FOUND)
        case ReviewRefused():
            refusal = Refusal(Code.REVIEW_STATE_CONFLICT, error.message)
        case IntakeSaturated():
            refusal = Refusal(Code.TOO_MANY_REQUESTS)
        case FileMissing():
            refusal = Refusal(Code.GONE)
        case StoreUnavailable() | BrokerUnavailable() | FilesUnavailable():
            refusal = Refusal(Code.SERVICE_UNAVAILABLE)
        case _:
            refusal = Refusal(Code.INTERNAL_ERROR)
    return refusal


def intake_refusal_of(error: HoldfastError) -> Refusal:
    """The same for a new job: when the store cannot be reached, the job was not accepted."""
    if isinstance(error, StoreUnavailable | FilesUnavailable):
        return Refusal(Code.INTAKE_UNAVAILABLE)
    return refusal_of(error)
