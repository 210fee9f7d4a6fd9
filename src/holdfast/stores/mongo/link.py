"""The connection to MongoDB: checks of the server, time limits, and retries."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
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

from .server import Presence, ServerClock, is_conflict, is_duplicate, is_transient, is_without_primary, translate

Result = TypeVar("Result")
Document = dict[str, Any]
Collection = AsyncCollection[Document]
Session = AsyncClientSession

TEXT: Final[CodecOptions[Document]] = CodecOptions(tz_aware=True, tzinfo=UTC)
"""How documents are decoded: instants in UTC, with their time zone."""

BRIEF: Final = 5.0
"""Seconds for one try of a call that a job waits for. A frozen primary delays the next try by no more than this."""
LONG: Final = 30.0
"""Seconds for a call that may read much."""

_PATIENCE: Final = 8.0
_ABORT: Final = 2.0
_MOST_RACES: Final = 20
_MOST_CONFLICTS: Final = 12
_OLDEST: Final = "6.0"
_OLDEST_WIRE: Final = 17
_UNAUTHORIZED: Final = 13
_AUTHENTICATION: Final = frozenset({_UNAUTHORIZED, 18, 8000})  # Unauthorized, AuthenticationFailed, Atlas's own code
_DURABLE: Final = WriteConcern("majority", j=True)
_COMMITTED: Final = ReadConcern("majority")
_SNAPSHOT: Final = ReadConcern("snapshot")


class Link:
    """A client of one database. An acknowledged write is on the disks of a majority of the members (I13)."""

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
            # The driver's text is not repeated: it quotes parts of the address, and a part may be a password.
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
        self._retrying = asyncio.Lock()

    @property
    def database(self) -> AsyncDatabase[Document]:
        """The database, with the write and read concerns that durability needs. Those of the address are ignored."""
        return self._database

    def collection(self, name: str) -> Collection:
        """A collection of the database."""
        return self._database[name]

    async def open(self) -> None:
        """Find the primary and check that Holdfast can work with it."""
        try:
            hello = await self.run(self._hello)
        except StoreUnavailable as error:
            raise self._reason(error) from error.__cause__
        if "setName" not in hello and hello.get("msg") != "isdbgrid":
            message = (
                "This MongoDB is a single server without a replica set, and so has no transactions. Start mongod with "
                "--replSet and run rs.initiate() once; a set of one member will do."
            )
            raise ConfigurationError(message)
        if hello["maxWireVersion"] < _OLDEST_WIRE:
            message = f"Holdfast needs MongoDB {_OLDEST} or newer; this server is older."
            raise ConfigurationError(message)

    def _reason(self, error: StoreUnavailable) -> Exception:
        """Why the server cannot be used: a mistake in the configuration, or else the error itself."""
        cause = error.__cause__
        if isinstance(cause, OperationFailure) and cause.code in _AUTHENTICATION:
            return ConfigurationError("MongoDB does not accept the user name and password in MONGO_URI.")
        if not self._client.topology_description.server_descriptions():
            # The driver keeps a server that does not answer, and removes a server that answers and is no member.
            return ConfigurationError("No server of MONGO_URI is a member of the replica set that it names.")
        return error

    async def close(self) -> None:
        """Close the connections."""
        await self._presence.close()
        await self._client.close()

    # --- time ---------------------------------------------------------------------------------------------

    async def now(self) -> datetime:
        """The server's time, read from the server."""
        hello = await self.run(self._hello)
        local_time: datetime = hello["localTime"]
        return local_time + self.clock.skew

    async def about_now(self) -> datetime:
        """An estimate of the server's time, never ahead of it. Without an estimate, the server is asked."""
        return self.clock.estimate() or await self.now()

    async def _hello(self) -> Document:
        hello: Document = await self._client.admin.command(
            "hello", read_preference=ReadPreference.PRIMARY, codec_options=TEXT
        )
        self.clock.update(hello["localTime"])
        return hello

    # --- calls --------------------------------------------------------------------------------------------

    async def run(
        self,
        work: Callable[[], Awaitable[Result]],
        *,
        seconds: float = BRIEF,
        patience: float = _PATIENCE,
    ) -> Result:
        """Do work that may be done twice; try again after step-downs and lost connections.

        Raises :class:`StoreUnavailable` after ``patience`` seconds or when there is no primary, and
        :class:`~.server.Unstorable` when MongoDB can never store a document.
        """

        async def once() -> Result:
            with pymongo.timeout(seconds):
                return await work()

        return await _cancellable(self._persist(once, patience))

    async def in_time(self, work: Callable[[], Awaitable[object]], seconds: float) -> bool:
        """Do work that may be done twice; False when it was not done in time.

        A write outside a transaction waits for the transaction that holds its document. That takes a moment, unless
        the client of that transaction is dead.
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
        """Do the work in one transaction and commit it; try again after conflicts with other transactions.

        The work may be done several times, and a commit may count although its reply was lost. So the work must
        recognise what it wrote before. Raises :class:`StoreContended` when conflicts last longer than ``contention``
        seconds: the client of the other transaction may be dead.
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
            if not is_conflict(error):
                return await self._persist(once, _PATIENCE, races=_MOST_RACES, contention=contention)
        except (BSONError, OverflowError) as error:
            raise translate(error) from None
        # Only one transaction of this process is tried again at a time. Otherwise they would conflict once more.
        async with self._retrying:
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
                conflicts += is_conflict(error)
                # Many conflicts, and for long. Time alone is no sign: on a busy machine a few tries take long.
                if contention is not None and conflicts >= _MOST_CONFLICTS and time.monotonic() - began >= contention:
                    raise StoreContended from error
                raced = races > 0 and is_duplicate(error)
                races -= raced
                if not (raced or is_transient(error)) or is_without_primary(error) or time.monotonic() >= end:
                    failure = translate(error)
                    raise failure from (error if isinstance(failure, StoreUnavailable) else None)
            except (BSONError, OverflowError) as error:
                raise translate(error) from None
            await asyncio.sleep(pause)
        raise AssertionError  # _pauses never ends


@contextlib.contextmanager
def rights_explained() -> Iterator[None]:
    """Turn a lack of rights into a ConfigurationError: only the operator can repair it, and waiting does not help."""
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


async def aggregated(collection: Collection, pipeline: Sequence[Document]) -> list[Document]:
    """The documents that an aggregation returns."""
    return await (await collection.aggregate(list(pipeline))).to_list()


async def _cancellable(call: Coroutine[Any, Any, Result]) -> Result:
    """Await the call; raise CancelledError if the task was cancelled meanwhile.

    The driver waits with ``asyncio.wait_for``. Before Python 3.12, that loses a cancellation that comes together with
    the reply. Then the code that cancelled the task would wait for ever.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - this is a coroutine, so there is one
    before = task.cancelling()
    try:
        return await call
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError


async def _abort(session: Session) -> None:
    """Abort an open transaction. Otherwise it would hold its documents for a minute."""
    if session.in_transaction:
        with contextlib.suppress(PyMongoError), pymongo.timeout(_ABORT):
            await session.abort_transaction()


def _pauses() -> Iterator[float]:
    """Short at first, because a conflict is over in milliseconds; random, so that two clients do not conflict again."""
    longest = 0.004
    while True:
        yield random.uniform(0, longest)  # noqa: S311 - spreads retries, nothing more
        longest = min(longest * 2, 0.1)
