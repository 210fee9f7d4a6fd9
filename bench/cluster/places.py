"""The servers that are measured on: from wheels, or those that ``REDIS_URL`` and ``MONGO_URI`` name.

On servers that are not ours, everything is written under a prefix and in a database of its own, and removed afterwards.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from pymongo import MongoClient

from holdfast.cli.servers import start_replica_set, start_valkey

# As docs/operations/cluster.md asks for: what Redis has told survives a crash of its process, but for the last second.
_VALKEY_OPTIONS = ("--appendonly", "yes", "--appendfsync", "everysec")


@dataclass(frozen=True, slots=True)
class Place:
    """A Redis and a MongoDB. A process id is there when the server is ours."""

    redis_url: str = field(repr=False)
    mongo_uri: str = field(repr=False)
    redis_pid: int | None
    mongo_pid: int | None
    mark: str
    """What our keys and databases begin with."""

    def facts(self) -> dict[str, str]:
        """What the servers tell about themselves."""
        with contextlib.closing(redis.Redis.from_url(self.redis_url)) as client:
            info: dict[str, Any] = client.info()  # type: ignore[assignment]
        name = "Valkey" if "valkey_version" in info else "Redis"
        persistence = "append-only file" if info.get("aof_enabled") else "no append-only file"
        mongo: MongoClient[dict[str, Any]]
        with MongoClient(self.mongo_uri) as mongo:
            version = mongo.server_info()["version"]
            members = len(mongo.admin.command("hello").get("hosts", []))
        return {
            "redis": f"{name} {info.get('valkey_version', info['redis_version'])} ({persistence})",
            "mongo": f"MongoDB {version} (replica set of {members})",
        }

    def redis_seconds(self) -> float:
        """Processor time that Redis has used."""
        with contextlib.closing(redis.Redis.from_url(self.redis_url)) as client:
            cpu: dict[str, Any] = client.info("cpu")  # type: ignore[assignment]
        return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])

    def counts(self, prefix: str, queue: str) -> dict[str, int]:
        """How many jobs a queue holds."""
        with contextlib.closing(redis.Redis.from_url(self.redis_url)) as client:
            pipeline = client.pipeline(transaction=False)
            pipeline.llen(f"{prefix}:{queue}:wait").llen(f"{prefix}:{queue}:active").zcard(
                f"{prefix}:{queue}:completed"
            )
            waiting, active, completed = pipeline.execute()
        return {"waiting": waiting, "active": active, "completed": completed}

    def forget_keys(self, prefix: str) -> None:
        """Delete what was written to Redis under a prefix."""
        with contextlib.closing(redis.Redis.from_url(self.redis_url)) as client:
            found: list[bytes] = []
            for key in client.scan_iter(f"{prefix}:*", count=1_000):
                found.append(key)
                if len(found) >= 1_000:  # noqa: PLR2004 - a portion
                    client.unlink(*found)
                    found.clear()
            if found:
                client.unlink(*found)

    def forget_database(self, name: str) -> None:
        """Drop a database."""
        mongo: MongoClient[dict[str, Any]]
        with MongoClient(self.mongo_uri) as mongo:
            mongo.drop_database(name)


@contextlib.contextmanager
def a_place(folder: Path, *, mongo: bool = True) -> Iterator[Place]:
    """Servers to measure on, stopped at the end when they are ours."""
    with contextlib.ExitStack() as stack:
        redis_url, redis_pid = os.environ.get("REDIS_URL"), None
        if not redis_url:
            valkey = start_valkey(folder, options=_VALKEY_OPTIONS)
            stack.callback(valkey.stop)
            redis_url, redis_pid = valkey.url, valkey.pid
        mongo_uri, mongo_pid = os.environ.get("MONGO_URI", ""), None
        if not mongo_uri and mongo:
            replica_set = start_replica_set(folder)
            stack.callback(replica_set.stop)
            mongo_uri, mongo_pid = replica_set.uri, replica_set.members[0].pid
        yield Place(redis_url, mongo_uri, redis_pid, mongo_pid, f"bench{secrets.token_hex(4)}")
