"""The errors of the API: one shape, one code for each cause, one sentence for a person.

::

    {"acknowledged": false, "errorCode": "...", "message": "...", "traceId": "..."}     and, where fields are wrong,
    {..., "details": [{"field": "payload.status", "problem": "Field required"}]}

``acknowledged: false`` guarantees that nothing was accepted. No answer repeats what the sender wrote (I14), and no
answer shows internals of the system.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from holdfast.contracts.admission import DelayTooLong, ErrorCode, FieldProblem, InvalidContent, NotAcceptable
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
from holdfast.contracts.redaction import scrub
from holdfast.contracts.tenants import (
    KeyRefused,
    ScopeMissing,
    SenderLimitReached,
    TenantInactive,
    TooFast,
    TooManyPending,
    TooManyStreams,
    TooManyWaiting,
)
from holdfast.contracts.validation import sentence_of


class Code:
    """The causes that all routes share. A feature adds its own: an :class:`ErrorCode` each."""

    MALFORMED_REQUEST = ErrorCode("MALFORMED_REQUEST", 400, "The request is not valid HTTP.")
    INVALID_PAYLOAD = ErrorCode("INVALID_PAYLOAD", 400, "The body does not fulfil its contract.")
    INVALID_QUERY = ErrorCode("INVALID_QUERY", 400, "The query is not valid.")
    UNAUTHORIZED = ErrorCode(
        "UNAUTHORIZED", 401, "This needs the operator token: Authorization: Bearer <OPERATOR_TOKEN>."
    )
    INVALID_API_KEY = ErrorCode(
        "INVALID_API_KEY", 401, "This needs a valid API key: Authorization: Bearer hf_..., or x-api-key."
    )
    TENANT_INACTIVE = ErrorCode("TENANT_INACTIVE", 403, "The operator of this service has deactivated the tenant.")
    MISSING_SCOPE = ErrorCode("MISSING_SCOPE", 403, "The API key does not have the scope that this needs.")
    NOT_FOUND = ErrorCode("NOT_FOUND", 404, "There is no such record.")
    METHOD_NOT_ALLOWED = ErrorCode("METHOD_NOT_ALLOWED", 405, "This path does not have that method.")
    REQUEST_TIMEOUT = ErrorCode("REQUEST_TIMEOUT", 408, "The body stopped arriving, and the time limit is over.")
    IDEMPOTENCY_CONFLICT = ErrorCode(
        "IDEMPOTENCY_CONFLICT", 409, "Another request was accepted under this idempotency key."
    )
    REVIEW_STATE_CONFLICT = ErrorCode(
        "REVIEW_STATE_CONFLICT", 409, "The dead letter is not in a state that allows this step."
    )
    TOO_LATE = ErrorCode("TOO_LATE", 409, "The job has ended, or it is in work and cannot be stopped.")
    TOO_LATE_TO_CANCEL = ErrorCode("TOO_LATE_TO_CANCEL", 409, "It is too late to cancel this.")
    NOT_FINISHED = ErrorCode("NOT_FINISHED", 409, "The job is not finished yet.")
    GONE = ErrorCode("GONE", 410, "The files of this result are not kept any more.")
    PAYLOAD_TOO_LARGE = ErrorCode("PAYLOAD_TOO_LARGE", 413, "The body is too large.")
    URI_TOO_LONG = ErrorCode("URI_TOO_LONG", 414, "The path with its query is too long.")
    UNSUPPORTED_MEDIA_TYPE = ErrorCode(
        "UNSUPPORTED_MEDIA_TYPE", 415, "The body must be application/json in UTF-8, and not compressed."
    )
    NOT_ACCEPTABLE = NotAcceptable.code
    INVALID_DELAY = ErrorCode("INVALID_DELAY", 422, "The job would expire before its delay is over.")
    NOT_INDEXED = ErrorCode("NOT_INDEXED", 422, "Nothing can be found by this name: there is no index for it.")
    TOO_MANY_REQUESTS = ErrorCode(
        "TOO_MANY_REQUESTS", 429, "Too many requests are waiting to be recorded; try again shortly.", retry_after=1
    )
    TOO_MANY_WRONG_KEYS = ErrorCode(
        "TOO_MANY_WRONG_KEYS", 429, "Too many wrong keys were sent; a right one is still accepted.", retry_after=1
    )
    TOO_MANY_PER_SECOND = ErrorCode(
        "TOO_MANY_PER_SECOND", 429, "You send more requests per second than you may; send fewer.", retry_after=1
    )
    TOO_MANY_PENDING = ErrorCode(
        "TOO_MANY_PENDING", 429, "Too many of your requests wait to be recorded; try again shortly.", retry_after=1
    )
    TOO_MANY_WAITING = ErrorCode(
        "TOO_MANY_WAITING", 429, "Too many of your jobs are not finished yet; try again later.", retry_after=5
    )
    TOO_MANY_STREAMS = ErrorCode(
        "TOO_MANY_STREAMS", 429, "Too many of your streams are open; close one, or read the status.", retry_after=5
    )
    HEADER_TOO_LARGE = ErrorCode("HEADER_TOO_LARGE", 431, "The request has too many headers, or too long ones.")
    INTERNAL_ERROR = ErrorCode("INTERNAL_ERROR", 500, "An unexpected error occurred; search the log for the trace id.")
    INTAKE_UNAVAILABLE = ErrorCode(
        "INTAKE_UNAVAILABLE", 503, "The ledger cannot record this now; try again later.", retry_after=5
    )
    SERVICE_UNAVAILABLE = ErrorCode(
        "SERVICE_UNAVAILABLE", 503, "The records cannot be reached now; try again later.", retry_after=5
    )
    TOO_MANY_CONNECTIONS = ErrorCode(
        "TOO_MANY_CONNECTIONS", 503, "Too many connections are open; try again later.", retry_after=5
    )


class Refusal(Exception):
    """A request that is answered with an error."""

    def __init__(
        self,
        code: ErrorCode,
        message: str | None = None,
        *,
        details: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code.value)
        self.code = code
        self.message = message or code.message
        self.details = tuple(details)
        self.headers = dict(headers or {})
        if code.retry_after is not None:
            self.headers.setdefault("retry-after", str(code.retry_after))

    @property
    def status(self) -> int:
        """The HTTP status of this code."""
        return self.code.status

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
        case TenantInactive():
            refusal = Refusal(Code.TENANT_INACTIVE)
        case SenderLimitReached():
            refusal = Refusal(_LIMITS[type(error)], headers={"retry-after": str(error.retry_after)})
        case ScopeMissing():
            refusal = Refusal(Code.MISSING_SCOPE, error.message)
        case NotAcceptable():
            refusal = Refusal(error.code, details=error.problems)
        case UploadTooLarge():
            refusal = Refusal(Code.PAYLOAD_TOO_LARGE, "The file is too large.")
    return refusal


_LIMITS: Final[Mapping[type[SenderLimitReached], ErrorCode]] = {
    TooFast: Code.TOO_MANY_PER_SECOND,
    TooManyPending: Code.TOO_MANY_PENDING,
    TooManyWaiting: Code.TOO_MANY_WAITING,
    TooManyStreams: Code.TOO_MANY_STREAMS,
}


def _other_refusal(error: HoldfastError) -> Refusal:
    match error:
        case DelayTooLong():
            refusal = Refusal(Code.INVALID_DELAY, details=error.problems)
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


# --- the problems of an invalid request: one for each wrong field, without the values (I14) ---------------------------

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
