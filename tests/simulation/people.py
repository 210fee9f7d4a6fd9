"""People and programs outside the system: senders, external producers, the reviewer. The history has what they saw."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, Final

from holdfast.contracts.errors import HoldfastError, ReviewRefused
from holdfast.contracts.ledger import Cancelled, RecordedAs
from holdfast.contracts.queries import LetterQuery, Page
from holdfast.contracts.queues import QueueJob
from holdfast.engine.intake import Receipt

from .loop import ProcessKilled
from .workloads import Order, Simulated, draw_plan

_PATIENCE: Final = 2.0
"""Seconds after which a sender hangs up."""


@dataclass(slots=True)
class Request:
    """One request of a sender. ``receipt`` is None when there was no answer, or an error: then nobody knows."""

    workload: str
    order: Order
    delay: timedelta
    receipt: Receipt | None = None


@dataclass(slots=True)
class Foreign:
    """A job that somebody put straight into a queue."""

    workload: str
    job_id: str
    data: str
    at: float


@dataclass(slots=True)
class Step:
    """One step that a person asked for. ``answer`` is True, False (refused) or None (nobody knows)."""

    kind: str
    letter: str
    actor: str
    answer: bool | None = None


@dataclass(slots=True)
class Cancel:
    """One request to cancel a job. ``answer`` is None when there was no answer: then nobody knows."""

    workload: str
    key: str
    asked: float
    answered: float = 0.0
    answer: Cancelled | None = None


@dataclass(slots=True)
class History:
    """What people outside did and saw."""

    requests: list[Request] = field(default_factory=list)
    foreign: list[Foreign] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    cancels: list[Cancel] = field(default_factory=list)
    queue_losses: list[float] = field(default_factory=list)


def _nobody_listens(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


class Outside:
    """How people reach the system: through some API process that is up."""

    def __init__(self, system: Any) -> None:
        self.system = system
        self.random: Random = system.random
        self.history: History = system.history

    async def ask(self, call: Callable[[Any], Any]) -> Any:
        """Ask one API process; raises TimeoutError when no answer comes, HoldfastError when the answer is an error."""
        member = self.system.some_api()
        if member is None:
            await asyncio.sleep(0.3)
            raise TimeoutError
        task = self.system.loop.spawn(member, call(member))
        done, _ = await asyncio.wait({task}, timeout=_PATIENCE)
        if not done:
            task.add_done_callback(_nobody_listens)
            if self.random.random() < 0.5:
                task.cancel()
            raise TimeoutError
        try:
            return task.result()
        except ProcessKilled:
            raise TimeoutError from None


class Sender(Outside):
    """Sends one job until it is acknowledged, and sometimes once more."""

    async def send(self, workload: Simulated, order: Order, start: float) -> None:
        random = self.random
        await asyncio.sleep(start)
        delay = timedelta(seconds=random.choice((0.0, 0.0, 0.0, random.uniform(0.5, 3))))
        priority = random.choice((0, 0, 5))
        twice = random.random() < 0.3
        for _ in range(8):
            copies = 2 if random.random() < 0.2 else 1
            answers = await asyncio.gather(
                *(self._request(workload, order, priority, delay) for _ in range(copies)),
            )
            if any(answers):
                if not twice:
                    return
                twice = False
            await asyncio.sleep(random.uniform(0.05, 1.5))

    async def _request(self, workload: Simulated, order: Order, priority: int, delay: timedelta) -> bool:
        request = Request(workload.name, order, delay)
        self.history.requests.append(request)
        try:
            request.receipt = await self.ask(
                lambda member: member.intake.accept(workload, order, priority=priority, delay=delay),
            )
        except (TimeoutError, HoldfastError, asyncio.CancelledError):
            return False
        self.system.sky.note("sender", "told", order.key, order.content, request.receipt.recorded_as.value)
        return request.receipt.recorded_as is not RecordedAs.CONFLICT

    async def cancel(self, workload: Simulated, key: str, start: float) -> None:
        """Cancel a job, whatever it is doing by then; without an answer, ask again."""
        await asyncio.sleep(start)
        for _ in range(3):
            cancel = Cancel(workload.name, key, self.system.loop.time())
            self.history.cancels.append(cancel)
            try:
                cancel.answer = await self.ask(lambda member: member.cancellation.cancel(workload, key))
            except (TimeoutError, HoldfastError, asyncio.CancelledError):
                continue
            cancel.answered = self.system.loop.time()
            self.system.sky.note("sender", f"cancel {cancel.answer.value}", key)
            return

    async def put(self, workload: Simulated, job_id: str, data: str, start: float) -> None:
        """Put a job straight into the queue, as a Node producer does."""
        await asyncio.sleep(start)
        if self.system.queue_has(workload.queue, job_id):
            return  # the queue would leave the job that it has: ours was never there
        self.history.foreign.append(Foreign(workload.name, job_id, data, self.system.loop.time()))
        await self.system.broker.publish(workload.queue, [QueueJob(job_id, data)])


class Person(Outside):
    """Works through the dead letters: reviews, replays (sometimes two at once), closes."""

    def __init__(self, system: Any) -> None:
        super().__init__(system)
        self.leaving = False
        self._number = 0

    async def work(self) -> None:
        """Until it is time to go home."""
        while not self.leaving:
            await asyncio.sleep(self.random.uniform(0.5, 2.0))
            await self.once()

    async def once(self) -> None:
        """Read the letters; take a step or two with some of them."""
        workload = self.random.choice(self.system.workloads)
        query = LetterQuery(workload=workload.name)
        try:
            letters = (await self.ask(lambda member: member.review.list(query, Page(20)))).items
        except (TimeoutError, HoldfastError):
            return
        for letter in letters:
            if self.random.random() < 0.5:
                await self._deal_with(letter)

    async def _deal_with(self, letter: Any) -> None:
        if self.random.random() < 0.1:  # out of order: to be refused, unless it happens to be right
            await self._step(self.random.choice(("review", "replay", "close")), letter.id)
        elif letter.review_status == "pending":
            await self._step("review", letter.id)
        elif letter.review_status == "reviewed":
            tired = letter.generation > 2 or letter.key.endswith("~~")
            if tired or self.random.random() < 0.2:
                await self._step("close", letter.id)
            elif self.random.random() < 0.3:
                await asyncio.gather(self._step("replay", letter.id), self._step("replay", letter.id))
            elif self.random.random() < 0.3:
                await self._replay_by_filter(letter)
            else:
                await self._step("replay", letter.id)
        elif letter.review_status == "replayed" and self.random.random() < 0.3:
            await self._step("close", letter.id)

    def _begin(self, kind: str, letter_id: str) -> Step:
        self._number += 1
        step = Step(kind, letter_id, f"ana-{self._number}")
        self.history.steps.append(step)
        return step

    async def _step(self, kind: str, letter_id: str) -> None:
        step = self._begin(kind, letter_id)
        try:
            await self.ask(lambda member: getattr(member.review, kind)(letter_id, actor=step.actor, reason="because"))
        except ReviewRefused:
            step.answer = False
        except (TimeoutError, HoldfastError, asyncio.CancelledError):
            return
        else:
            step.answer = True
        self.system.sky.note("person", kind, letter_id, step.answer)

    async def _replay_by_filter(self, letter: Any) -> None:
        step = self._begin("replay", letter.id)
        query = LetterQuery(workload=letter.workload, key=letter.key)
        try:
            report = await self.ask(
                lambda member: member.review.replay_where(query, limit=5, actor=step.actor, reason="because"),
            )
        except (TimeoutError, HoldfastError, asyncio.CancelledError):
            return
        step.answer = letter.id in report.moved
        self.system.sky.note("person", "replay by filter", letter.id, step.answer)


def draw_order(random: Random, key: str, instant: str) -> Order:
    """A job whose plan is drawn; most are mended by the time of a replay."""
    mended = ("done",) if random.random() < 0.6 else draw_plan(random)
    return Order(
        key=key,
        subject=f"s{random.randint(1, 3)}",
        at=instant,
        plan=draw_plan(random),
        mended=mended,
    )
