"""The error tree.

::

    HoldfastError
    ├── ConfigurationError         the operator must change something; the program exits with code 2
    ├── StoreUnavailable           the ledger cannot be reached or cannot commit; try again later
    │   └── StoreContended         another transaction holds what a batch writes; part of the batch may be free
    ├── BrokerUnavailable          the queue cannot be reached; the ledger still holds the job
    ├── IntakeSaturated            too many requests wait for a commit; try again shortly
    ├── EffectRefused              an effect can never be applied; names the job at fault
    ├── ReviewRefused              a dead letter is not in the state that the requested step needs
    ├── InvalidContent             a body breaks its contract; names the fields (in ``admission``)
    ├── LeaseLost                  the job belongs to another worker now; stop working on it
    ├── DeadlinePassed             the job is too old to go on
    ├── NewerVersion               a newer version of the program wrote the job; this one cannot read it
    ├── NotFound                   no such entry, dead letter or record
    ├── InvalidQuery               a filter, a cursor or a name that does not exist
    ├── Conflict                   the key belongs to a job with another content (in ``submissions``, as the next two)
    ├── NotRunning                 Holdfast does not run in this process now
    ├── JobError                   a job has ended without a result: it failed, expired, or was cancelled
    └── HandlingError              raised by handlers on purpose; named by what happens next
        ├── TransientError         retried, up to the policy's limit
        │   └── ThrottledError     retried, not before the time that the other side named
        └── PermanentError         never retried; straight to the dead letters

Handlers normally *return* an outcome. The ``HandlingError`` family exists for code deep inside a handler that cannot.
An exception's docstring is its default message.
"""

from __future__ import annotations

from datetime import timedelta


class HoldfastError(Exception):
    """Something went wrong in Holdfast."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip().splitlines()[0])

    @property
    def message(self) -> str:
        """The sentence for a person."""
        return str(self.args[0])


class ConfigurationError(HoldfastError):
    """The configuration is not usable."""


class StoreUnavailable(HoldfastError):
    """The store cannot be reached."""


class StoreContended(StoreUnavailable):
    """Another transaction holds what is to be written."""


class BrokerUnavailable(HoldfastError):
    """The queue cannot be reached."""


class IntakeSaturated(HoldfastError):
    """Too many requests are waiting for a commit."""


class LeaseLost(HoldfastError):
    """The job is no longer ours."""


class DeadlinePassed(HoldfastError):
    """The job has outlived its deadline."""


class NewerVersion(HoldfastError):
    """A newer version of this program wrote the job."""

    def __init__(self, version: int, known: int) -> None:
        super().__init__(f"The job has payload version {version}; this program knows version {known} and older.")
        self.version = version
        self.known = known


class NotFound(HoldfastError):
    """There is no such record."""


class InvalidQuery(HoldfastError):
    """The query cannot be answered as asked."""


class EffectRefused(HoldfastError):
    """An effect cannot be applied. ``code`` is the reason of the job's dead letter, if the effect names one."""

    def __init__(self, job_id: str, message: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.code = code


class ReviewRefused(HoldfastError):
    """The dead letter is not in a state that allows this step."""


class HandlingError(HoldfastError):
    """The job could not be handled."""

    def __init__(self, code: str, message: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class TransientError(HandlingError):
    """The job failed for a reason that may pass."""


class ThrottledError(TransientError):
    """The other side asked us to come back later."""

    def __init__(self, code: str = "THROTTLED", message: str | None = None, *, retry_after: timedelta) -> None:
        super().__init__(code, message)
        self.retry_after = retry_after


class PermanentError(HandlingError):
    """The job failed for a reason that will not pass."""


def message_of(error: BaseException) -> str:
    """The message of any error. An error whose class cannot make a text gets a message too."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - other people's code
        return "(its message cannot be read)"
