"""A network between our processes and their servers that is slow, cuts lines, swallows, and loses single replies."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from holdfast.brokers.bullmq.scripts import load_scripts
from holdfast.cli.servers import MongoServer, ReplicaSet, ServerMissing, free_port
from tests.support.checker import Report
from tests.support.long_run import CALM, ENTRIES, LONG_RUN, often, one_by_one
from tests.support.running_cluster import ClusterGateway, running_cluster
from tests.support.tcp_proxy import TcpProxy, Way
from tests.support.valkey_server import absent

LATENCY = 0.04
RESETS = 20 if LONG_RUN else 6
SWALLOWED_SECONDS = 8 if LONG_RUN else 2
LOSSES = 10 if LONG_RUN else 2
"""How many replies of each kind are lost, for each way to lose them."""

CREWS = (("api", "worker"), ("api", "worker"))


# --- troubles of any line -----------------------------------------------------------------------------------------


async def slow(line: TcpProxy, gateway: ClusterGateway) -> None:
    line.latency = LATENCY
    await gateway.more(CALM)
    line.latency = 0


async def cut(line: TcpProxy, gateway: ClusterGateway) -> None:
    for _ in range(RESETS):
        line.reset()
        await gateway.more(2)


async def swallowed(line: TcpProxy, gateway: ClusterGateway) -> None:
    """Nothing gets through; then requests do, and no reply comes back."""
    for ways in (tuple(Way), (Way.REPLIES,)):
        async with line.blackhole(*ways):
            await asyncio.sleep(SWALLOWED_SECONDS)  # this long a silence is what is tested
        await gateway.more(2)


async def unheard(line: TcpProxy, gateway: ClusterGateway, kinds: dict[str, Callable[[bytes], bool]]) -> None:
    """Commands are executed, and whoever sent them never hears of it: the line is cut, or stays silent."""
    for name, request in kinds.items():
        for silent in (False, True):
            line.lose_reply(f"{name} unheard", request, times=LOSSES, silent=silent)
    await gateway.until(lambda: not line.owed, "every reply that was to be lost was asked for")


def containing(marker: bytes) -> Callable[[bytes], bool]:
    return lambda request: marker in request


# --- Redis --------------------------------------------------------------------------------------------------------


async def unheard_of_redis(line: TcpProxy, gateway: ClusterGateway) -> None:
    scripts = load_scripts()
    kinds = (scripts.take, scripts.publish, scripts.settle, scripts.recover, scripts.renew, scripts.remove)
    await unheard(line, gateway, {script.name: containing(script.sha.encode()) for script in kinds})


@pytest.mark.parametrize("troubles", one_by_one([slow, cut, swallowed, unheard_of_redis]))
async def test_a_bad_line_to_redis_loses_nothing(tmp_path, seed, tell, rounds, mongo, troubles):
    began = time.monotonic()
    port = free_port()
    async with TcpProxy(port) as line:
        address = f"redis://127.0.0.1:{line.port}/0"
        async with running_cluster(tmp_path, seed, mongo, redis_port=port, REDIS_URL=address) as gateway:
            report = await endured(gateway, line, troubles, rounds)
    tell(figures(seed, began, report, line))
    checked(report)


# --- MongoDB ------------------------------------------------------------------------------------------------------


async def unheard_of_mongo(line: TcpProxy, gateway: ClusterGateway) -> None:
    """The names are those of the wire: a command's first field is its name."""
    kinds = {"commit": b"\x10commitTransaction\0", "insert": b"\x02insert\0", "update": b"\x02update\0"}
    await unheard(line, gateway, {name: containing(marker) for name, marker in kinds.items()})


class BehindProxy(ReplicaSet):
    """A set of one whose member's name is the proxy's address. ``uri`` is for looking, and goes past the proxy."""

    @property
    def uri(self) -> str:
        return f"mongodb://{self.members[0].address}/?directConnection=true"


@contextlib.asynccontextmanager
async def mongod_behind(folder: Path) -> AsyncIterator[tuple[BehindProxy, TcpProxy, str]]:
    try:
        server = MongoServer(folder, free_port())
        await asyncio.to_thread(server.start)
    except ServerMissing as error:
        absent(str(error))
    try:
        async with TcpProxy(server.port) as line:
            options = await asyncio.to_thread(server.command, "getCmdLineOpts")
            name = options["parsed"]["replication"]["replSet"]
            members = [{"_id": 0, "host": f"127.0.0.1:{line.port}"}]
            await asyncio.to_thread(server.command, "replSetInitiate", {"_id": name, "members": members})
            replica_set = BehindProxy([server])
            await asyncio.to_thread(replica_set.wait_for_primary)
            yield replica_set, line, f"mongodb://127.0.0.1:{line.port}/?replicaSet={name}"
    finally:
        await asyncio.to_thread(server.kill)


@pytest.mark.parametrize("troubles", one_by_one([slow, cut, swallowed, unheard_of_mongo]))
async def test_a_bad_line_to_mongo_loses_nothing(tmp_path, seed, tell, rounds, troubles):
    began = time.monotonic()
    async with (
        mongod_behind(tmp_path / "mongo") as (replica_set, line, address),
        running_cluster(tmp_path, seed, replica_set, MONGO_URI=address) as gateway,
    ):
        report = await endured(gateway, line, troubles, rounds)
    tell(figures(seed, began, report, line))
    checked(report)


# --- both ---------------------------------------------------------------------------------------------------------


async def endured(gateway: ClusterGateway, line: TcpProxy, troubles: tuple, rounds: int) -> Report:
    await gateway.start(*CREWS)
    faults = [partial(trouble, line) for trouble in often(troubles, rounds)]
    await gateway.endure(faults, entries=ENTRIES, calm=CALM)
    return await gateway.ended()


def figures(seed: int, began: float, report: Report, line: TcpProxy) -> dict[str, object]:
    return {"seed": seed, "seconds": round(time.monotonic() - began), **report.figures, "line": dict(line.seen)}


def checked(report: Report) -> None:
    assert report.violations == []
    assert report.figures["entries"] >= ENTRIES
    assert report.figures["duplicates"]
