"""The one place where surprises become failures with a name.

A failure is named by what happens next:

* **transient** (timeouts, refused or reset connections, a dependency that is away): retried up to the policy's limit;
* **throttled** (the other side said when to come back): retried, not before that time;
* **permanent** (the content breaks its contract, the other side refused it for good): straight to the dead letters;
* **unknown**: treated as transient, and counted under the code ``UNCLASSIFIED`` so that somebody gives it a name.

What the workload says counts first, then what the handler says on purpose, then what a client library says about the
other side (:mod:`.client_errors`), then the words of the error. A broken network wins over words: a job that was given
up too early costs a person's time, and a retry too many costs almost nothing.
"""

from __future__ import annotations

import errno
import re
from typing import Any, Final

from pydantic import ValidationError

from holdfast.contracts.errors import PermanentError, ThrottledError, TransientError, message_of
from holdfast.contracts.redaction import scrub
from holdfast.contracts.validation import describe_validation
from holdfast.contracts.workload import Failure, Workload

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
# With one of these beside them, the words above speak of the other side or of the way to it, and not of the job.
_PASSING_WORDS: Final = re.compile(
    r"\b(connect\w*|network|socket|dns|ssl|tls|certificates?|handshake|upstream|bad gateway|response|reply|"
    r"(not|cannot) reach|unreachable|unavailable|not available|is down|busy|overload\w*|locked|deadlock|throttl\w*|"
    r"rate limit\w*|too many requests|temporar\w*|try again|retry|(status|http|answered|returned) 5\d\d)\b",
    re.IGNORECASE,
)


def classify(error: BaseException, workload: Workload[Any]) -> Failure:  # noqa: PLR0911 - a table
    """Name a failure. The workload is asked first; what nobody knows is transient."""
    if isinstance(error, Exception):
        named = _named_by(workload, error)
        if named is not None:
            return Failure(named.code, scrub(named.message), named.retry, named.after)
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:  # as a task group raises it
        error = error.exceptions[0]
    match error:
        case ThrottledError():
            return Failure(error.code, scrub(error.message), retry=True, after=error.retry_after)
        case TransientError():
            return Failure(error.code, scrub(error.message), retry=True)
        case PermanentError():
            return Failure(error.code, scrub(error.message), retry=False)
        case ValidationError():
            return Failure(VALIDATION_FAILED, describe_validation(error), retry=False)
        case TimeoutError() if type(error) is TimeoutError:  # a client's own timeout says more
            return Failure(TIMEOUT, "The handler did not finish in time.", retry=True)
    return client_failure(error) or _broken_content(error) or _of_the_system(error) or _unknown(error)


def _broken_content(error: BaseException) -> Failure | None:
    """An error, or the cause that it was raised from, that says in words that the job breaks its contract."""
    for each in raised_from(error):
        if isinstance(each, ValidationError):
            return Failure(VALIDATION_FAILED, describe_validation(each), retry=False)
        words = words_of(each)
        if _PERMANENT_WORDS.search(words) and not _PASSING_WORDS.search(words):
            return Failure(VALIDATION_FAILED, scrub(f"{type(each).__name__}: {message_of(each)}"), retry=False)
    return None


def _of_the_system(error: BaseException) -> Failure | None:
    if isinstance(error, OSError) and error.errno is not None:
        return Failure(errno.errorcode.get(error.errno, "IO"), scrub(error.strerror or "I/O error"), retry=True)
    if isinstance(error, ConnectionError):
        return Failure("CONNECTION", "The connection failed.", retry=True)
    return None


def _unknown(error: BaseException) -> Failure:
    return Failure(UNCLASSIFIED, scrub(f"{type(error).__name__}: {message_of(error)}"), retry=True)


def _named_by(workload: Workload[Any], error: Exception) -> Failure | None:
    return call_hook(workload, "classify", lambda: workload.classify(error), lambda: None)
