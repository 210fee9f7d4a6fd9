"""The canary run on MongoDB and Valkey with an append-only file: Redis has no personal data either (I14)."""

from __future__ import annotations

import asyncio
import json

import pytest
from bullmq import Queue
from pymongo import MongoClient
from redis import Redis

from holdfast.cli.servers import start_valkey
from tests.email import canary
from tests.email.test_canary import assert_it_flew, erase_two
from tests.support.processes import Fleet
from tests.support.running_cluster import DURABLE
from tests.support.smtp_server import SmtpServer
from tests.support.waiting import eventually

ENDED = ["processed", "dead_lettered", "expired"]


@pytest.fixture
def valkey_with_a_file(tmp_path):
    server = start_valkey(tmp_path / "redis", options=DURABLE)
    yield server
    server.stop()


@pytest.fixture
def redis(valkey_with_a_file):
    with Redis(port=valkey_with_a_file.port) as client:
        yield client


@pytest.fixture
def database(mongo, mongo_database):
    with MongoClient(mongo.uri, tz_aware=True) as client:
        yield client[mongo_database]


def keys_of(redis) -> dict[str, bytes]:
    """The content of every key, of any type."""
    readers = {
        b"hash": redis.hgetall,
        b"list": lambda key: redis.lrange(key, 0, -1),
        b"zset": lambda key: redis.zrange(key, 0, -1, withscores=True),
        b"set": redis.smembers,
        b"stream": redis.xrange,
        b"string": redis.get,
    }
    # latin-1 and not repr: repr would escape text that is not ASCII, and the search would not find it.
    return {key.decode(): _flat(readers[redis.type(key)](key)) for key in redis.scan_iter(count=1_000)}


def _flat(value) -> bytes:
    match value:
        case bytes():
            return value
        case dict():
            return b"\n".join(_flat(each) for pair in value.items() for each in pair)
        case list() | tuple() | set():
            return b"\n".join(map(_flat, value))
        case _:
            return str(value).encode()


def fields_of(database) -> dict[str, bytes]:
    """The content of every field of every collection."""
    found: dict[str, bytes] = {}
    for name in database.list_collection_names():
        for record in database[name].find():
            for title, value in record.items():
                text = json.dumps(value, default=str, ensure_ascii=False).encode()
                found[f"{name}.{title}"] = found.get(f"{name}.{title}", b"") + text + b"\n"
    return found


def append_only_file(folder) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in (folder / "redis").rglob("*.aof*") if each.is_file()}


@pytest.mark.slow
@pytest.mark.chaos
async def test_a_canary_run_leaves_no_trace_in_a_cluster(tmp_path, valkey_with_a_file, redis, mongo, database):
    (tmp_path / "logs").mkdir()
    with SmtpServer() as server:
        settings = canary.environment(
            tmp_path / "data",
            server,
            REDIS_URL=valkey_with_a_file.url,
            MONGO_URI=mongo.uri,
            MONGO_DB_NAME=database.name,
        )
        async with Fleet(settings, tmp_path / "logs") as fleet:
            run = await canary.prepare(tmp_path / "data", server, fleet, settings)
            external_producers = Queue("send", {"connection": valkey_with_a_file.url, "prefix": "bull:email"})

            async def plant(job, job_id):
                await external_producers.add("email:send", job, {"jobId": job_id, "removeOnComplete": True})

            def settled() -> bool:
                held = sum(redis.zcard(f"bull:email:send:{part}") for part in ("prioritized", "delayed"))
                held += sum(redis.llen(f"bull:email:send:{part}") for part in ("wait", "active", "paused"))
                return held == 0 and database["email_jobs"].count_documents({"status": {"$nin": ENDED}}) == 0

            await canary.fly(run, plant, settled)
            await external_producers.close()
            counted = database["email_jobs"].aggregate([{"$group": {"_id": "$status", "n": {"$sum": 1}}}])
            assert_it_flew(run, {each["_id"]: each["n"] for each in counted})

            before = fields_of(database)
            body = before.pop("email_jobs.body")
            assert run.found({"email_jobs.body": body}, people=False) == []
            assert canary.LOCAL_PART.encode() in body
            assert run.found(before, people=True) == []

            # Completed jobs are deleted; failed jobs and dead letters are masked. So no name is left in Redis.
            assert redis.zcard("bull:email:send:completed") == 0
            assert redis.zcard("bull:email:send:failed") >= len(run.planted)
            assert run.found(await asyncio.to_thread(keys_of, redis), people=True) == []
            await the_file_tells_nothing(run, redis, tmp_path)

            await erase_two(run, lambda: fields_of(database) | keys_of(redis))
            await canary.stop(run)
    assert run.found({who: text.encode() for who, text in run.said.items()}, people=True) == []


async def the_file_tells_nothing(run, redis, folder) -> None:
    """The file has the original jobs. So it may have the data of an external producer, until Redis rewrites it."""
    ours = canary.Run(**{**vars(run), "planted": []})
    assert ours.found(append_only_file(folder), people=False) == []
    before = set(append_only_file(folder))
    redis.bgrewriteaof()
    await eventually(lambda: redis.info("persistence")["aof_rewrite_in_progress"] == 0 and _is_new(folder, before))
    assert run.found(append_only_file(folder), people=True) == []


def _is_new(folder, before) -> bool:
    names = {name for name in append_only_file(folder) if name.endswith((".rdb", ".aof"))}
    return bool(names) and not names & {each for each in before if each.endswith((".rdb", ".aof"))}
