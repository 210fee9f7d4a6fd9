"""All waits of a process share one poll of the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from unittest.mock import patch

import pytest

from holdfast.contracts.errors import StoreUnavailable
from holdfast.engine.waiting import Waiting
from tests.support.gateway import assembled
from tests.support.waiting import eventually

LONG = timedelta(minutes=5)
SOON = timedelta(milliseconds=10)


class Counted:
    """The real ledger. It counts the polls, and holds them while a test wants that."""

    def __init__(self, ledger) -> None:
        self._ledger = ledger
        self.reads: list[tuple[str, int]] = []
        self.away = False
        self.open = asyncio.Event()
        self.open.set()

    async def ended(self, workload: str, keys: Sequence[str]) -> list[str]:
        self.reads.append((workload, len(keys)))
        await self.open.wait()
        if self.away:
            raise StoreUnavailable
        return await self._ledger.ended(workload, keys)


@pytest.fixture
async def gateway():
    async with assembled() as made:
        yield made


@pytest.fixture(autouse=True)
def quick():
    with patch("holdfast.engine.waiting._POLL_EVERY", SOON):
        yield


async def accept(gateway, count: int) -> list[str]:
    receipts = await asyncio.gather(*(gateway.accept(f"p{number}") for number in range(count)))
    return [each.key for each in receipts]


async def test_a_thousand_waits_cost_two_reads(gateway):
    ledger = Counted(gateway.store)
    waiting = Waiting(ledger)
    keys = await accept(gateway, 1_000)
    ledger.open.clear()
    waits = [asyncio.create_task(waiting.until_ended("parcels", key, LONG)) for key in keys]
    await eventually(lambda: ledger.reads)
    async with gateway.working():
        await eventually(lambda: all_ended(gateway, keys))
    assert ledger.reads == [("parcels", 500)], "nothing else was read meanwhile, however many wait"
    ledger.open.set()
    assert await asyncio.gather(*waits) == [True] * 1_000
    assert ledger.reads == [("parcels", 500)] * 2


async def all_ended(gateway, keys) -> bool:
    return len(await gateway.store.ended("parcels", keys)) == len(keys)


async def test_a_job_that_ends_in_this_process_wakes_its_waits_without_a_poll(gateway):
    ledger = Counted(gateway.store)
    ledger.open.clear()  # the poll finds nothing
    waiting = Waiting(ledger)
    (key,) = await accept(gateway, 1)
    waits = [asyncio.create_task(waiting.until_ended("parcels", key, LONG)) for _ in range(3)]
    await eventually(lambda: ledger.reads)
    waiting.notify("parcels", ["another", key])
    waiting.notify("others", [key])
    assert await asyncio.gather(*waits) == [True] * 3


async def test_the_worker_of_the_process_wakes_waits(gateway):
    heard = []
    execution = gateway.execution()
    execution._settler._ended = lambda workload, keys: heard.append((workload, list(keys)))
    (key,) = await accept(gateway, 1)
    stop = asyncio.Event()
    running = asyncio.create_task(execution.run(stop, LONG))
    await eventually(lambda: heard)
    stop.set()
    await running
    assert heard == [("parcels", [key])]


async def test_a_wait_ends_when_its_time_is_over_and_when_the_process_stops(gateway):
    waiting = Waiting(gateway.store)
    (key,) = await accept(gateway, 1)
    assert not await waiting.until_ended("parcels", key, SOON)
    assert not await waiting.until_ended("parcels", "unknown", SOON)
    wait = asyncio.create_task(waiting.until_ended("parcels", key, LONG))
    await asyncio.sleep(0)
    waiting.stop()
    assert not await wait
    assert not await waiting.until_ended("parcels", key, LONG), "no wait begins any more"


async def test_an_outage_of_the_store_does_not_end_the_waits(gateway):
    ledger = Counted(gateway.store)
    ledger.away = True
    waiting = Waiting(ledger)
    (key,) = await accept(gateway, 1)
    wait = asyncio.create_task(waiting.until_ended("parcels", key, LONG))
    await eventually(lambda: len(ledger.reads) > 1)
    async with gateway.working():
        await eventually(lambda: all_ended(gateway, [key]))
    ledger.away = False
    assert await wait


async def test_nothing_is_read_while_nobody_waits(gateway):
    ledger = Counted(gateway.store)
    waiting = Waiting(ledger)
    (key,) = await accept(gateway, 1)
    assert not await waiting.until_ended("parcels", key, SOON)
    before = len(ledger.reads)
    await asyncio.sleep(10 * SOON.total_seconds())
    assert len(ledger.reads) == before
    assert not await waiting.until_ended("parcels", key, SOON)
    assert len(ledger.reads) > before
