"""Maintenance in several processes at a time: what one does, the others do not do again."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from holdfast.contracts.dead_letters import ReviewStatus
from holdfast.contracts.ledger import NewEntry
from holdfast.contracts.queries import LetterQuery, Page
from holdfast.telemetry import attach, detach, events
from holdfast.wiring import open_system
from tests.cli.parcels import Parcel, app
from tests.support.settings import load
from tests.support.valkey_server import forget
from tests.support.waiting import eventually

PROCESSES = 4
JOBS = 700


@pytest.fixture
async def systems(environment, home):
    """What as many processes would have: connections, clocks and names of their own."""
    settings = load(environment | {"PUBLISH_GRACE_MS": "0"}, home)
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_system(settings, app)) for _ in range(PROCESSES)]


def entries(count: int) -> list[NewEntry]:
    body = Parcel(number="1").model_dump_json()
    return [
        NewEntry(workload="parcels", key=f"parcel/{n}", job_id=f"job-{n}", body=body, fingerprint=f"print-{n}")
        for n in range(count)
    ]


async def test_what_the_queue_lost_is_republished_once(systems):
    await systems[0].store.record(entries(JOBS))
    reports = await asyncio.gather(*(system.maintenance().round() for system in systems))
    assert sum(report.republished for report in reports) == JOBS
    assert (await systems[0].broker.depth("parcels-main")).ready == JOBS


async def test_a_lost_queue_is_noticed_by_one_and_rebuilt_with_each_job_once(systems, redis_place):
    first = systems[0]
    await first.store.record(entries(JOBS))
    maintenances = [system.maintenance() for system in systems]
    await maintenances[0].round()
    await asyncio.to_thread(forget, redis_place)
    heard = []

    def hear(event, _):
        heard.append(event)

    attach(hear)
    try:
        reports = await asyncio.gather(*(maintenance.round() for maintenance in maintenances))
    finally:
        detach(hear)
    assert heard.count(events.QUEUE_LOST) == 1
    # Two that notice the loss at the same moment may both republish a job; the queue takes it once.
    assert sum(report.republished for report in reports) >= JOBS
    assert (await first.broker.depth("parcels-main")).ready == JOBS


async def test_each_dead_letter_is_in_its_queue_once(systems):
    first = systems[0]
    for number in range(30):
        await first.intake.accept(first.workloads["parcels"], Parcel(number=str(number), broken=True))
    stop = asyncio.Event()
    workers = [asyncio.create_task(system.worker().run(stop)) for system in systems]

    async def all_are_dead() -> bool:
        return await first.review.count(LetterQuery(review_status=ReviewStatus.PENDING)) == 30

    await eventually(all_are_dead)

    async def all_are_published() -> bool:
        return (await first.broker.depth("parcels-dead")).ready == 30

    await eventually(all_are_published)
    await asyncio.gather(*(system.maintenance().round() for system in systems))
    assert (await first.broker.depth("parcels-dead")).ready == 30
    letters = (await first.review.list(LetterQuery(), Page(1000))).items
    assert len({letter.key for letter in letters}) == len(letters) == 30
    stop.set()
    await asyncio.gather(*workers)
