"""The one place where errors are classified.

A failure is classified by what happens next:

* **transient** (timeouts, refused or reset connections, a dependency that is away): retried up to the policy's limit;
* **throttled** (the other side named a time): retried, not before that time;
* **permanent** (the content breaks its contract, the other side refused it for good): straight to the dead letters;
* **unknown**: treated as transient, with the code ``UNCLASSIFIED``, so that somebody can add a classification.

The classification of the workload counts first, then an error that the handler raised on purpose, then an error of a
client library (:mod:`.client_errors`), then the message of the error. A broken network wins over the message: a dead
letter that comes too early costs a person's time, and a retry too many costs almost nothing.
"""

from __future__ import annotations

import errno
import re
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from holdfast.contracts.errors import PermanentError, ThrottledError, TransientError, message_of
from holdfast.contracts.outcomes import Failure
from holdfast.contracts.redaction import scrub
from holdfast.contracts.validation import describe_validation
from holdfast.contracts.workload import Workload

from .client_errors import client_failure, raised_from, words_of
from .hooks import call_hook

UNCLASSIFIED: Final = "UNCLASSIFIED"
TIMEOUT: Final = "TIMEOUT"
VALIDATION_FAILED: Final = "VALIDATION_FAILED"
WORKER_LOST: Final = "WORKER_LOST"
EFFECT_REFUSED: Final = "EFFECT_REFUSED"
BAD_OUTCOME: Final = "BAD_OUTCOME"


_PERMANENT_WORDS: Final = re.compile(
    r"\bvalidation\b|\bmalformed\b|\binvalid (\w+ ){0,2}payload\b|\bpayload (is |was )?(invalid|not valid)\b",
    re.IGNORECASE,
)
# With one of these beside them, the words above are about the other side or the network, and not about the job.
_PASSING_WORDS: Final = re.compile(
    r"\b(connect\w*|network|socket|dns|ssl|tls|certificates?|handshake|upstream|bad gateway|response|reply|"
    r"(not|cannot) reach|unreachable|unavailable|not available|is down|busy|overload\w*|locked|deadlock|throttl\w*|"
    r"rate limit\w*|too many requests|temporar\w*|try again|retry|(status|http|answered|returned) 5\d\d)\b",
    re.IGNORECASE,
)


def classify(error: BaseException, workload: Workload[Any]) -> Failure:  # noqa: PLR0911 - a table
    """Classify an error, first by the workload. An unknown error is transient."""
    if isinstance(error, Exception):
        own = _classified_by(workload, error)
        if own is not None:
            return own
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:  # as a task group raises it
        error = error.exceptions[0]
    match error:
        case Failure():  # Retry or Reject, raised
            return Failure(error.code, scrub(error.message), retry=error.retry, after=error.after)
        case ThrottledError():
            return Failure(error.code, scrub(error.message), retry=True, after=error.retry_after)
        case TransientError():
            return Failure(error.code, scrub(error.message), retry=True)
        case PermanentError():
            return Failure(error.code, scrub(error.message), retry=False)
        case ValidationError():
            return Failure(VALIDATION_FAILED, describe_validation(error), retry=False)
        case TimeoutError() if type(error) is TimeoutError:  # a client's own timeout is handled below
            return Failure(TIMEOUT, "The handler did not finish in time.", retry=True)
    return client_failure(error) or _broken_content(error) or _system_failure(error) or _unknown(error)


def _broken_content(error: BaseException) -> Failure | None:
    """The failure if the message of the error, or of a cause that it was raised from, is about a broken contract."""
    for each in raised_from(error):
        if isinstance(each, ValidationError):
            return Failure(VALIDATION_FAILED, describe_validation(each), retry=False)
        words = words_of(each)
        if _PERMANENT_WORDS.search(words) and not _PASSING_WORDS.search(words):
            return Failure(VALIDATION_FAILED, scrub(f"{type(each).__name__}: {message_of(each)}"), retry=False)
    return None


def _system_failure(error: BaseException) -> Failure | None:
    if isinstance(error, OSError) and error.errno is not None:
        return Failure(errno.errorcode.get(error.errno, "IO"), scrub(error.strerror or "I/O error"), retry=True)
    if isinstance(error, ConnectionError):
        return Failure("CONNECTION", "The connection failed.", retry=True)
    return None


def _unknown(error: BaseException) -> Failure:
    return Failure(UNCLASSIFIED, scrub(f"{type(error).__name__}: {message_of(error)}"), retry=True)


def _classified_by(workload: Workload[Any], error: Exception) -> Failure | None:
    def own() -> Failure | None:
        failure = workload.classify(error)
        return None if failure is None else replace(failure, message=scrub(failure.message))

    return call_hook(workload, "classify", own, lambda: None)
