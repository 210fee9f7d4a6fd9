"""The primary of three mongod steps down, dies, freezes or loses its majority: it costs seconds, and no data (I13)."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast.cli.servers import MongoServer
from tests.support.long_run import CALM, ENTRIES, LONG_RUN, often, one_by_one
from tests.support.running_cluster import ClusterGateway, running_cluster

AWAY_SECONDS = 8 if LONG_RUN else 3
"""Longer than an election: the others choose a new primary, and the old one comes back to a set that moved on."""

CREWS = (("api", "worker"), ("api", "worker"))


async def stepped_down(gateway: ClusterGateway) -> None:
    await asyncio.to_thread(gateway.mongo.step_down)


async def killed(gateway: ClusterGateway) -> None:
    primary = await asyncio.to_thread(gateway.mongo.wait_for_primary)
    await asyncio.to_thread(primary.kill)
    await succeeded(gateway, primary)
    await gateway.more(CALM)
    await asyncio.to_thread(primary.start)


async def frozen(gateway: ClusterGateway) -> None:
    primary = await asyncio.to_thread(gateway.mongo.wait_for_primary)
    primary.pause()
    try:
        await asyncio.sleep(AWAY_SECONDS)  # this long a pause is what is tested
    finally:
        primary.resume()


async def outvoted(gateway: ClusterGateway) -> None:
    """Two of three are frozen: nothing can be promised, and so nothing is, until somebody was told to come again."""
    primary = await asyncio.to_thread(gateway.mongo.wait_for_primary)
    others = [member for member in gateway.mongo.members if member is not primary]
    before = refusals(gateway)
    for member in others:
        member.pause()
    try:
        while refusals(gateway) == before:  # noqa: ASYNC110 - it is counted in passing
            await asyncio.sleep(0.1)
    finally:
        for member in others:
            member.resume()


def refusals(gateway: ClusterGateway) -> int:
    """How many requests were answered with 503."""
    return sum(sent.answer is not None and sent.answer.status == 503 for sent in gateway.load.history)


async def succeeded(gateway: ClusterGateway, old: MongoServer) -> None:
    """Wait until another member is primary."""
    while await asyncio.to_thread(gateway.mongo.primary) in {None, old}:  # noqa: ASYNC110 - it is asked over the network
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("faults", one_by_one([stepped_down, killed, frozen, outvoted]))
async def test_a_lost_primary_costs_seconds_and_no_data(tmp_path, seed, tell, rounds, three_mongod, faults):
    began = time.monotonic()
    faults = often(faults, rounds)
    async with running_cluster(tmp_path, seed, three_mongod) as gateway:
        await gateway.start(*CREWS)
        await gateway.endure(faults, entries=ENTRIES, calm=CALM)
        report = await gateway.ended()
    tell(
        {
            "seed": seed,
            "seconds": round(time.monotonic() - began),
            **report.figures,
            "primaries lost": len(faults),
            "told to come again": refusals(gateway),
        }
    )

    assert report.violations == []
    assert report.figures["entries"] >= ENTRIES
    assert report.figures["duplicates"]
