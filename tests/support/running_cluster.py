"""A gateway of real processes on one Redis and one MongoDB, each of which a test may ruin."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bson import Timestamp
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import PyMongoError
from redis import Redis
from redis.exceptions import RedisError

from holdfast.cli.servers import ReplicaSet, ServerMissing, ValkeyServer, start_valkey
from holdfast.contracts.dead_letters import ReviewStatus
from holdfast.contracts.ledger import Status

from .checker import Report
from .cluster_truth import DEAD_LETTER_QUEUES, LEDGERS, LETTERS, Document, beginning, queued, read_cluster
from .load import MODES
from .processes import GatewayProcess
from .running_gateway import DRAIN_SECONDS, RunningGateway, parts_of
from .truth import Truth
from .valkey_server import absent

DURABLE: Final = ("--appendonly", "yes", "--appendfsync", "everysec")
"""Redis as docs/operations/cluster.md wants it."""

_LOOK_EVERY: Final = 0.1
_LOOK_SECONDS: Final = 5
_FOLLOWS: Final = frozenset({"PRIMARY", "SECONDARY"})
_WAITS: Final = [status.value for status in Status if not status.terminal]
_DEALT_WITH: Final = [ReviewStatus.REPLAYED.value, ReviewStatus.CLOSED.value]

Fault = Callable[["ClusterGateway"], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ClusterGateway(RunningGateway):
    """What a fault test works with. Its own look at MongoDB and Redis goes past every proxy."""

    redis: ValkeyServer
    mongo: ReplicaSet
    database: Database[Document]
    began: Timestamp
    looking: Redis

    # --- looking ------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], bool], what: str, *, within: float = DRAIN_SECONDS) -> None:
        """Wait until a look at the servers finds it so. A server that does not answer is looked at again."""
        clock = asyncio.get_running_loop().time
        end = clock() + within
        while not await asyncio.to_thread(_found, condition):
            assert clock() < end, f"{what}: not so after {within} s; logs in {self.folder}"
            await asyncio.sleep(_LOOK_EVERY)

    def entries(self, **query: Any) -> int:
        """How many entries match."""
        return sum(self.database[name].count_documents(query) for name in LEDGERS.values())

    async def more(self, entries: int) -> None:
        """Wait until so many more entries were acknowledged as new."""
        await self.acknowledged(self.load.entries + entries)

    async def drained(self) -> None:
        """Wait until every entry is settled, the queues are worked off and the letters are where they belong."""
        try:
            await self.until(self._settled, "drained")
        except AssertionError as error:
            found = "\n".join(self.check().violations[:20])
            message = f"{error}\n{found}"
            raise AssertionError(message) from None

    def _settled(self) -> bool:
        if self.entries(status={"$in": _WAITS}):
            return False
        held = {(queue, job_id) for queue, job_id in queued(self.looking)}
        letters = {queue: self.database[name] for queue, name in zip(DEAD_LETTER_QUEUES, LETTERS.values(), strict=True)}
        if any(queue not in letters for queue, _ in held):
            return False
        for queue, letter in letters.items():
            there = {job_id for name, job_id in held if name == queue}
            pending = {each["_id"] for each in letter.find({"reviewStatus": ReviewStatus.PENDING}, {"_id": 1})}
            dealt_with = {each["_id"] for each in letter.find({"reviewStatus": {"$in": _DEALT_WITH}}, {"_id": 1})}
            if pending - there or dealt_with & there:
                return False
        return True

    def truth(self) -> Truth:
        return read_cluster(self.database, self.began, self.looking)

    # --- acting -------------------------------------------------------------------------------------------

    async def start(self, *crews: Sequence[str], **settings: str) -> list[GatewayProcess]:
        """Start a process for each crew of roles, all at once."""
        return list(await asyncio.gather(*(self.fleet.start(*crew, **settings) for crew in crews)))

    async def endure(self, faults: Sequence[Fault], *, entries: int, calm: int) -> None:
        """Let the faults happen one after the other under load, with so many new entries before and after each."""
        async with self.under_load(entries=entries):
            for fault in faults:
                await self.more(calm)
                await fault(self)
            await self.more(calm)

    async def ended(self) -> Report:
        """The end of every run: everything settled, every process stopped in good order, everything checked."""
        await self.ask_again()
        await self.drained()
        codes = await asyncio.gather(*(member.terminate() for member in self.fleet.members if member.alive))
        assert set(codes) <= {0}, f"a process did not stop in good order: {codes}; logs in {self.folder}"
        return await asyncio.to_thread(self.check)


def _found(condition: Callable[[], bool]) -> bool:
    with contextlib.suppress(PyMongoError, RedisError):
        return condition()
    return False


def _complete(mongo: ReplicaSet) -> None:
    """Wait until every member follows: one that is still copying has no history of what happened before."""
    end = time.monotonic() + DRAIN_SECONDS
    while any(each["stateStr"] not in _FOLLOWS for each in _status(mongo)):
        assert time.monotonic() < end, "a member of the replica set does not follow"
        time.sleep(_LOOK_EVERY)


def _status(mongo: ReplicaSet) -> list[Document]:
    return mongo.wait_for_primary().command("replSetGetStatus")["members"]


@contextlib.asynccontextmanager
async def running_cluster(
    folder: Path,
    seed: int,
    mongo: ReplicaSet,
    *,
    modes: tuple[str, ...] = MODES,
    redis_port: int | None = None,
    **settings: str,
) -> AsyncIterator[ClusterGateway]:
    """A gateway with a Redis and a database of its own; all that runs in it ends with it.

    ``settings`` may name other addresses (REDIS_URL, MONGO_URI): those of proxies.
    """
    name = f"chaos_{uuid.uuid4().hex[:12]}"
    try:
        redis = await asyncio.to_thread(start_valkey, folder / "redis", port=redis_port, options=DURABLE)
    except ServerMissing as error:
        absent(str(error))
    looking = Redis(port=redis.port, socket_timeout=_LOOK_SECONDS)
    client: MongoClient[Document] = MongoClient(
        mongo.uri, readConcernLevel="majority", tz_aware=True, timeoutMS=_LOOK_SECONDS * 1_000
    )
    settings = {"REDIS_URL": redis.url, "MONGO_URI": mongo.uri, "MONGO_DB_NAME": name} | settings
    try:
        await asyncio.to_thread(_complete, mongo)
        began = await asyncio.to_thread(beginning, client[name])
        async with parts_of(folder, seed, settings, modes) as parts:
            yield ClusterGateway(**parts, redis=redis, mongo=mongo, database=client[name], began=began, looking=looking)
    finally:
        await asyncio.to_thread(redis.kill)
        looking.close()
        with contextlib.suppress(PyMongoError):
            await asyncio.to_thread(client.drop_database, name)
        client.close()
