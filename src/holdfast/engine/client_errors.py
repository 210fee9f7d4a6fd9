"""Errors of client libraries, classified by what happens next.

Handlers call other servers with libraries of their choice. None of these libraries is imported here: their errors are
recognised by the names of their classes, by the attributes of an HTTP answer, and by the system error that caused them.

Two rules keep a job from becoming a dead letter too early. An error of the network counts wherever it is in the chain
of causes. An error that can never pass counts only if the handler does not catch it, or raises another error ``from``
it: an error that the handler caught before it failed does not describe the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from holdfast.contracts.errors import message_of
from holdfast.contracts.network_failures import (
    NETWORK,
    REFUSED,
    RESET,
    THROTTLED,
    TIMEOUT,
    UNKNOWN_HOST,
    answer_code,
    answer_may_pass,
    causes,
    retry_after,
    system_code,
    wait_asked_by,
)
from holdfast.contracts.outcomes import Failure
from holdfast.contracts.redaction import scrub

_LONGEST_TEXT: Final = 2_000

# By library and class. A subclass counts as its nearest class in this table.
_CLASSES: Final[Mapping[str, str]] = {
    "httpx.TimeoutException": TIMEOUT,
    "httpx.ConnectError": NETWORK,
    "httpx.NetworkError": RESET,
    "httpx.RemoteProtocolError": RESET,
    "httpx.ProxyError": NETWORK,
    "requests.Timeout": TIMEOUT,
    "requests.ConnectionError": NETWORK,
    "requests.ChunkedEncodingError": RESET,
    "urllib3.TimeoutError": TIMEOUT,
    "urllib3.MaxRetryError": NETWORK,
    "urllib3.ProtocolError": RESET,
    "aiohttp.ServerDisconnectedError": RESET,
    "aiohttp.ClientPayloadError": RESET,
    "aiohttp.ClientConnectionError": NETWORK,
    "botocore.ConnectTimeoutError": TIMEOUT,
    "botocore.ReadTimeoutError": TIMEOUT,
    "botocore.ConnectionClosedError": RESET,
    "botocore.ResponseStreamingError": RESET,
    "botocore.IncompleteReadError": RESET,
    "botocore.ConnectionError": NETWORK,
    "botocore.HTTPClientError": NETWORK,
    "redis.TimeoutError": TIMEOUT,
    "redis.ConnectionError": NETWORK,
    "pymongo.NetworkTimeout": TIMEOUT,
    "pymongo.ServerSelectionTimeoutError": TIMEOUT,
    "pymongo.ExecutionTimeout": TIMEOUT,
    "pymongo.WTimeoutError": TIMEOUT,
    "pymongo.ConnectionFailure": NETWORK,
}
_SAME_AS: Final = {"httpcore": "httpx", "httpx2": "httpx", "httpcore2": "httpx", "aiobotocore": "botocore"}

# AWS uses the status 400 for some of these, which would otherwise be a permanent refusal.
_AWS_THROTTLES: Final = re.compile(
    r"throttl|toomanyrequests|slowdown|(request|bandwidth)limitexceeded|throughputexceeded", re.IGNORECASE
)
_AWS_TIMEOUTS: Final = re.compile(r"requesttimeout", re.IGNORECASE)

_NETWORK_WORDS: Final = (
    (REFUSED, re.compile(r"\beconnrefused\b|\bconnection refused\b", re.IGNORECASE)),
    (RESET, re.compile(r"\beconnreset\b|\bconnection (was )?reset\b", re.IGNORECASE)),
    (UNKNOWN_HOST, re.compile(r"\benotfound\b|\bname or service not known\b|\bname resolution\b", re.IGNORECASE)),
    (TIMEOUT, re.compile(r"\betimedout\b|\btimed out\b|\btime ?out\b", re.IGNORECASE)),
)


def client_failure(error: BaseException) -> Failure | None:
    """The failure behind an error of a client library. None: the error is not known as one."""
    raised = list(raised_from(error))
    for each in raised:
        answered = _answer(each)
        if answered is not None:
            return answered
    code = _network_code(error, raised)
    if code is None:
        return None
    return Failure(code, f"{_name(error)}: {_SENTENCES.get(code, f'the network failed ({code})')}.", retry=True)


_SENTENCES: Final[Mapping[str, str]] = {
    TIMEOUT: "the other side did not answer in time",
    UNKNOWN_HOST: "the other side's host name is not known (ENOTFOUND)",
    RESET: "the other side broke off the connection (ECONNRESET)",
    REFUSED: "the other side refused the connection (ECONNREFUSED)",
}


def raised_from(error: BaseException) -> Iterator[BaseException]:
    """The error, and the causes that were named with ``raise ... from``."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__


def words_of(error: BaseException) -> str:
    """The class's name and the message as words: ``InvalidPayload`` and ``INVALID_PAYLOAD`` are ``invalid payload``."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", type(error).__name__)
    return re.sub(r"[_-]+", " ", f"{name}: {message_of(error)[:_LONGEST_TEXT]}")


def _name(error: BaseException) -> str:
    library = type(error).__module__.partition(".")[0]
    return type(error).__name__ if library == "builtins" else f"{library}.{type(error).__name__}"


# --- an answer that is an error ---------------------------------------------------------------------------------


def _answer(error: BaseException) -> Failure | None:
    """The failure behind an HTTP answer that a client turned into an error."""
    try:
        status, headers, aws_code = _status(error)
    except Exception:  # noqa: BLE001 - attributes of other people's errors may be anything, and may raise
        return None
    if status is None or status < HTTPStatus.MULTIPLE_CHOICES:
        return None  # the answer succeeded, and the error is about something else
    message = f"{_name(error)}: the other side answered {status}{f' ({aws_code})' if aws_code else ''}."
    after = retry_after(headers.get("retry-after"), datetime.now(UTC)) if wait_asked_by(status) else None
    if _AWS_THROTTLES.search(aws_code):
        return Failure(THROTTLED, scrub(message), retry=True, after=after)
    if _AWS_TIMEOUTS.search(aws_code):
        return Failure(TIMEOUT, scrub(message), retry=True)
    # Only a 4xx means that the request is at fault. A redirect does not.
    may_pass = status < HTTPStatus.BAD_REQUEST or answer_may_pass(status)
    return Failure(answer_code(status), scrub(message), retry=may_pass, after=after)


def _status(error: Any) -> tuple[int | None, Mapping[str, str], str]:  # noqa: ANN401 - errors of any library
    """The status of the answer, its headers by their names in lower case, and AWS's name of the error."""
    response = getattr(error, "response", None)
    status, headers, aws_code = None, None, ""
    if isinstance(response, Mapping):  # botocore, aiobotocore
        metadata = response.get("ResponseMetadata", {})
        status, headers = metadata.get("HTTPStatusCode"), metadata.get("HTTPHeaders")
        aws_code = str(response.get("Error", {}).get("Code", ""))
    elif response is not None:  # httpx, requests
        status, headers = getattr(response, "status_code", None), getattr(response, "headers", None)
    elif _is_from("aiohttp", error):
        status, headers = getattr(error, "status", None), getattr(error, "headers", None)
    elif _is_from("urllib", error):
        status, headers = getattr(error, "code", None), getattr(error, "headers", None)
    readable = {str(name).lower(): str(value) for name, value in dict(headers or {}).items()}
    return (status if isinstance(status, int) else None), readable, aws_code


def _is_from(library: str, error: object) -> bool:
    return any(each.__module__.partition(".")[0] == library for each in type(error).__mro__)


# --- no answer --------------------------------------------------------------------------------------------------


def _network_code(error: BaseException, raised: list[BaseException]) -> str | None:
    """The name of a network failure: by the system error, else by the message, else by the library's class."""
    chain = list(causes(error))
    for each in chain:
        code = system_code(each)
        if code is not None:
            return code
    known = next(filter(None, map(_known_class, chain)), None)
    worded = next((code for each in raised for code, words in _NETWORK_WORDS if words.search(words_of(each))), None)
    return worded or known


def _known_class(error: BaseException) -> str | None:
    for each in type(error).__mro__:
        library = each.__module__.partition(".")[0]
        code = _CLASSES.get(f"{_SAME_AS.get(library, library)}.{each.__name__}")
        if code is not None:
            return code
    return None
