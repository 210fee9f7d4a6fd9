"""Executors: the threads that run SQLite work, so that SQLite never blocks an event loop.

An executor owns one connection. Work that is submitted while a transaction is under way shares the next transaction
(group commit): under load one ``fsync`` serves many callers. An idle executor commits at once, without a timer.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.errors import StoreUnavailable

Result = TypeVar("Result")
Work = Callable[[sqlite3.Connection], Result]

_MOST_IN_ONE_COMMIT: Final = 64


class Executor(Protocol):
    """Runs work on a connection, in the order of submission."""

    async def run(self, work: Work[Result], *, durable: bool = True) -> Result:
        """Run ``work`` in a transaction; return once it is committed.

        ``durable`` work survives power loss. Other work may be lost then, but never before durable work that was
        committed after it.
        """
        ...

    async def close(self) -> None:
        """Finish what was submitted, then close the connection."""
        ...


@dataclass(slots=True)
class _Ticket:
    work: Work[Any]
    durable: bool
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = field(default=None)


class Committer:
    """One connection, and transactions on it that several tickets share."""

    def __init__(self, connection: sqlite3.Connection, *, writes: bool) -> None:
        self._connection = connection
        self._begin = "BEGIN IMMEDIATE" if writes else "BEGIN"
        self._writes = writes
        self._durable: bool | None = None

    def run(self, tickets: list[_Ticket]) -> None:
        """Run the tickets in one transaction. A ticket that fails is rolled back alone; a failed commit fails all."""
        connection = self._connection
        durable = self._writes and any(ticket.durable for ticket in tickets)
        try:
            self._set_durability(durable=durable)
            connection.execute(self._begin)
            if len(tickets) == 1:
                _run_alone(connection, tickets[0])
            else:
                for ticket in tickets:
                    _run_in_savepoint(connection, ticket)
            if not connection.in_transaction:  # the only ticket has failed
                return
            if durable:
                crash_point("store.before_commit")
            connection.execute("COMMIT")
            if durable:
                crash_point("store.committed")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            for ticket in tickets:
                ticket.error = ticket.error or translate(error)

    def _set_durability(self, *, durable: bool) -> None:
        """Set ``synchronous``. SQLite accepts the change only between two transactions."""
        if self._writes and durable is not self._durable:
            self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._durable = durable


def _run_alone(connection: sqlite3.Connection, ticket: _Ticket) -> None:
    """Run the only ticket without a savepoint: every statement costs a release of the interpreter lock."""
    try:
        ticket.result = ticket.work(connection)
    except Exception as error:  # noqa: BLE001 - the caller gets the error
        ticket.error = error if _fails_every_time(error) else translate(error)
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _run_in_savepoint(connection: sqlite3.Connection, ticket: _Ticket) -> None:
    """Run one of several tickets in a savepoint of its own."""
    connection.execute("SAVEPOINT ticket")
    try:
        ticket.result = ticket.work(connection)
    except Exception as error:  # noqa: BLE001 - the caller gets the error
        ticket.error = error if _fails_every_time(error) else translate(error)
        connection.execute("ROLLBACK TO ticket")
    connection.execute("RELEASE ticket")


def _fails_every_time(error: Exception) -> bool:
    """Whether the statement or its values are wrong: then another try does not help."""
    if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError):
        return True
    return (
        isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    )


def translate(error: Exception) -> Exception:
    """Turn an SQLite failure (disk full, file locked or broken) into the engine's error."""
    if isinstance(error, sqlite3.Error):
        return StoreUnavailable(f"SQLite: {error}")
    return error


class ThreadExecutor:
    """An executor with a thread of its own."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], *, writes: bool) -> None:
        self._connect = connect
        self._writes = writes
        self._waiting: deque[_Ticket] = deque()
        self._signal = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(
            target=self._work, name=f"sqlite-{'writer' if writes else 'reader'}", daemon=True
        )
        self._thread.start()

    async def run(self, work: Work[Result], *, durable: bool = True) -> Result:
        """Queue the work for the thread and wait for its commit."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        with self._signal:
            if self._closing:
                message = "The SQLite file is closed."
                raise StoreUnavailable(message)
            self._waiting.append(_Ticket(work, durable, loop, future))
            self._signal.notify()
        return await future

    async def close(self) -> None:
        """Let the thread finish what was submitted, and wait for it."""
        with self._signal:
            self._closing = True
            self._signal.notify()
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        try:
            connection = self._connect()
        except sqlite3.Error as error:
            self._fail_waiting(error)
            return
        committer = Committer(connection, writes=self._writes)
        try:
            while tickets := self._next_group():
                committer.run(tickets)
                self._answer(tickets)
        finally:
            connection.close()

    def _fail_waiting(self, error: sqlite3.Error) -> None:
        """Fail all waiting tickets: there is no connection."""
        with self._signal:
            self._closing = True
            tickets = list(self._waiting)
            self._waiting.clear()
        for ticket in tickets:
            ticket.error = translate(error)
        self._answer(tickets)

    def _next_group(self) -> list[_Ticket]:
        with self._signal:
            while not self._waiting and not self._closing:
                self._signal.wait()
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_IN_ONE_COMMIT))]

    @staticmethod
    def _answer(tickets: list[_Ticket]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Ticket]] = {}
        for ticket in tickets:
            by_loop.setdefault(ticket.loop, []).append(ticket)
        for loop, group in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, group)


class InlineExecutor:
    """An executor without a thread, for a simulation: each piece of work is a transaction of its own, at once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._committer = Committer(connection, writes=True)

    async def run(self, work: Work[Result], *, durable: bool = True) -> Result:
        """Run the work now."""
        loop = asyncio.get_running_loop()
        ticket = _Ticket(work, durable, loop, loop.create_future())
        self._committer.run([ticket])
        _resolve([ticket])
        return await ticket.future  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _resolve(tickets: list[_Ticket]) -> None:
    for ticket in tickets:
        if ticket.future.cancelled():
            continue
        if ticket.error is not None:
            ticket.future.set_exception(ticket.error)
        else:
            ticket.future.set_result(ticket.result)
