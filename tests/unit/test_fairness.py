"""Fairness: nobody's backlog holds up another's few."""

from __future__ import annotations

import pytest

from holdfast.contracts.ledger import NewEntry, QueuePlaces, Status
from holdfast.engine.intake import LAST_PLACE, with_places
from tests.support.gateway import assembled
from tests.support.workloads import Parcel, Parcels, deliver


class Ledger:
    """Answers with these places, and remembers the questions."""

    def __init__(self, lines):
        self._lines = lines
        self.asked = []

    async def queue_places(self, workload, fairness_keys):
        self.asked.append((workload, list(fairness_keys)))
        return self._lines


def an_entry(name, fairness_key, priority=5):
    return NewEntry(
        workload="parcels",
        key=name,
        job_id=name,
        body="{}",
        fingerprint="f",
        priority=priority,
        fairness_key=fairness_key and f"{fairness_key}/{priority}",
    )


async def places(lines, *entries):
    return [entry.priority for entry in await with_places(Ledger(lines), entries)]


async def test_a_lone_job_keeps_its_own_priority():
    assert await places(QueuePlaces(), an_entry("a", "acme")) == [5]
    assert await places(QueuePlaces(), an_entry("a", "acme", priority=1)) == [1]


async def test_a_fairness_key_counts_its_own_places_and_no_others():
    entries = [an_entry("a1", "acme"), an_entry("a2", "acme"), an_entry("b1", "bolt"), an_entry("a3", "acme")]
    assert await places(QueuePlaces(), *entries) == [5, 6, 5, 7]


async def test_a_new_job_stands_behind_the_last_of_its_fairness_key():
    assert await places(QueuePlaces(0, {"acme/5": 400}), an_entry("a", "acme"), an_entry("b", "bolt")) == [401, 5]


async def test_whoever_comes_new_starts_where_the_work_is_now():
    lines = QueuePlaces(front=400, ends={"acme/5": 9000})
    assert await places(lines, an_entry("a", "acme"), an_entry("b", "bolt")) == [9001, 395]


async def test_an_urgent_job_passes_its_own_fairness_key():
    lines = QueuePlaces(0, {"acme/5": 400})
    assert await places(lines, an_entry("a", "acme", priority=1)) == [1]


async def test_no_place_is_beyond_what_a_queue_knows():
    lines = QueuePlaces(0, {"acme/5": LAST_PLACE})
    assert await places(lines, an_entry("a", "acme")) == [LAST_PLACE]


async def test_jobs_without_a_fairness_key_cost_no_question():
    ledger = Ledger(QueuePlaces())
    entries = [an_entry("a", None, priority=3), an_entry("b", None)]
    assert await with_places(ledger, entries) == entries
    assert ledger.asked == []


async def test_each_fairness_key_is_asked_for_once():
    ledger = Ledger(QueuePlaces())
    await with_places(ledger, [an_entry("a1", "acme"), an_entry("a2", "acme"), an_entry("b1", "bolt")])
    assert ledger.asked == [("parcels", ["acme/5", "bolt/5"])]


class Shared(Parcels):
    """Parcels of many senders, named by where they are."""

    def fairness_key(self, data):
        return data.place


@pytest.mark.parametrize("outbox", [False, True])
async def test_ten_jobs_do_not_wait_for_a_thousand_of_somebody_else(outbox):
    order = []

    def script(job):
        order.append(job.data)
        return deliver(job)

    async with assembled(Shared(script), outbox=outbox) as gateway:

        async def hand_in(name, place):
            return await gateway.intake.accept(gateway.workload, Parcel(id=name, place=place), priority=5)

        for number in range(300):
            await hand_in(f"big{number:04}", "big")
        async with gateway.working(concurrency=5):
            await gateway.until("big0020", Status.PROCESSED)
            few = [f"few{number}" for number in range(10)]
            for name in few:
                await hand_in(name, "few")
            began = len(order)
            for name in few:
                await gateway.until(name, Status.PROCESSED)
            ended = len(order)
            await gateway.until("big0299", Status.PROCESSED)

    assert ended - began < 60, "the few were served while the many still waited"
    served = [parcel.id for parcel in order if parcel.place == "big"]
    # Five at a time, and those of one take begin in their order.
    assert served == sorted(served), "jobs with one fairness key keep their order"
    assert [parcel.id for parcel in order if parcel.place == "few"] == few
