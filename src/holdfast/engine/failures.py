"""The one place where surprises become failures with a name.

A failure is named by what happens next:

* **transient** (timeouts, refused or reset connections, a dependency that is away): retried up to the policy's limit;
* **throttled** (the other side said when to come back): retried, not before that time;
* **permanent** (the content breaks its contract, the other side refused it for good): straight to the dead letters;
* **unknown**: treated as transient, and counted under the code ``UNCLASSIFIED`` so that somebody gives it a name.
"""

from __future__ import annotations

import errno
from typing import Any, Final

from pydantic import ValidationError

from holdfast.contracts.errors import PermanentError, ThrottledError, TransientError
from holdfast.contracts.redaction import scrub
from holdfast.contracts.workload import Failure, Workload

UNCLASSIFIED: Final = "UNCLASSIFIED"
TIMEOUT: Final = "TIMEOUT"
VALIDATION_FAILED: Final = "VALIDATION_FAILED"
WORKER_LOST: Final = "WORKER_LOST"
EFFECT_REFUSED: Final = "EFFECT_REFUSED"
BAD_OUTCOME: Final = "BAD_OUTCOME"


def classify(error: BaseException, workload: Workload[Any]) -> Failure:  # noqa: PLR0911 - a table
    """Name a failure. The workload is asked first; what nobody knows is transient."""
    if isinstance(error, Exception):
        named = _named_by(workload, error)
        if named is not None:
            return Failure(named.code, scrub(named.message), named.retry, named.after)
    match error:
        case ThrottledError():
            return Failure(error.code, scrub(error.message), retry=True, after=error.retry_after)
        case TransientError():
            return Failure(error.code, scrub(error.message), retry=True)
        case PermanentError():
            return Failure(error.code, scrub(error.message), retry=False)
        case TimeoutError():
            return Failure(TIMEOUT, "The handler did not finish in time.", retry=True)
        case ValidationError():
            return Failure(VALIDATION_FAILED, describe_validation(error), retry=False)
        case OSError() if error.errno is not None:
            return Failure(errno.errorcode.get(error.errno, "IO"), scrub(error.strerror or "I/O error"), retry=True)
        case ConnectionError():
            return Failure("CONNECTION", "The connection failed.", retry=True)
        case _:
            return Failure(UNCLASSIFIED, scrub(f"{type(error).__name__}: {error}"), retry=True)


def _named_by(workload: Workload[Any], error: Exception) -> Failure | None:
    try:
        return workload.classify(error)
    except Exception:  # noqa: BLE001 - the failure to name is the handler's, not that of its classification
        return None


def describe_validation(error: ValidationError) -> str:
    """What is wrong and where, without the offending values (I14)."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return scrub("; ".join(f"{'.'.join(map(str, each['loc'])) or 'document'}: {each['msg']}" for each in problems[:10]))
