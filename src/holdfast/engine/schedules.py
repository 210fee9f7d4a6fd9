"""Schedules: maintenance submits the ticks that are due, and people run, pause and resume them.

Every process does this. A tick is a job whose key has the schedule's name and the instant, so the ledger takes it once
(I22, I2). The cursor, in the schedule's record, only saves work: it is the tick up to which everything is decided. It
moves after the jobs are recorded; after a crash in between, the same keys are submitted again, and are duplicates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.effects import Upsert
from holdfast.contracts.errors import ConfigurationError, NotFound, StoreUnavailable
from holdfast.contracts.ledger import Status
from holdfast.contracts.ports import Clock, Store
from holdfast.contracts.queries import Page, RecordQuery
from holdfast.contracts.schedules import SCHEDULES, Schedule, Tick
from holdfast.contracts.times import from_ms, isoformat, to_ms
from holdfast.contracts.workload import Workload
from holdfast.telemetry import emit, emit_failure, events

from .intake import Intake, Receipt

MOST_AT_ONCE: Final = 100
"""The most ticks of one schedule that one round submits."""
LATE: Final = timedelta(seconds=10)
"""Ticks that are later than this were missed, and ``catch_up`` decides about them."""
STALE: Final = timedelta(minutes=1)
"""With ``catch_up="none"``, a missed tick that is later than this is skipped."""
_LOOK_EVERY: Final = timedelta(seconds=10)
_AGAIN_AFTER: Final = timedelta(seconds=5)
_CLOCK_WENT_BACK: Final = timedelta(minutes=1)
_PAGE: Final = 200
_NEXT_TIMES: Final = 5
_PROBE: Final = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DueTicks:
    """The ticks to submit now, and the cursor after them. ``missed`` is the oldest tick that came too late."""

    ticks: Sequence[datetime]
    cursor: datetime
    missed: datetime | None = None


def due_ticks(schedule: Schedule, cursor: datetime, now: datetime) -> DueTicks:
    """Decide about the ticks after the cursor, up to now. The work is bounded, however long nobody was there."""
    first = schedule.next_after(cursor)
    if first > now:
        return DueTicks((), cursor)
    in_time = now - first <= LATE
    missed = None if in_time else first
    if in_time or schedule.catch_up == "all":
        ticks = schedule.between(cursor, now, MOST_AT_ONCE)
        return DueTicks(ticks, ticks[-1], missed)
    newest = schedule.latest(cursor, now) or first
    skipped = schedule.catch_up == "none" and now - newest > STALE
    return DueTicks(() if skipped else (newest,), newest, missed)


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule as people see it. ``status`` is that of the last tick's job; None if the ledger has none.

    ``next`` are its next instants, also while it is paused: then nothing is submitted at them.
    """

    schedule: Schedule
    workload: str
    next: Sequence[datetime]
    last_tick: datetime | None = None
    last_key: str | None = None
    status: Status | None = None
    last_run: datetime | None = None
    paused: bool = False
    paused_by: str | None = None
    reason: str | None = None
    paused_at: datetime | None = None


class _Scheduled(NamedTuple):
    workload: Workload[Any]
    schedule: Schedule


class Schedules:
    """The schedules of one process. Any number of processes may have the same ones."""

    def __init__(self, store: Store, intake: Intake, clock: Clock, workloads: Iterable[Workload[Any]]) -> None:
        self._store = store
        self._intake = intake
        self._clock = clock
        self._scheduled: dict[str, _Scheduled] = {}
        self._cursors: dict[str, datetime] = {}
        """The cursor of each schedule that this process has seen, as far as this process knows."""
        self._late: set[str] = set()
        self._look_at = clock.monotonic()
        for workload in workloads:
            if workload.schedule is not None:
                self._add(workload, workload.schedule)

    def _add(self, workload: Workload[Any], schedule: Schedule) -> None:
        probe = Tick(schedule=schedule.name, at=_PROBE)
        problem = None
        if workload.contract is not Tick or workload.key(probe) != probe.key:
            problem = "the workload's contract must be Tick, and its key Tick.key"
        elif schedule.name in self._scheduled:
            problem = "there are two schedules with this name"
        elif workload.ttl is not None and workload.ttl <= schedule.jitter:
            problem = "the jitter must be shorter than the workload's ttl"
        if problem is not None:
            message = f"Schedule {schedule.name!r}: {problem}."
            raise ConfigurationError(message)
        self._scheduled[schedule.name] = _Scheduled(workload, schedule)

    # --- maintenance --------------------------------------------------------------------------------------

    async def round(self) -> int:
        """Submit what is due on the store's clock (I15); return how many jobs were submitted here.

        Costs nothing until a tick is due, or ten seconds are over: then one read of the time, and one of the records.
        So a pause of another process counts from the next tick on.
        """
        if not self._scheduled or self._clock.monotonic() < self._look_at:
            return 0
        now = await self._store.now()
        records = await self._records()
        crash_point("schedules.read")
        moves: list[Upsert] = []
        submitted, wait = 0, _LOOK_EVERY
        for name, each in self._scheduled.items():
            begun = self._begin(each.schedule, records.get(name), now)
            if begun is not None:
                moves.append(begun)
            elif not records[name].get("paused"):
                due = due_ticks(each.schedule, self._cursors[name], now)
                self._tell_missed(each.schedule, due)
                if not await self._submit(each, due, now):
                    wait = min(wait, _AGAIN_AFTER)
                    continue
                submitted += len(due.ticks)
                moves += _cursor_moves(each.schedule, records[name], due)
                self._cursors[name] = due.cursor
            wait = min(wait, each.schedule.next_after(self._cursors[name]) - now)
        crash_point("schedules.submitted")
        if moves:
            await self._store.apply(moves)
        crash_point("schedules.moved")
        self._look_at = self._clock.monotonic() + max(wait, timedelta(0)).total_seconds()
        return submitted

    def _begin(self, schedule: Schedule, record: Mapping[str, Any] | None, now: datetime) -> Upsert | None:
        """Find the cursor. The result is a write, if the schedule begins now: because it is new, or has changed."""
        name, facts = schedule.name, {"expression": schedule.expression, "cursor": isoformat(now)}
        if record is None:
            self._cursors[name] = now
            return Upsert(SCHEDULES, name, {}, set_on_insert={**facts, "paused": False})
        if record.get("paused"):
            self._cursors[name] = now
        elif record["expression"] == schedule.expression:
            self._cursors[name] = datetime.fromisoformat(record["cursor"])
        elif name not in self._cursors:
            self._cursors[name] = now
            return Upsert(SCHEDULES, name, facts)
        # Otherwise a process with another version of the app has begun later than this one. While both run, both
        # versions tick. This one goes on by what it remembers.
        if self._cursors[name] - now > _CLOCK_WENT_BACK:
            emit(events.SCHEDULE_REWOUND, schedule=name, cursor=isoformat(self._cursors[name]))
            self._cursors[name] = now
            return Upsert(SCHEDULES, name, facts)
        return None

    async def _submit(self, scheduled: _Scheduled, due: DueTicks, now: datetime) -> bool:
        """Submit the ticks in one commit. False: they were not all recorded, and are tried again later."""
        workload, schedule = scheduled
        answers = await asyncio.gather(
            *(
                self._intake.accept(
                    workload,
                    Tick(schedule=schedule.name, at=tick),
                    delay=max(tick + schedule.delay_of(tick) - now, timedelta(0)),
                )
                for tick in due.ticks
            ),
            return_exceptions=True,
        )
        errors = [each for each in answers if isinstance(each, BaseException)]
        for error in errors:
            if isinstance(error, StoreUnavailable) or not isinstance(error, Exception):
                raise error
        if errors:
            emit_failure(events.SCHEDULE_FAILED, errors[0], schedule=schedule.name)
        return not errors

    def _tell_missed(self, schedule: Schedule, due: DueTicks) -> None:
        """One event for each absence, also if its ticks take many rounds."""
        if due.missed is None:
            self._late.discard(schedule.name)
        elif schedule.name not in self._late:
            self._late.add(schedule.name)
            since = isoformat(due.missed)
            emit(events.SCHEDULE_LATE, schedule=schedule.name, since=since, catch_up=schedule.catch_up)

    async def _records(self) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        cursor = None
        while True:
            page = await self._store.find_records(RecordQuery(collection=SCHEDULES), Page(_PAGE, cursor))
            found |= {record["name"]: record for record in page.items}
            cursor = page.next
            if cursor is None:
                return found

    # --- people -------------------------------------------------------------------------------------------

    async def states(self) -> list[ScheduleState]:
        """All schedules, by name."""
        if not self._scheduled:
            return []
        records, now = await self._records(), await self._store.now()
        return [await self._state(name, records.get(name, {}), now) for name in sorted(self._scheduled)]

    async def state(self, name: str) -> ScheduleState:
        """One schedule. Raises :class:`NotFound`."""
        self._named(name)
        return await self._state(name, await self._store.get(SCHEDULES, name) or {}, await self._store.now())

    async def run(self, name: str, *, actor: str | None = None) -> Receipt:
        """Submit one tick for the time of now, even if the schedule is paused. Raises :class:`NotFound`."""
        workload = self._named(name).workload
        tick = Tick(schedule=name, at=from_ms(to_ms(await self._store.now())), manual=True)
        receipt = await self._intake.accept(workload, tick)
        await self._store.apply([await self._changed(name, {"lastRun": isoformat(tick.at)})])
        emit(events.SCHEDULE_DECIDED, schedule=name, step="run", actor=actor, key=receipt.key)
        return receipt

    async def pause(self, name: str, *, actor: str, reason: str) -> ScheduleState:
        """Submit no more ticks, in every process, until the schedule is resumed. The first pause counts."""
        if not (await self.state(name)).paused:
            at = isoformat(await self._store.now())
            facts = {"paused": True, "pausedBy": actor, "reason": reason, "pausedAt": at}
            await self._store.apply([await self._changed(name, facts)])
            emit(events.SCHEDULE_DECIDED, schedule=name, step="pause", actor=actor)
        return await self.state(name)

    async def resume(self, name: str, *, actor: str, reason: str) -> ScheduleState:
        """Submit ticks again, from now on: those that fell into the pause are skipped."""
        if (await self.state(name)).paused:
            at = isoformat(await self._store.now())
            ended = {"paused": False, "pausedBy": None, "reason": None, "pausedAt": None, "cursor": at}
            facts = {**ended, "resumedBy": actor, "resumeReason": reason, "resumedAt": at}
            await self._store.apply([await self._changed(name, facts)])
            emit(events.SCHEDULE_DECIDED, schedule=name, step="resume", actor=actor)
        return await self.state(name)

    async def _changed(self, name: str, facts: Mapping[str, Any]) -> Upsert:
        """Write facts into the record. Maintenance may not have made the record yet."""
        expression = self._named(name).schedule.expression
        missing = {"expression": expression, "cursor": isoformat(await self._store.now()), "paused": False}
        return Upsert(SCHEDULES, name, facts, set_on_insert=missing)

    def _named(self, name: str) -> _Scheduled:
        found = self._scheduled.get(name)
        if found is None:
            message = "There is no such schedule; `holdfast schedules list` shows them."
            raise NotFound(message)
        return found

    async def _state(self, name: str, record: Mapping[str, Any], now: datetime) -> ScheduleState:
        workload, schedule = self._scheduled[name]
        last = _instant(record.get("lastTick"))
        key = None if last is None else Tick(schedule=name, at=last).key
        entry = None if key is None else await self._store.entry(workload.name, key)
        coming, following = [], max(now, _instant(record.get("cursor")) or now)
        for _ in range(_NEXT_TIMES):
            following = schedule.next_after(following)
            coming.append(following)
        return ScheduleState(
            schedule=schedule,
            workload=workload.name,
            next=coming,
            last_tick=last,
            last_key=key,
            status=None if entry is None else entry.status,
            last_run=_instant(record.get("lastRun")),
            paused=bool(record.get("paused")),
            paused_by=record.get("pausedBy"),
            reason=record.get("reason"),
            paused_at=_instant(record.get("pausedAt")),
        )


def _cursor_moves(schedule: Schedule, record: Mapping[str, Any], due: DueTicks) -> list[Upsert]:
    cursor = isoformat(due.cursor)
    # The cursor may be that of another version of the app.
    if record["cursor"] == cursor or record["expression"] != schedule.expression:
        return []
    facts = {"cursor": cursor}
    if due.ticks:
        facts["lastTick"] = isoformat(due.ticks[-1])
    return [Upsert(SCHEDULES, schedule.name, facts, only_if_newer="cursor")]


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
