"""Simulated workloads: handlers that do what a job's plan says, and leave marks that the checker can read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, Final

from pydantic import BaseModel

from holdfast.contracts.effects import Collection, Effect, Upsert
from holdfast.contracts.errors import PermanentError, ThrottledError, TransientError
from holdfast.contracts.jobs import Context, Job, JobState
from holdfast.contracts.outcomes import Done, Expired, Outcome, Reject, Retry, Snooze
from holdfast.contracts.retry import ExponentialBackoff
from holdfast.contracts.schedules import Schedule, Tick
from holdfast.contracts.transitions import Expire, Transition
from holdfast.contracts.workload import Workload

from .loop import current_process
from .weather import Sky

MAX_ATTEMPTS: Final = 3
BASE: Final = timedelta(milliseconds=400)
THROTTLE: Final = timedelta(seconds=2)
TIMEOUT: Final = timedelta(seconds=5)
TTL: Final = timedelta(seconds=8)

_COMMON: Final = ("done", "done", "done", "retry", "transient", "slow", "slow", "slow", "snooze")
_RARE: Final = (
    "bad effect", "bug", "cancelled", "expired", "hang", "malformed", "none", "permanent", "poison", "reject",
    "stubborn", "throttled", "unwritable",
)  # fmt: skip

BEHAVIOURS: Final = frozenset({*_COMMON, *_RARE})


class Order(BaseModel):
    """A job. ``plan`` is what its runs do, one by one (the last for ever); ``mended`` is the plan after a replay."""

    key: str
    subject: str
    at: str
    plan: tuple[str, ...]
    mended: tuple[str, ...]
    content: int = 0
    attempt: int = 1


def draw_plan(random: Random) -> tuple[str, ...]:
    """What a job's runs will do."""
    chance = random.random()
    if chance < 0.1:
        return ("poison",)
    if chance < 0.25:
        return (random.choice(_RARE),)
    plan = [random.choice(_COMMON) for _ in range(random.randint(0, 2))]
    if random.random() < 0.4:
        plan.append(random.choice(_RARE))
    return (*plan, "done")


@dataclass(slots=True)
class Run:
    """One call of a handler, as seen from outside the system."""

    workload: str
    key: str
    generation: int
    attempt: int
    worker: str
    behaviour: str
    started: float
    ended: float | None = None
    """None in a process that was killed."""
    launched: float | None = None
    """When it did what cannot be undone (I11)."""
    stopped: bool = False
    """Whether it learned that the job was cancelled, and stopped."""


class Simulated(Workload[Order]):
    """What the simulated workloads share."""

    contract = Order
    retry = ExponentialBackoff(MAX_ATTEMPTS, BASE, 2.0, 20.0)
    timeout = TIMEOUT

    def __init__(self, sky: Sky, runs: list[Run]) -> None:
        self.sky = sky
        self.runs = runs
        self._counts: dict[tuple[str, int], int] = {}

    def key(self, data: Order) -> str:
        return data.key

    def labels(self, data: Order) -> dict[str, str]:
        return {"subject": data.subject}

    def on_transition(self, transition: Transition, job: JobState[Order]) -> Sequence[Effect]:
        if not isinstance(transition, Expire):
            return ()
        return (Upsert(f"{self.name}_applied", f"{job.key}|expired", {"outcome": "expired"}),)

    async def handle(self, job: Job[Order], context: Context) -> Outcome:
        run = self.begin(job, context)
        try:
            return await self.behave(run, job)
        finally:  # does not run in a killed process
            run.ended = self.sky.loop.time()

    def begin(self, job: Job[Order], context: Context) -> Run:
        identity = (job.key, job.generation)
        count = self._counts[identity] = self._counts.get(identity, 0) + 1
        plan = job.data.plan if job.generation == 1 else job.data.mended
        behaviour = plan[min(count, len(plan)) - 1]
        started = self.sky.loop.time()
        run = Run(self.name, job.key, job.generation, job.attempt, context.worker, behaviour, started)
        self.runs.append(run)
        self.sky.note(context.worker, "handles", job.key, job.generation, job.attempt, behaviour)
        return run

    async def behave(self, run: Run, job: Job[Order]) -> Any:  # noqa: C901, PLR0911, PLR0912 - a table
        """One behaviour each. ``who`` is in every message, so that the checker can see whose failure was recorded."""
        who = f"{run.worker}#{run.attempt}"
        done = Done(self.marks(run, job), {"who": who})
        random = self.sky.random
        match run.behaviour:
            case "slow":
                await asyncio.sleep(random.uniform(0.5, TIMEOUT.total_seconds() - 1))
            case "stubborn":
                try:
                    await asyncio.sleep(random.uniform(0.5, TIMEOUT.total_seconds() - 1))
                except asyncio.CancelledError:
                    return done  # finishes its work all the same
            case "hang":
                await asyncio.sleep(1e9)
            case "poison":
                await asyncio.sleep(random.choice((0.0, 0.1)))
                process = current_process()
                assert process is not None
                self.sky.kill(process, f"poison {run.key}")
                await self.sky.end()
            case "retry":
                return Retry("NOT_YET", who)
            case "snooze":
                return Snooze(timedelta(seconds=random.uniform(0.1, 1.0)))
            case "reject":
                return Reject("NEVER", who)
            case "transient":
                code = "AWAY"
                raise TransientError(code, who)
            case "throttled":
                raise ThrottledError(message=who, retry_after=THROTTLE)
            case "permanent":
                code = "REFUSED"
                raise PermanentError(code, who)
            case "bug":
                raise ValueError(who)
            case "cancelled":
                raise asyncio.CancelledError
            case "none":
                return None
            case "malformed":
                return Retry("NOT_YET", None, 5)  # type: ignore[arg-type]
            case "bad effect":
                return Done((*done.effects, Upsert("nowhere", run.key, {})))
            case "unwritable":
                return Done((*done.effects, Upsert(f"{self.name}_subjects", run.key, {"set": {1, 2}})))
            case "expired":
                return Expired()
        return done

    def marks(self, run: Run, job: Job[Order]) -> Sequence[Effect]:
        """A mark for this generation alone, and one on a subject that jobs share, where the newest must stand."""
        mark = {"attempt": run.attempt, "worker": run.worker, "outcome": "done"}
        shared = {"at": job.data.at, "key": job.key}
        return (
            Upsert(f"{self.name}_applied", f"{job.key}|{job.generation}", mark),
            Upsert(f"{self.name}_subjects", job.data.subject, shared, only_if_newer="at"),
        )


def _collections(name: str) -> tuple[Collection, ...]:
    return (Collection(f"{name}_applied", "mark"), Collection(f"{name}_subjects", "subject"))


class Parcels(Simulated):
    """The plain kind."""

    name = "parcels"
    queue = "parcels-main"
    dead_letter_queue = "parcels-dlq"
    collections = _collections("parcels")


class Notices(Simulated):
    """Jobs that are worth nothing after a while."""

    name = "notices"
    queue = "notices-main"
    dead_letter_queue = "notices-dlq"
    ttl = TTL
    collections = _collections("notices")


class Rockets(Simulated):
    """Jobs that do something outside which cannot be undone. Only a run that says so has not done it."""

    name = "rockets"
    queue = "rockets-main"
    dead_letter_queue = "rockets-dlq"
    ttl = TTL
    stoppable = True
    collections = (*_collections("rockets"), Collection("rockets_launches", "launch"))

    async def handle(self, job: Job[Order], context: Context) -> Outcome:
        run = self.begin(job, context)
        try:
            launch = Upsert("rockets_launches", job.key, {"generation": job.generation, "attempt": job.attempt})
            await context.proceed([launch])
            if run.behaviour not in NOT_LAUNCHED:
                run.launched = self.sky.loop.time()
            return await self.behave(run, job)
        finally:
            run.ended = self.sky.loop.time()


class Scans(Simulated):
    """Long jobs that stop when their sender cancels them."""

    name = "scans"
    timeout = 2 * TIMEOUT
    queue = "scans-main"
    dead_letter_queue = "scans-dlq"
    stoppable = True
    collections = _collections("scans")

    async def handle(self, job: Job[Order], context: Context) -> Outcome:
        run = self.begin(job, context)
        working = asyncio.ensure_future(self._scan(run, job))
        waiting = asyncio.ensure_future(context.until_cancelled())
        try:
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            run.stopped = context.cancelled and not working.done()
            return Expired() if run.stopped else await working
        finally:
            run.ended = self.sky.loop.time()
            working.cancel()
            waiting.cancel()

    async def _scan(self, run: Run, job: Job[Order]) -> Any:
        await asyncio.sleep(self.sky.random.uniform(0.5, TIMEOUT.total_seconds()))
        return await self.behave(run, job)


class Bells(Simulated):
    """Ticks of a schedule. Nobody sends them, and all that is missed is made up for (I22)."""

    name = "bells"
    contract = Tick  # type: ignore[assignment]
    queue = "bells-main"
    dead_letter_queue = "bells-dlq"
    schedule = Schedule("bells", every=timedelta(seconds=3), catch_up="all")
    collections = _collections("bells")

    def labels(self, data: Any) -> dict[str, str]:
        del data
        return {}

    def begin(self, job: Job[Any], context: Context) -> Run:
        started = self.sky.loop.time()
        run = Run(self.name, job.key, job.generation, job.attempt, context.worker, "done", started)
        self.runs.append(run)
        self.sky.note(context.worker, "rings", job.key, job.generation, job.attempt)
        return run

    def marks(self, run: Run, job: Job[Any]) -> Sequence[Effect]:
        mark = {"attempt": run.attempt, "worker": run.worker, "outcome": "done"}
        return (Upsert("bells_applied", f"{job.key}|{job.generation}", mark),)


NOT_LAUNCHED: Final = frozenset({"expired", "reject", "retry", "snooze"})
"""What a run returns that knows that nothing has happened."""


class Rolls(Simulated):
    """Jobs that are handled in batches; a replay makes a new job."""

    name = "rolls"
    queue = "rolls-main"
    dead_letter_queue = "rolls-dlq"
    batch_size = 3
    collections = _collections("rolls")

    async def handle_batch(self, jobs: Sequence[Job[Order]], contexts: Sequence[Context]) -> Sequence[Outcome]:
        runs = [self.begin(job, context) for job, context in zip(jobs, contexts, strict=True)]
        try:
            return [await self.behave(run, job) for run, job in zip(runs, jobs, strict=True)]
        finally:
            for run in runs:
                run.ended = self.sky.loop.time()

    def replayed(self, letter: Any) -> Order | None:
        try:
            dead = Order.model_validate_json(letter.body)
        except ValueError:
            return None
        return dead.model_copy(update={"key": f"{dead.key}~", "plan": dead.mended})
