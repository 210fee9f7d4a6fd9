"""The server: its clock, its failures, and the sessions of processes that died.

**Its clock.** Leases and due times use the server's clock, so that the clocks of workers do not matter (I15). An update
uses the server's own time (``$$NOW``). An insert cannot, so it uses an estimate: the server's last reported time plus
the steady time that has passed since. The estimate is never ahead of the server's clock, and at most one round trip
behind it.

**Its failures.** A failure is transient, or it means an unreachable store, or a document that can never be stored. No
message repeats the driver's text: that text quotes documents and parts of an address.

**Dead processes.** A transaction whose client was killed holds its documents until the server's time limit (a minute by
default). Until then nobody can claim its jobs or write its documents. So every process stores the sessions of its
transactions, with a heartbeat. When the heartbeats of a process stop, another process ends its sessions. If that
process was only frozen, its transaction fails and is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import secrets
import time
from datetime import datetime, timedelta
from typing import Any, Final

import pymongo
from bson.errors import BSONError
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import (
    BulkWriteError,
    ConnectionFailure,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WriteConcernError,
    WriteError,
)
from pymongo.write_concern import WriteConcern

from holdfast.contracts.errors import StoreUnavailable
from holdfast.contracts.times import duration_ms, from_ms, to_ms

# --- the clock ------------------------------------------------------------------------------------------------

_FRESH_MS: Final = 2_000
_BEST_FOR_MS: Final = 30_000
_ANOTHER_CLOCK_MS: Final = 1_000


# CLOCK_BOOTTIME also counts the time while this machine was suspended: it passed for the server too.
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_ms() -> float:
    """Milliseconds of a clock that never goes backwards; its zero is arbitrary."""
    return time.clock_gettime(_STEADY) * 1_000


class ServerClock:
    """An estimate of the server's time.

    ``skew`` is for tests: it is added wherever the store reads or uses the server's time, so that hours can pass.
    """

    def __init__(self) -> None:
        self.skew = timedelta(0)
        self._offset: float | None = None
        self._updated_at = 0.0
        self._offset_from = 0.0

    def update(self, server_time: datetime) -> None:
        """Take in the server's time from an answer that has just arrived."""
        at = steady_ms()
        offset = to_ms(server_time) - at
        self._updated_at = at
        # The fastest answer gives the best offset. But clocks drift, and another server has another clock.
        if (
            self._offset is None
            or offset > self._offset
            or self._offset - offset > _ANOTHER_CLOCK_MS
            or at - self._offset_from > _BEST_FOR_MS
        ):
            self._offset = offset
            self._offset_from = at

    def estimate(self) -> datetime | None:
        """The server's time; None when the last answer is too old."""
        at = steady_ms()
        if self._offset is None or at - self._updated_at > _FRESH_MS:
            return None
        return from_ms(int(at + self._offset)) + self.skew

    def now(self, later: timedelta = timedelta(0)) -> Any:  # noqa: ANN401 - an aggregation expression
        """The server's time plus ``later``, as an expression that the server evaluates."""
        milliseconds = duration_ms(later) + duration_ms(self.skew)
        return {"$add": ["$$NOW", milliseconds]} if milliseconds else "$$NOW"


# --- failures -------------------------------------------------------------------------------------------------

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


# --- dead processes -------------------------------------------------------------------------------------------

PROCESSES: Final = "holdfast_processes"

_BEAT: Final = timedelta(seconds=2)
_SILENCE: Final = timedelta(seconds=6)
_SECONDS: Final = 2.0
# Not durable: a heartbeat that is lost with a primary is written again with the next heartbeat.
_FAST: Final = WriteConcern(1)


class Presence:
    """The heartbeat of this process, and the check of the others' heartbeats."""

    def __init__(self, database: AsyncDatabase[dict[str, Any]]) -> None:
        self._admin = database.client.admin
        self._processes = database.get_collection(PROCESSES, write_concern=_FAST)
        self._name = secrets.token_hex(12)
        self._sessions: dict[bytes, dict[str, Any]] = {}
        self._beating: asyncio.Task[None] | None = None

    async def note(self, session_id: dict[str, Any]) -> None:
        """Store a session before its first transaction. Sessions are reused, so this is rare."""
        if bytes(session_id["id"]) in self._sessions:
            return
        self._sessions[bytes(session_id["id"])] = dict(session_id)
        await self._beat()
        if self._beating is None:
            # In a context of its own: the caller's time limit must not apply to the heartbeat.
            self._beating = asyncio.create_task(self._keep_beating(), context=contextvars.Context())

    async def close(self) -> None:
        """Stop the heartbeat and delete it: there are no sessions to end any more."""
        if self._beating is None:
            return
        self._beating.cancel()
        await asyncio.gather(self._beating, return_exceptions=True)
        self._beating = None
        with contextlib.suppress(PyMongoError), pymongo.timeout(_SECONDS):
            await self._processes.delete_one({"_id": self._name})

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(_BEAT.total_seconds())
            # The next heartbeat tries again. Without heartbeats, the server's own time limit still applies.
            with contextlib.suppress(PyMongoError):
                await self._beat()
                await self.end_dead_sessions()

    async def _beat(self) -> None:
        beat: list[dict[str, Any]] = [
            {"$set": {"seenAt": "$$NOW", "sessions": {"$literal": list(self._sessions.values())}}},
        ]
        with pymongo.timeout(_SECONDS):
            await self._processes.update_one({"_id": self._name}, beat, upsert=True)

    async def end_dead_sessions(self) -> int:
        """End the sessions of processes without a recent heartbeat; return how many processes."""
        silence = {"$subtract": ["$$NOW", int(_SILENCE.total_seconds() * 1_000)]}
        with pymongo.timeout(_SECONDS):
            silent = await self._processes.find({"$expr": {"$lt": ["$seenAt", silence]}}).to_list()
            for each in silent:
                await self._admin.command("killSessions", each["sessions"])
                await self._processes.delete_one({"_id": each["_id"], "seenAt": each["seenAt"]})
        return len(silent)
