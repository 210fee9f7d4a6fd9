"""The servers of a cluster: whether they answer, are new enough, and keep their data."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.config import Settings
from holdfast.contracts.app import App
from holdfast.contracts.errors import BrokerUnavailable, ConfigurationError, HoldfastError, StoreUnavailable
from holdfast.feature import FAIL, OK, WARN, Finding
from holdfast.wiring import Cluster, open_cluster, open_system

from .ledger import check_ledger

_OLDEST_REDIS: Final = (6, 2)
_CLOSE_ENOUGH: Final = timedelta(seconds=2)
_A_MAJORITY_SURVIVES: Final = 3


async def check_cluster(settings: Settings, app: App | None) -> list[Finding]:
    """All checks of Redis and MongoDB, and of the ledger, if there is one. Nothing is created."""
    try:
        async with open_cluster(settings, app) as opened:
            redis = [finding async for finding in _redis(settings, opened)]
            mongo = [finding async for finding in _mongo(settings, opened)]
    except ConfigurationError as error:
        message, _, advice = error.message.partition(". ")
        return [Finding("cluster", FAIL, f"{message}.", advice)]
    # An incomplete ledger is not opened, because opening it could create the missing parts.
    complete = any(each.check == "indexes" and each.level == OK for each in mongo)
    return redis + mongo + (await _ledger(settings, app) if complete else [])


# --- Redis ------------------------------------------------------------------------------------------------------------


async def _redis(settings: Settings, opened: Cluster) -> AsyncIterator[Finding]:
    asked = datetime.now(UTC)
    try:
        facts = await opened.broker.facts()
    except BrokerUnavailable as error:
        advice = "Start it, or correct REDIS_URL. Until it answers, jobs are accepted and wait in the ledger."
        yield Finding("redis", FAIL, f"{settings.shown('redis_url')}: {error.message}", advice)
        return
    except ConfigurationError as error:  # the prefix and a Redis Cluster
        message, _, advice = error.message.rpartition(". ")
        yield Finding("redis", FAIL, f"{message}.", advice)
        return
    for finding in _redis_facts(facts):
        yield finding
    server_time = facts.get("server_time_usec")
    if server_time is not None:
        yield _clock("redis", datetime.fromtimestamp(int(server_time) / 1_000_000, UTC), asked)


def _redis_facts(facts: Mapping[str, str]) -> Iterator[Finding]:
    valkey = facts.get("valkey_version")
    version = facts.get("redis_version", "")
    shown = f"Valkey {valkey}" if valkey else f"Redis {version or 'of an unknown version'}"
    if version and _numbers(version) < _OLDEST_REDIS:
        yield Finding("redis", FAIL, f"{shown} is too old.", "Use Redis 6.2 or newer, or Valkey.")
    else:
        yield Finding("redis", OK, shown)
    if facts.get("role") in {"slave", "replica"}:
        yield Finding(
            "redis role", FAIL, "It is a replica: jobs cannot be written to it.", "Set REDIS_URL to the primary."
        )
    policy = facts.get("maxmemory_policy")
    if policy is not None and policy != "noeviction":
        advice = "Set `maxmemory-policy noeviction` in its configuration: a queue must not delete jobs to free memory."
        yield Finding("redis memory", FAIL, f"Its maxmemory-policy is {policy}.", advice)
    elif policy is not None:
        yield Finding("redis memory", OK, policy)
    if facts.get("aof_enabled") == "0":
        advice = (
            "Set `appendonly yes`. Without it no job is lost, because the ledger has every job; but after a restart "
            "of Redis the whole queue is rebuilt from the ledger."
        )
        yield Finding("redis disk", WARN, "It keeps no append-only file.", advice)
    elif "aof_enabled" in facts:
        yield Finding("redis disk", OK, "It keeps an append-only file.")


# --- MongoDB ----------------------------------------------------------------------------------------------------------


async def _mongo(settings: Settings, opened: Cluster) -> AsyncIterator[Finding]:
    try:
        facts = await opened.store.facts()
        missing = await opened.store.missing()
        foreign = await opened.store.foreign()
        asked = datetime.now(UTC)
        server_time = await opened.store.now()
    except StoreUnavailable as error:
        advice = "Start it, or correct MONGO_URI: without it, nothing is accepted and nothing is worked."
        yield Finding("mongo", FAIL, f"{settings.shown('mongo_uri')}: {error.message}", advice)
        return
    except ConfigurationError as error:
        message, _, advice = error.message.partition(". ")
        yield Finding("mongo", FAIL, f"{message.rstrip('.')}.", advice or "Correct MONGO_URI.")
        return
    yield _members(facts)
    yield _clock("mongo", server_time, asked)
    if facts["collections"] == "0":
        message = (
            f"There is none yet in the database {settings.mongo_db_name}; `holdfast up` or `holdfast migrate` makes it."
        )
        yield Finding("ledger", OK, message)
    elif missing:
        for sentence in missing:
            yield Finding("indexes", FAIL, sentence, "`holdfast migrate` creates it.")
    else:
        yield Finding("indexes", OK, "All collections and indexes are there, those for retention (TTL) too.")
    for sentence in foreign:
        message, _, advice = sentence.partition(". ")
        yield Finding("other systems", WARN, f"{message}.", advice)


def _members(facts: Mapping[str, str]) -> Finding:
    shown = f"MongoDB {facts['version']}"
    if "replica_set" not in facts:
        return Finding("mongo", OK, f"{shown}, a sharded cluster")
    members = int(facts["members"])
    shown += f", replica set {facts['replica_set']} of {members}"
    if members < _A_MAJORITY_SURVIVES:
        advice = "Use three or more: with fewer, the loss of one machine stops everything."
        return Finding("mongo", WARN, f"{shown}.", advice)
    return Finding("mongo", OK, shown)


async def _ledger(settings: Settings, app: App | None) -> list[Finding]:
    try:
        async with open_system(settings, app) as system:
            return [finding async for finding in check_ledger(system)]
    except HoldfastError as error:
        return [Finding("ledger", FAIL, error.message, "Look at MongoDB's log.")]


# --- both ------------------------------------------------------------------------------------------------------------


def _clock(name: str, server_time: datetime, asked: datetime) -> Finding:
    """The difference between a server's clock and this machine's, measured by one round trip."""
    check = f"clock, {name}"
    ahead = server_time - (asked + (datetime.now(UTC) - asked) / 2)
    shown = f"{ahead.total_seconds():+.3f} s from this machine's"
    if abs(ahead) > _CLOSE_ENOUGH:
        advice = "Keep all clocks set (NTP): signatures go by this machine's, leases and due times by MongoDB's."
        return Finding(check, WARN, f"{shown}.", advice)
    return Finding(check, OK, shown)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version)[:2])
