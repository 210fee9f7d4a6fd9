"""What a client raises.

::

    HoldfastClientError
    ├── Unreachable            no answer came; ``arrived`` tells whether the request may have been done
    ├── UnexpectedAnswer       an answer came, but not one of Holdfast's API
    ├── Refused                the API answered with an error; nothing was accepted
    │   ├── InvalidContent     400, 413, 415, 422: ``details`` name the fields that are wrong
    │   ├── Unauthorized       401: the key, the token or the signature is wrong or missing
    │   ├── Forbidden          403: the key does not have the scope, or its tenant is not active
    │   ├── NotFound           404: there is no such record, or it belongs to another tenant
    │   ├── Conflict           409: another content has this key, or the state does not allow this step
    │   ├── TooManyRequests    429: after all tries; ``retry_after`` tells when to come back
    │   └── Unavailable        502, 503, 504: after all tries
    ├── JobError               a job did not end with a result
    │   ├── JobFailed          it is a dead letter: ``code``, ``message``, ``letter_id``
    │   ├── JobExpired         its time was over before it was done
    │   └── JobCancelled       somebody cancelled it
    └── InvalidSignature       a webhook is not signed with one of the given secrets

``result`` and ``wait`` raise Python's own ``TimeoutError`` when their time is over. Wrong arguments are ``ValueError``
and ``TypeError``. No message has a key, a token, a secret or a value of the sender's data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


class HoldfastClientError(Exception):
    """The base of all errors of the client."""


class Unreachable(HoldfastClientError):
    """No answer came, after all tries.

    ``arrived`` is false if no connection was made: nothing was done. If it is true, the request may have been done.
    Sending a job, an event, an email or a document again is safe in both cases.
    """

    def __init__(self, address: str, cause: str, arrived: bool) -> None:  # noqa: FBT001 - pickle gives arguments so
        super().__init__(address, cause, arrived)
        self.address = address
        self.cause = cause
        self.arrived = arrived

    def __str__(self) -> str:
        if self.arrived:
            return f"No answer from {self.address} ({self.cause}): it is not known whether the request was done."
        return f"Cannot reach {self.address} ({self.cause}): nothing was sent."


class UnexpectedAnswer(HoldfastClientError):
    """The answer is not one of Holdfast's API; the address may be wrong."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One field that is wrong, and why. The value is never shown."""

    field: str
    problem: str


class Refused(HoldfastClientError):
    """The API refused the request, and accepted nothing.

    ``code`` is for programs, ``message`` for people. ``trace_id`` finds the request in the log of the service.
    ``retry_after`` is in seconds.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: tuple[Problem, ...] = (),
        trace_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(status, code, message, details, trace_id, retry_after)
        self.status = status
        self.code = code
        self.message = message
        self.details = details
        self.trace_id = trace_id
        self.retry_after = retry_after

    def __str__(self) -> str:
        sentences = [f"{self.status} {self.code}: {self.message}"]
        sentences += [f"{each.field}: {each.problem}." for each in self.details]
        if self.trace_id is not None:
            sentences.append(f"(trace id {self.trace_id})")
        return " ".join(sentences)


class InvalidContent(Refused):
    """The request does not fulfil its contract."""


class Unauthorized(Refused):
    """The key, the token or the signature is wrong or missing."""


class Forbidden(Refused):
    """The key is right, but it may not do this."""


class NotFound(Refused):
    """There is no such record, or it belongs to another tenant."""


class Conflict(Refused):
    """Another content was accepted under this key, or the state does not allow this step."""


class TooManyRequests(Refused):
    """The service is busy, or the sender's limit is reached."""


class Unavailable(Refused):
    """The service cannot do this now."""


_CLASSES: Final[Mapping[int, type[Refused]]] = {
    400: InvalidContent,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: InvalidContent,
    415: InvalidContent,
    422: InvalidContent,
    429: TooManyRequests,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def refusal(status: int, document: object, retry_after: float | None = None) -> Refused:
    """The error for an answer with this status and this body."""
    made = _CLASSES.get(status, Refused)
    if not isinstance(document, dict) or not isinstance(document.get("errorCode"), str):
        message = "This is not an answer of Holdfast's API: something before it answered, or the address is wrong."
        return made(status, f"HTTP_{status}", message, retry_after=retry_after)
    listed = document.get("details")
    details = tuple(
        Problem(str(each.get("field")), str(each.get("problem")))
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict)
    )
    trace_id = document.get("traceId")
    return made(
        status,
        document["errorCode"],
        str(document.get("message", "")),
        details,
        trace_id if isinstance(trace_id, str) else None,
        retry_after,
    )


class JobError(HoldfastClientError):
    """A job ended without a result."""

    def __init__(self, workload: str, key: str, code: str, message: str, letter_id: str | None = None) -> None:
        super().__init__(workload, key, code, message, letter_id)
        self.workload = workload
        self.key = key
        self.code = code
        self.message = message
        self.letter_id = letter_id

    def __str__(self) -> str:
        letter = "" if self.letter_id is None else f" (dead letter {self.letter_id})"
        return f"{self.workload} {self.key}: {self.code}: {self.message}{letter}"


class JobFailed(JobError):
    """The job failed for good. ``letter_id`` is its dead letter, which a person can read, review and replay."""


class JobExpired(JobError):
    """The time of the job was over before it was done."""


class JobCancelled(JobError):
    """The job was cancelled."""


class InvalidSignature(HoldfastClientError):
    """The webhook is not signed with one of these secrets, or it is too old."""

    def __str__(self) -> str:
        return "The webhook is not signed with one of the given secrets, or its timestamp is not recent."
