"""The link to MongoDB: what the server must be, how long anything may take, and what is tried again."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import pymongo
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from pymongo import AsyncMongoClient, ReadPreference
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.errors import ConfigurationError, StoreContended, StoreUnavailable

from .clock import ServerClock
from .failures import conflict, met_duplicate, nobody_there, passing, translated
from .presence import Presence

Result = TypeVar("Result")
Document = dict[str, Any]
Collection = AsyncCollection[Document]
Session = AsyncClientSession

TEXT: Final[CodecOptions[Document]] = CodecOptions(tz_aware=True, tzinfo=UTC)
"""How documents become Python's: instants in UTC, with their time zone."""

BRIEF: Final = 5.0
"""Seconds for one attempt at what a job waits for. A frozen primary costs no more than this before we ask again."""
LONG: Final = 30.0
"""Seconds for what may have to look at much."""

_PATIENCE: Final = 8.0
_ABORT: Final = 2.0
_MOST_RACES: Final = 20
_MOST_CONFLICTS: Final = 12
_OLDEST: Final = "6.0"
_OLDEST_WIRE: Final = 17
_UNAUTHORIZED: Final = 13
_AUTHENTICATION: Final = frozenset({_UNAUTHORIZED, 18, 8000})  # likewise, AuthenticationFailed, Atlas's own
_DURABLE: Final = WriteConcern("majority", j=True)
_COMMITTED: Final = ReadConcern("majority")
_SNAPSHOT: Final = ReadConcern("snapshot")


class Link:
    """A client of one database. What it has acknowledged is on a majority of the members' disks (I13)."""

    def __init__(self, uri: str, database: str) -> None:
        self.clock = ServerClock()
        try:
            self._client: AsyncMongoClient[Document] = AsyncMongoClient(
                uri,
                appname="holdfast",
                retryWrites=True,
                retryReads=True,
                serverSelectionTimeoutMS=int(BRIEF * 1_000),
                connectTimeoutMS=int(BRIEF * 1_000),
                tz_aware=True,
            )
        except (PyMongoError, ValueError, TypeError):
            # Not even what the driver says about it: it quotes parts of the address, and a part may be a password.
            message = "MONGO_URI is not an address of MongoDB. User name and password must be percent-encoded in it."
            raise ConfigurationError(message) from None
        try:
            self._database: AsyncDatabase[Document] = self._client.get_database(
                database,
                codec_options=TEXT,
                read_preference=ReadPreference.PRIMARY,
                write_concern=_DURABLE,
                read_concern=_COMMITTED,
            )
        except PyMongoError as error:
            message = f"{database!r} cannot be the name of a MongoDB database."
            raise ConfigurationError(message) from error

        self._presence = Presence(self._database)
        self._permit = asyncio.Lock()

    @property
    def database(self) -> AsyncDatabase[Document]:
        """The database, with the concerns that durability needs, whatever the address says."""
        return self._database

    def collection(self, name: str) -> Collection:
        """One of its collections."""
        return self._database[name]

    async def open(self) -> None:
        """Find the primary and see that it can do what we need of it."""
        try:
            told = await self.run(self._hello)
        except StoreUnavailable as error:
            raise self._unusable(error) from error.__cause__
        if "setName" not in told and told.get("msg") != "isdbgrid":
            message = (
                "This MongoDB is a single server without a replica set, and so has no transactions. Start mongod with "
                "--replSet and run rs.initiate() once; a set of one member will do."
            )
            raise ConfigurationError(message)
        if told["maxWireVersion"] < _OLDEST_WIRE:
            message = f"Holdfast needs MongoDB {_OLDEST} or newer; this server is older."
            raise ConfigurationError(message)

    def _unusable(self, error: StoreUnavailable) -> Exception:
        """Why there is nothing to talk to, where that is not just that nobody answers."""
        cause = error.__cause__
        if isinstance(cause, OperationFailure) and cause.code in _AUTHENTICATION:
            return ConfigurationError("MongoDB does not accept the user name and password in MONGO_URI.")
        if not self._client.topology_description.server_descriptions():
            # A server that does not answer stays on the list; one that answers and is no member is taken off.
            return ConfigurationError("No server of MONGO_URI is a member of the replica set that it names.")
        return error

    async def close(self) -> None:
        """Close the connections."""
        await self._presence.close()
        await self._client.close()

    # --- time ---------------------------------------------------------------------------------------------

    async def now(self) -> datetime:
        """The server's time, asked for."""
        told = await self.run(self._hello)
        asked: datetime = told["localTime"]
        return asked + self.clock.skew

    async def about_now(self) -> datetime:
        """The server's time, asked for now or a moment ago; never ahead of it."""
        return self.clock.estimate() or await self.now()

    async def _hello(self) -> Document:
        told: Document = await self._client.admin.command(
            "hello", read_preference=ReadPreference.PRIMARY, codec_options=TEXT
        )
        self.clock.heard(told["localTime"])
        return told

    # --- asking -------------------------------------------------------------------------------------------

    async def run(
        self,
        work: Callable[[], Awaitable[Result]],
        *,
        seconds: float = BRIEF,
        patience: float = _PATIENCE,
    ) -> Result:
        """Do what may be done twice, through step-downs and lost connections.

        Raises :class:`StoreUnavailable` when patience is over or nobody is there, :class:`~.failures.Unstorable` when
        a document is at fault.
        """

        async def once() -> Result:
            with pymongo.timeout(seconds):
                return await work()

        return await _cancellable(self._persist(once, patience))

    async def in_time(self, work: Callable[[], Awaitable[object]], seconds: float) -> bool:
        """Do what may be done twice; False when it was not done in time.

        A write outside a transaction waits for whoever holds its document. That is a moment, unless the other has died.
        """

        async def once() -> bool:
            try:
                with pymongo.timeout(seconds):
                    await work()
            except PyMongoError as error:
                if error.timeout:
                    return False
                raise
            return True

        return await _cancellable(self._persist(once, _PATIENCE))

    async def transaction(
        self,
        work: Callable[[Session], Awaitable[Result]],
        *,
        contention: float = _PATIENCE,
    ) -> Result:
        """Do the work in one transaction and commit it; conflicts with other transactions are tried again.

        The work may be done several times, and one commit of it may count although we did not hear so: it must
        recognise what it has done before. Raises :class:`StoreContended` when conflicts last longer than ``contention``
        seconds: the other transaction may be one whose client is gone.
        """

        async def once() -> Result:
            async with self._client.start_session(causal_consistency=False) as session:
                try:
                    with pymongo.timeout(BRIEF):
                        await self._presence.note(dict(session.session_id))
                        await session.start_transaction(_SNAPSHOT, _DURABLE, ReadPreference.PRIMARY)
                        result = await work(session)
                        crash_point("store.before_commit")
                        await session.commit_transaction()
                except BaseException:
                    await _abort(session)
                    raise
            crash_point("store.committed")
            return result

        return await _cancellable(self._commit(once, contention))

    async def _commit(self, once: Callable[[], Awaitable[Result]], contention: float) -> Result:
        try:
            return await once()
        except PyMongoError as error:
            if not conflict(error):
                return await self._persist(once, _PATIENCE, races=_MOST_RACES, contention=contention)
        except (BSONError, OverflowError) as error:
            raise translated(error) from None
        # One of this process at a time: they would only get into each other's way once more.
        async with self._permit:
            return await self._persist(once, _PATIENCE, races=_MOST_RACES, contention=contention)

    async def _persist(
        self,
        once: Callable[[], Awaitable[Result]],
        patience: float,
        *,
        races: int = 0,
        contention: float | None = None,
    ) -> Result:
        began = time.monotonic()
        end = began + patience
        conflicts = 0
        for pause in _pauses():
            try:
                return await once()
            except PyMongoError as error:
                conflicts += conflict(error)
                # Often, and for long: on a busy machine a few tries take their time, and somebody always gets through.
                if contention is not None and conflicts >= _MOST_CONFLICTS and time.monotonic() - began >= contention:
                    raise StoreContended from error
                raced = races > 0 and met_duplicate(error)
                races -= raced
                if not (raced or passing(error)) or nobody_there(error) or time.monotonic() >= end:
                    failure = translated(error)
                    raise failure from (error if isinstance(failure, StoreUnavailable) else None)
            except (BSONError, OverflowError) as error:
                raise translated(error) from None
            await asyncio.sleep(pause)
        raise AssertionError  # there is always another pause


@contextlib.contextmanager
def rights_explained() -> Iterator[None]:
    """A user who may not do what the store does is the operator's to mend: waiting does not help."""
    try:
        yield
    except StoreUnavailable as error:
        cause = error.__cause__
        if isinstance(cause, OperationFailure) and cause.code == _UNAUTHORIZED:
            message = (
                "The user in MONGO_URI lacks rights in the database; docs/operations/servers.md lists what it needs."
            )
            raise ConfigurationError(message) from error
        raise


async def _cancellable(asking: Coroutine[Any, Any, Result]) -> Result:
    """Ask; a task that is cancelled meanwhile is cancelled.

    The driver waits with ``asyncio.wait_for``, which before Python 3.12 forgets a cancellation that comes together with
    the answer. Whoever cancelled the task would wait for its end for ever.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - this is a coroutine, so there is one
    before = task.cancelling()
    try:
        return await asking
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError


async def _abort(session: Session) -> None:
    """An open transaction keeps others from its documents for a minute, long after its client is gone."""
    if session.in_transaction:
        with contextlib.suppress(PyMongoError), pymongo.timeout(_ABORT):
            await session.abort_transaction()


def _pauses() -> Iterator[float]:
    """Short at first, for a conflict is over in milliseconds; random, so that two do not meet again."""
    longest = 0.004
    while True:
        yield random.uniform(0, longest)  # noqa: S311 - spreads retries, nothing more
        longest = min(longest * 2, 0.1)
