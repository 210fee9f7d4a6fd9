"""Failures of the driver: a transient failure, an unreachable store, or a document that can never be stored.

No message repeats the driver's text: that text quotes documents and parts of an address.
"""

from __future__ import annotations

from typing import Any, Final

from bson.errors import BSONError
from pymongo.errors import (
    BulkWriteError,
    ConnectionFailure,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WriteConcernError,
    WriteError,
)

from holdfast.contracts.errors import StoreUnavailable

DUPLICATE_KEY: Final = 11000
TOO_MUCH_AT_ONCE: Final = 388
"""A transaction is too large for the server's cache. Each of its documents alone may be fine."""
_WRITE_CONFLICT: Final = 112

_TRANSIENT_CODES: Final = frozenset(
    {
        6,  # HostUnreachable
        7,  # HostNotFound
        24,  # LockTimeout
        50,  # MaxTimeMSExpired
        64,  # WriteConcernFailed
        89,  # NetworkTimeout
        91,  # ShutdownInProgress
        100,  # UnsatisfiableWriteConcern: a member is missing
        _WRITE_CONFLICT,
        134,  # ReadConcernMajorityNotAvailableYet
        189,  # PrimarySteppedDown
        246,  # SnapshotUnavailable
        251,  # NoSuchTransaction
        262,  # ExceededTimeLimit
        9001,  # SocketException
        10107,  # NotWritablePrimary
        11600,  # InterruptedAtShutdown
        11602,  # InterruptedDueToReplStateChange
        13435,  # NotPrimaryNoSecondaryOk
        13436,  # NotPrimaryOrSecondary
    },
)
_UNSTORABLE: Final = frozenset(
    {
        15,  # Overflow: nested too deep
        52,  # DollarPrefixedFieldName
        121,  # DocumentValidationFailure
        10334,  # BSONObjectTooLarge
        17419,  # an update would make it too large
        17420,  # the same
    },
)
_TRANSIENT_LABELS: Final = ("TransientTransactionError", "UnknownTransactionCommitResult", "RetryableWriteError")


class Unstorable(ValueError):
    """MongoDB can never store this document; the other documents of a batch may be fine."""


def is_transient(error: PyMongoError) -> bool:
    """Whether another try may help: a step-down, a lost connection, a conflict with another transaction."""
    if isinstance(error, ConnectionFailure | WriteConcernError) or error.timeout:
        return True
    if any(error.has_error_label(label) for label in _TRANSIENT_LABELS):
        return True
    if isinstance(error, BulkWriteError):
        # A batch that is sent again gets duplicate keys for what it wrote the first time: ignore them.
        codes = _codes(error) - {DUPLICATE_KEY}
        return codes <= _TRANSIENT_CODES and bool(codes or error.details.get("writeConcernErrors"))
    return isinstance(error, OperationFailure) and error.code in _TRANSIENT_CODES


def is_conflict(error: PyMongoError) -> bool:
    """Whether another transaction holds a document, or changed it first."""
    if isinstance(error, BulkWriteError):
        return _codes(error) == {_WRITE_CONFLICT}
    return isinstance(error, OperationFailure) and error.code == _WRITE_CONFLICT


def is_without_primary(error: PyMongoError) -> bool:
    """Whether no primary was found within the time limit."""
    return isinstance(error, ServerSelectionTimeoutError)


def is_duplicate(error: PyMongoError) -> bool:
    """Whether a unique index refused a write."""
    if isinstance(error, BulkWriteError):
        return any(each.get("code") == DUPLICATE_KEY for each in write_errors(error))
    return isinstance(error, OperationFailure) and error.code == DUPLICATE_KEY


def write_errors(error: BulkWriteError) -> list[dict[str, Any]]:
    """The errors of the single writes of a batch."""
    found: list[dict[str, Any]] = error.details.get("writeErrors", [])
    return found


def _codes(error: BulkWriteError) -> set[int | None]:
    return {each.get("code") for each in write_errors(error)}


def translate(error: PyMongoError | BSONError | OverflowError) -> Exception:
    """Turn a failure of the driver into the engine's error."""
    if (
        not isinstance(error, PyMongoError)
        or (isinstance(error, WriteError | BulkWriteError) and not is_transient(error))
        or (isinstance(error, OperationFailure) and error.code in _UNSTORABLE)
    ):
        if isinstance(error, BulkWriteError) and _codes(error) == {TOO_MUCH_AT_ONCE}:
            return Unstorable("This is more than one transaction of MongoDB can hold.")
        return Unstorable(f"MongoDB cannot hold the record ({_name(error)}).")
    if is_without_primary(error):
        return StoreUnavailable("MongoDB: no primary could be reached.")
    return StoreUnavailable(f"MongoDB: {_name(error)}.")


def _name(error: Exception) -> str:
    name = type(error).__name__
    details = getattr(error, "details", None) or {}
    if isinstance(error, BulkWriteError):
        codes = sorted(map(str, _codes(error)))
        return f"{name}, code {', '.join(codes)}" if codes else name
    code = details.get("codeName") or getattr(error, "code", None)
    return f"{name}, {code}" if code else name
