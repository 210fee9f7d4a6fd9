"""Workers that die between a plain list and the ledger: each job is recorded once, each letter is on its list once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from holdfast.contracts.crash_points import POINTS_OF_LISTS
from holdfast.wiring.running import CRASH_POINT_VARIABLE
from tests.support.pages import text_pdf
from tests.support.plain_lists import PlainLists, flat
from tests.support.running_cluster import ClusterGateway, running_cluster
from tests.support.running_gateway import DRAIN_SECONDS

FINAL = {"processed", "dead_lettered"}


@dataclass
class ListTraffic:
    """A producer and a reader at the lists of a cluster whose documents come from a list."""

    gateway: ClusterGateway
    lists: PlainLists
    numbers: Iterator[int] = field(default_factory=itertools.count)
    good: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)

    def push(self, count: int) -> None:
        """So many jobs of each kind, one of them twice: some can be read, some not, and some break the contract."""
        for number in itertools.islice(self.numbers, count):
            name = f"good-{number}"
            self.good.append(name)
            self.bad += [f"blocked-{number}", f"poem-{number}"]
            self.lists.push(
                flat(name, local_path="deed.pdf", created_at="2026-01-25T11:00:00Z"),
                flat(f"blocked-{number}", local_path="../outside.pdf"),
                flat(f"poem-{number}", local_path="deed.pdf", job_type="POEM"),
                flat(name, local_path="deed.pdf", created_at="2026-01-25T12:00:00Z"),
            )

    @property
    def settled(self) -> bool:
        entries = list(self.gateway.database["document_ledger"].find({}, {"status": 1}))
        ended = len(entries) == len(self.good) + len(self.bad) and {each["status"] for each in entries} <= FINAL
        return ended and not self.lists.jobs and not self.lists.taken and len(self.lists.letters) >= len(self.bad)

    async def ended(self) -> None:
        """Everything is settled; the workers stop in good order; and then nothing is missing, and nothing is double."""
        await self.gateway.until(lambda: self.settled, "every job of the list is settled")
        codes = [await each.terminate() for each in self.gateway.fleet.members if each.alive]
        assert set(codes) <= {0}
        entries = {each["idempotencyKey"]: each for each in self.gateway.database["document_ledger"].find()}
        assert set(entries) == {*self.good, *self.bad}
        for name in self.good:
            outcomes = Counter(each["outcome"] for each in entries[name]["attemptHistory"])
            assert (entries[name]["status"], outcomes["succeeded"]) == ("processed", 1), name
        assert Counter(each["job_id"] for each in self.lists.letters) == Counter(self.bad)
        assert (self.lists.jobs, self.lists.taken) == ([], [])


@contextlib.asynccontextmanager
async def with_lists(folder, seed, mongo) -> AsyncIterator[ListTraffic]:
    (folder / "roots").mkdir()
    (folder / "roots" / "deed.pdf").write_bytes(text_pdf(["Deed of sale"]))
    settings = {
        "DOCUMENT_LISTS": "true",
        "DOCUMENT_ROOTS": str(folder / "roots"),
        "DOCUMENT_RETRY_BASE_MS": "0",
        "DOCUMENT_CONCURRENCY": "4",
        "DOCUMENT_MAX_ATTEMPTS": "100",  # kills cost attempts, and are not what the jobs should end by
        "WORKER_LEASE_SECONDS": "1",
    }
    async with running_cluster(folder, seed, mongo, **settings) as gateway:
        yield ListTraffic(gateway, PlainLists(gateway.looking))


async def test_a_worker_that_dies_at_any_point_of_the_lists_loses_and_doubles_nothing(tmp_path, seed, mongo):
    async with with_lists(tmp_path, seed, mongo) as traffic:
        for point in POINTS_OF_LISTS:
            worker = await traffic.gateway.fleet.start("worker", **{CRASH_POINT_VARIABLE: f"{point}:1"})
            traffic.push(3)
            assert await worker.ended(DRAIN_SECONDS) == -signal.SIGKILL, point
            if point != "lists.letters_sent":
                assert traffic.lists.taken, "the jobs that the dead worker had taken are there"
        await traffic.gateway.fleet.start("worker")
        await traffic.ended()


async def test_workers_that_are_killed_at_any_moment_lose_and_double_nothing(tmp_path, seed, rounds, mongo, tell):
    async with with_lists(tmp_path, seed, mongo) as traffic:
        await traffic.gateway.fleet.start("api")  # its maintenance publishes letters too
        for _ in range(rounds):
            worker = await traffic.gateway.fleet.start("worker")
            for _ in range(10):
                traffic.push(1)
                await asyncio.sleep(traffic.gateway.chance.uniform(0, 0.1))
            await worker.kill()
        await traffic.gateway.fleet.start("worker")
        await traffic.ended()
        tell({"seed": seed, "jobs": len(traffic.good) + len(traffic.bad), "kills": rounds})
