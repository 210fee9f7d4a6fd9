"""Schedules as workloads, what a test wants to know about their ticks, and processes whose clock a test moves."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from holdfast import App, Collection, Context, Done, EntryQuery, Job, Outcome, Page, RecordQuery, Upsert, Workload
from holdfast.contracts.crash_points import POINTS_OF_SCHEDULES
from holdfast.contracts.schedules import SCHEDULES, Schedule, Tick
from holdfast.contracts.times import duration_ms, isoformat
from holdfast.sqlite.database import Database, wall_clock_ms
from holdfast.wiring import open_system
from holdfast.wiring.running import CRASH_POINT_VARIABLE

from .settings import load
from .waiting import eventually

SCHEDULES_VARIABLE: Final = "CHAOS_SCHEDULES"
CLOCK_VARIABLE: Final = "CHAOS_CLOCK"
SECOND, STEP, ABSENCE = timedelta(seconds=1), timedelta(minutes=10), timedelta(days=10)

EDGES: Final = {"forward": "2027-03-28T01:00:00+00:00", "back": "2027-10-31T01:00:00+00:00"}
"""When clocks in Berlin are put forward, and back."""
BERLIN: Final = {"timezone": "Europe/Berlin"}
CRON: Final = {
    "quarters": {"cron": "*/15 * * * *", "catch_up": "all", **BERLIN},
    "nightly": {"cron": "30 2 * * *", "catch_up": "last", **BERLIN},
    "fleeting": {"cron": "30 2 * * *", "catch_up": "none", **BERLIN},
}


class Ticking(Workload[Tick]):
    """Counts how often each instant took effect: more than once would be seen in its records."""

    contract = Tick

    def __init__(self, name: str = "nightly", **schedule: Any) -> None:
        self.name = name  # type: ignore[misc]
        self.queue, self.dead_letter_queue = f"{name}-main", f"{name}-dlq"
        self.collections: Sequence[Collection] = (Collection(f"runs_of_{name}", key="instant"),)
        self.schedule = Schedule(name, **schedule)
        self.handled: list[Tick] = []

    def key(self, data: Tick) -> str:
        return data.key

    async def handle(self, job: Job[Tick], context: Context) -> Outcome:
        del context
        self.handled.append(job.data)
        return Done(effects=[Upsert(f"runs_of_{self.name}", isoformat(job.data.at), {}, add={"times": 1})])


async def ticks_of(store: Any, workload: str = "nightly") -> list[datetime]:
    """The instants of all ticks in the ledger, oldest first, each as often as it is there."""
    found, cursor = [], None
    while True:
        page = await store.find(EntryQuery(workload=workload), Page(500, cursor))
        found += [Tick.model_validate_json(entry.body) for entry in page.items]
        cursor = page.next
        if cursor is None:
            return sorted(tick.at for tick in found if not tick.manual)


async def effects_of(store: Any, workload: str) -> Counter[datetime]:
    """How often each instant took effect."""
    found, cursor = Counter(), None
    while True:
        page = await store.find_records(RecordQuery(collection=f"runs_of_{workload}"), Page(500, cursor))
        found.update({datetime.fromisoformat(each["instant"]): each["times"] for each in page.items})
        cursor = page.next
        if cursor is None:
            return found


# --- processes with a clock of their own ----------------------------------------------------------------------------


def scheduled(environment: Mapping[str, str]) -> list[Ticking]:
    """The schedules of a process of a kill test; the heartbeat makes each process look every second."""
    if SCHEDULES_VARIABLE not in environment:
        return []
    given = json.loads(environment[SCHEDULES_VARIABLE])
    return [Ticking("heartbeat", every=SECOND), *(Ticking(name, **options) for name, options in given.items())]


def move_clocks(file: Path) -> None:
    """From now on, stores of this process are ahead by as many milliseconds as the file says, now and later."""
    from holdfast.stores.mongo.server import ServerClock

    def ahead() -> int:
        return int(file.read_text())

    Database.__init__.__kwdefaults__["now"] = lambda: wall_clock_ms() + ahead()
    skew = property(lambda _: timedelta(milliseconds=ahead()), lambda *_: None)
    ServerClock.skew = skew  # type: ignore[assignment]


@dataclass
class MovedClock:
    """The clock of the stores of all processes of a test."""

    file: Path

    @property
    def settings(self) -> dict[str, str]:
        return {CLOCK_VARIABLE: str(self.file), SCHEDULES_VARIABLE: json.dumps(CRON)}

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(milliseconds=int(self.file.read_text()))

    def go_to(self, instant: datetime) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(str(duration_ms(instant - datetime.now(UTC))))
        os.replace(new, self.file)  # noqa: PTH105 - at once: nobody reads half a number


async def live_through(gateway: Any, clock: MovedClock, edge: datetime) -> dict[str, int]:
    """Three workers live through a change of the clocks and ten days of absence, and are killed all the time.

    Afterwards the ledger has each tick that it should have, and no tick took effect twice.
    """
    fleet, chance = gateway.fleet, gateway.chance
    app, next_ten_minutes = App([*scheduled(clock.settings)]), Schedule("steps", every=STEP)
    kills = 0
    async with open_system(load(fleet.environment, gateway.folder), app) as system:

        async def cursor(name: str) -> datetime | None:
            record = await system.store.get(SCHEDULES, name)
            return None if record is None else datetime.fromisoformat(record["cursor"])

        async def decided(name: str, until: datetime) -> bool:
            tick = Schedule(name, **CRON[name]).latest(begin, until)
            return tick is None or (await cursor(name) or begin) >= tick

        async def all_decided(until: datetime) -> None:
            for name in CRON:
                await eventually(lambda name=name: decided(name, until))

        workers = [await fleet.start("worker") for _ in range(3)]
        begin = await eventually(lambda: cursor("quarters"))
        await eventually(lambda: cursor("fleeting"))
        points = list(POINTS_OF_SCHEDULES)
        while clock.now() < edge + timedelta(hours=2, minutes=30):
            clock.go_to(next_ten_minutes.next_after(clock.now()) + SECOND)
            if points:  # one dies at this point, while the others go on
                armed = await fleet.start("worker", **{CRASH_POINT_VARIABLE: f"{points.pop()}:{chance.randint(1, 3)}"})
                assert await armed.ended(120) < 0
            else:
                victim = chance.randrange(3)
                await workers[victim].kill()
                workers[victim] = await fleet.start("worker")
            kills += 1
            await all_decided(clock.now())
        left = clock.now()
        for worker in workers:
            await worker.kill()
        clock.go_to(left + ABSENCE)
        back = clock.now()
        workers = [await fleet.start("worker") for _ in range(3)]
        await all_decided(back)
        await gateway.drained()
        assert [await worker.terminate() for worker in workers] == [0, 0, 0]
        end = await cursor("quarters")
        found = {name: await ticks_of(system.store, name) for name in ("heartbeat", *CRON)}
        effects = {name: await effects_of(system.store, name) for name in ("heartbeat", *CRON)}

    quarters, nightly = (Schedule(name, **CRON[name]) for name in ("quarters", "nightly"))
    present = nightly.between(begin, left, 100)
    assert found["quarters"] == quarters.between(begin, end, 100_000)
    assert found["nightly"] == [*present, nightly.latest(left, back)]
    assert set(found["fleeting"]) <= set(present)  # on a slow machine, a tick can be too late
    assert present, "the edge was on the way"
    for name, ticks in found.items():
        assert effects[name] == Counter(ticks), name
        assert set(effects[name].values()) == {1}, name
    return {"ticks": sum(map(len, found.values())), "kills": kills + 3}
