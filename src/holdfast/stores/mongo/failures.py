"""What a failure of the driver means: ask again, the store is away, or the document can never be stored.

No message repeats what the driver says: it quotes documents, and parts of an address.
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
"""A transaction is larger than the server's cache can hold: none of its documents is at fault by itself."""
_WRITE_CONFLICT: Final = 112

_PASSING_CODES: Final = frozenset(
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
        17420,  # likewise
    },
)
_PASSING_LABELS: Final = ("TransientTransactionError", "UnknownTransactionCommitResult", "RetryableWriteError")


class Unstorable(ValueError):
    """MongoDB can never hold this document; the other documents of a batch are not at fault."""


def passing(error: PyMongoError) -> bool:
    """Whether asking again may help: a step-down, a lost connection, a conflict with another transaction."""
    if isinstance(error, ConnectionFailure | WriteConcernError) or error.timeout:
        return True
    if any(error.has_error_label(label) for label in _PASSING_LABELS):
        return True
    if isinstance(error, BulkWriteError):
        # A batch that is sent again meets what it has written before: those duplicates say nothing about the rest.
        written = _codes(error) - {DUPLICATE_KEY}
        return written <= _PASSING_CODES and bool(written or error.details.get("writeConcernErrors"))
    return isinstance(error, OperationFailure) and error.code in _PASSING_CODES


def conflict(error: PyMongoError) -> bool:
    """Whether another transaction holds a document, or changed it first."""
    if isinstance(error, BulkWriteError):
        return _codes(error) == {_WRITE_CONFLICT}
    return isinstance(error, OperationFailure) and error.code == _WRITE_CONFLICT


def nobody_there(error: PyMongoError) -> bool:
    """Whether no primary was found for as long as we are ready to wait for one."""
    return isinstance(error, ServerSelectionTimeoutError)


def met_duplicate(error: PyMongoError) -> bool:
    """Whether a write met a unique index."""
    if isinstance(error, BulkWriteError):
        return any(each.get("code") == DUPLICATE_KEY for each in write_errors(error))
    return isinstance(error, OperationFailure) and error.code == DUPLICATE_KEY


def write_errors(error: BulkWriteError) -> list[dict[str, Any]]:
    """What went wrong with single writes of a batch."""
    found: list[dict[str, Any]] = error.details.get("writeErrors", [])
    return found


def _codes(error: BulkWriteError) -> set[int | None]:
    return {each.get("code") for each in write_errors(error)}


def translated(error: PyMongoError | BSONError | OverflowError) -> Exception:
    """The failure as the engine knows it."""
    if (
        not isinstance(error, PyMongoError)
        or (isinstance(error, WriteError | BulkWriteError) and not passing(error))
        or (isinstance(error, OperationFailure) and error.code in _UNSTORABLE)
    ):
        if isinstance(error, BulkWriteError) and _codes(error) == {TOO_MUCH_AT_ONCE}:
            return Unstorable("This is more than one transaction of MongoDB can hold.")
        return Unstorable(f"MongoDB cannot hold the record ({_name(error)}).")
    if nobody_there(error):
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
