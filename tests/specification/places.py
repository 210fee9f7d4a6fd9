"""Where the specification is tried: either deployment, opened as the program opens it, and looked at from outside.

What stands in queues, records and indexes is read past Holdfast's own code: from the file, from MongoDB, and by
BullMQ's own library in Node.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from bson import Timestamp
from pymongo import MongoClient
from redis import Redis

from holdfast.cli import main
from holdfast.contracts.queues import QueueJob
from holdfast.wiring import DATABASE_FILE
from tests.interop.node_queue import NodeQueue
from tests.support import gateway, witness
from tests.support.cluster_truth import beginning, read_cluster
from tests.support.counted_work import app
from tests.support.node import Node
from tests.support.settings import Settings
from tests.support.sqlite_truth import read_file
from tests.support.valkey_server import RedisPlace, forget

EMBEDDED: Final = "embedded"
CLUSTER: Final = "cluster"
DEPLOYMENTS: Final = (EMBEDDED, CLUSTER)

# The names that the embedded file has for what the specification calls otherwise.
_TABLES: Final = {"processed_events": "ledger_entries", "dead_letter_events": "dead_letters"}
_COLUMNS: Final = {
    "idempotencyKey": "key",
    "updatedAt": "updated_at",
    "createdAt": "created_at",
    "expiresAt": "expires_at",
    "reviewStatus": "review_status",
}


@dataclass
class Place:
    """One deployment with a gateway open on it, and the ways past Holdfast's own code to look at it."""

    deployment: str
    settings: dict[str, Any]
    folder: Path
    redis: RedisPlace | None = None
    mongo: str = ""
    database: str = ""
    node: Node | None = None
    began: Timestamp | None = None
    gateway: gateway.Gateway = field(init=False)

    # --- queues ---------------------------------------------------------------------------------------------

    def queue(self, name: str) -> NodeQueue:
        """The queue as a Node program opens it: BullMQ refuses ``:``, so that becomes part of the prefix."""
        assert self.redis is not None
        assert self.node is not None
        inside, _, last = name.rpartition(":")
        prefix = f"{self.redis.prefix}:{inside}" if inside else self.redis.prefix
        return NodeQueue(self.node, self.redis.url, prefix, last)

    async def add(self, queue: str, name: str, data: Any, **options: Any) -> str:
        """What an external producer does: ``queue.add(name, data, options)``, or the embedded queue's own way."""
        if self.redis is not None:
            return await self.queue(queue).add(name, data, **options)
        job_id = options.get("jobId", f"external-{uuid.uuid4()}")
        await self.gateway.system.broker.publish(queue, [QueueJob(job_id, json.dumps(data), name=name)])
        return job_id

    async def waiting(self, queue: str) -> list[dict[str, Any]]:
        """``name``, ``id`` and ``data`` of every job that waits in a queue."""
        if self.redis is not None:
            waiting = await self.queue(queue).call("getJobs", ["waiting", "prioritized", "delayed"])
            return [{name: each[name] for name in ("name", "id", "data")} for each in waiting]
        rows = self._read("SELECT name, job_id AS id, data FROM queue_jobs WHERE queue = ?", queue)
        return [row | {"data": json.loads(row["data"])} for row in rows]

    # --- records --------------------------------------------------------------------------------------------

    async def records(self, collection: str) -> list[dict[str, Any]]:
        """Every record of a collection, by the specification's names. Lists and objects are parsed."""
        if self.redis is not None:
            with MongoClient(self.mongo, tz_aware=True) as client:
                return list(client[self.database][collection].find())
        # S608: a name of this package.
        found = [_parsed(row) for row in self._read(f"SELECT * FROM {collection}")]  # noqa: S608
        # A collection of a workload has columns for what is looked up, and its record as JSON.
        return found if collection in _TABLES else [row | row.get("body", {}) for row in found]

    async def indexes(self, collection: str) -> dict[tuple[str, ...], bool]:
        """The fields of every index, and whether it is unique."""
        if self.redis is not None:
            with MongoClient(self.mongo) as client:
                known = client[self.database][collection].index_information().values()
            return {tuple(name for name, _ in each["key"]): each.get("unique", False) for each in known}
        table = _TABLES.get(collection, collection)
        found = {}
        for each in self._read(f"SELECT name, \"unique\" FROM pragma_index_list('{table}')"):  # noqa: S608
            fields = [row["name"] for row in self._read(f"SELECT name FROM pragma_index_info('{each['name']}')")]  # noqa: S608
            found[tuple(fields)] = bool(each["unique"])
        return found

    def indexed(self, collection: str, *fields: str) -> tuple[str, ...]:
        """The fields of an index as this deployment has them."""
        if self.redis is not None or collection not in _TABLES:
            return fields
        named = tuple(_COLUMNS.get(each, each) for each in fields)
        # One table is the ledger of all workloads, so the workload comes first; letters are looked up over all of them.
        return ("workload", *named) if collection == "processed_events" and named != ("expires_at",) else named

    async def transitions(self, key: str) -> list[tuple[str | None, str]]:
        """Every change of an entry's status, in the order of the commits."""
        if self.redis is None:
            steps = read_file(self.folder / DATABASE_FILE).moves
        else:
            assert self.began is not None
            with MongoClient(self.mongo, tz_aware=True) as client, contextlib.closing(self._redis()) as redis:
                steps = read_cluster(client[self.database], self.began, redis).moves
        return [(each["start"], each["end"]) for each in steps if each["key"] == key]

    # --- the program ----------------------------------------------------------------------------------------

    async def command(self, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
        """``holdfast ...`` on this deployment, and its exit code."""
        for name in Settings.model_fields:
            monkeypatch.delenv(name.upper(), raising=False)
        for name in ("holdfast_data", "redis_url", "queue_prefix", "mongo_uri", "mongo_db_name"):
            if name in self.settings:
                monkeypatch.setenv(name.upper(), str(self.settings[name]))
        monkeypatch.setenv("USER", "ana")
        monkeypatch.chdir(self.folder)
        return await asyncio.to_thread(main, arguments)

    # --- parts ----------------------------------------------------------------------------------------------

    def _read(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        with contextlib.closing(sqlite3.connect(self.folder / DATABASE_FILE, timeout=30)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(statement, parameters)]

    def _redis(self) -> Redis:
        assert self.redis is not None
        return Redis.from_url(self.redis.url)


def _parsed(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in row.items():
        is_json = isinstance(value, str) and value[:1] in {"{", "["}
        found[name] = json.loads(value) if is_json else value
    return found


@contextlib.asynccontextmanager
async def opened(deployment: str, request: pytest.FixtureRequest, folder: Path, **changes: Any) -> AsyncIterator[Place]:
    """A place of its own for a test. ``changes`` are settings; the others are the program's defaults, in a hurry."""
    facts: dict[str, Any] = {"holdfast_data": folder, "upkeep_interval_ms": 50, "publish_grace_ms": 200}
    async with contextlib.AsyncExitStack() as stack:
        if deployment == EMBEDDED:
            place = Place(deployment, facts | changes, folder)
        else:
            place = _cluster(request, folder, facts | changes, stack)
        place.gateway = await stack.enter_async_context(gateway.opened(Settings(**place.settings), app))
        if deployment == EMBEDDED:
            witness.install(folder / DATABASE_FILE)
        yield place
        if place.node is not None:
            await place.node("forget", prefix=place.redis.prefix)


def _cluster(
    request: pytest.FixtureRequest, folder: Path, facts: dict[str, Any], stack: contextlib.AsyncExitStack
) -> Place:
    valkey, mongo, node = (request.getfixturevalue(each) for each in ("valkey", "mongo", "node"))
    database = request.getfixturevalue("emptied_mongo_database")
    redis = RedisPlace(valkey.url, f"hf{uuid.uuid4().hex[:12]}")
    stack.callback(forget, redis)
    facts |= {"redis_url": redis.url, "queue_prefix": redis.prefix, "mongo_uri": mongo.uri, "mongo_db_name": database}
    with MongoClient(mongo.uri) as client:
        began = beginning(client[database])
    return Place(CLUSTER, facts, folder, redis, mongo.uri, database, node=node, began=began)
