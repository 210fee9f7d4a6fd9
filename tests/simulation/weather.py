"""Faults at the ports: what lies between a process and its store and queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NoReturn

from holdfast.contracts.crash_points import CRASH_POINTS, POINTS_OF_SCHEDULES
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable

from .loop import Process, ProcessKilled, SimulatedLoop

_LONGEST_LATENCY: Final = 0.3


@dataclass(frozen=True, slots=True)
class Weather:
    """How likely each kind of trouble is, at each call to a port."""

    latency: float = 0.0
    error: float = 0.0
    """Before the call: nothing was done."""
    lost_reply: float = 0.0
    """After the call: it was done, and the caller is told that the other side is away."""
    freeze: float = 0.0
    crash: float = 0.0
    crash_point: float = 0.0
    """At each named crash point."""
    doom: str = ""
    """The one crash point that this process will hardly survive, so that the rarely passed points are tested too."""

    def crash_at(self, point: str) -> float:
        """How likely the process ends at a named crash point."""
        return 0.4 if point == self.doom else self.crash_point


_PASSED_BY_WORKERS: Final = tuple(point for point in CRASH_POINTS if not point.startswith(("intake.", "review.")))
_API_POINTS: Final = ("intake.", "review.", "maintenance.")
_PASSED_BY_APIS: Final = tuple(point for point in CRASH_POINTS if point.startswith(_API_POINTS))


def forecast(random: Random, *, works: bool, rockets: bool, bells: bool = False) -> Weather:
    """The faults around one process: calm, or with one or two kinds of trouble that come often."""
    dooms = _PASSED_BY_WORKERS if works else _PASSED_BY_APIS
    if works and rockets:
        dooms += ("worker.proceeding", "worker.proceeded") * 3
    if bells:
        dooms += POINTS_OF_SCHEDULES * 3
    latency = random.choice((0.0, 0.01, 0.05))
    if random.random() < 0.35:
        return Weather(latency=latency)
    return Weather(
        latency=latency,
        error=random.choice((0.0, 0.0, 0.03, 0.1)),
        lost_reply=random.choice((0.0, 0.0, 0.03, 0.1)),
        freeze=random.choice((0.0, 0.0, 0.01, 0.02)),
        crash=random.choice((0.0, 0.0, 0.01, 0.02)),
        crash_point=random.choice((0.0, 0.0, 0.0, 0.05)),
        doom=random.choice(dooms),
    )


class Member(Process):
    """A simulated process with its weather, and what was done to it."""

    def __init__(self, name: str, weather: Weather) -> None:
        super().__init__(name)
        self.weather = weather
        self.disturbed: list[float] = []
        """When it was frozen, or was told an untruth by a port: then its attempts may be lost."""


class Sky:
    """Where trouble comes from. ``fair`` ends all of it."""

    def __init__(self, loop: SimulatedLoop, random: Random, trace: list[tuple[Any, ...]]) -> None:
        self.loop = loop
        self.random = random
        self.trace = trace
        self.fair = False
        self.away_until: dict[type[Exception], float] = {StoreUnavailable: 0.0, BrokerUnavailable: 0.0}
        self.longest_freeze = 1.0
        self.lose_queue: Callable[[], None] = lambda: None

    def note(self, who: str, what: str, *details: Any) -> None:
        """Add a line to the trace."""
        self.trace.append((self.loop.time(), who, what, *details))

    def kill(self, member: Member, why: str) -> None:
        """SIGKILL. Code that called this must stop: :meth:`end` for coroutines, an exception for others."""
        self.note(member.name, "killed", why)
        self.loop.kill(member)

    async def end(self) -> NoReturn:
        """What a coroutine of a killed process awaits: it never comes back."""
        await self.loop.create_future()
        raise AssertionError

    def freeze(self, member: Member) -> None:
        """SIGSTOP for a while, often past the leases."""
        seconds = self.random.uniform(0.1, self.longest_freeze)
        member.disturbed.append(self.loop.time())
        self.note(member.name, "frozen", round(seconds, 3))
        self.loop.freeze(member, seconds)
        if self.random.random() < 0.2:  # what one process sleeps through matters most
            self.loop.call_later(seconds * self.random.random(), self.lose_queue, context=Context())

    async def trouble(self, member: Member, verb: str, unavailable: type[Exception], *, done: bool) -> None:
        """What may happen on the way to the port, and on the way back."""
        weather = member.weather
        if not member.alive:  # the exception of a crash point is on its way through somebody's `finally`
            raise ProcessKilled
        if self.fair:
            return
        if weather.latency and self.random.random() < 0.5:
            await asyncio.sleep(min(self.random.expovariate(1 / weather.latency), _LONGEST_LATENCY))
        chance = self.random.random()
        if (chance := chance - weather.crash) < 0:
            self.kill(member, f"{'after' if done else 'before'} {verb}")
            await self.end()
        # Asleep on the way to settle is where a fence is needed: another worker has the job by the time of waking.
        if (chance := chance - weather.freeze * (15 if verb == "settle" and not done else 1)) < 0:
            self.freeze(member)
            await asyncio.sleep(0)
        away = not done and self.loop.time() < self.away_until[unavailable]
        if away or chance - (weather.lost_reply if done else weather.error) < 0:
            member.disturbed.append(self.loop.time())
            self.note(member.name, verb, "reply lost" if done else "error")
            message = f"The simulation lost {verb}."
            raise unavailable(message)


class Port:
    """A store or a broker as one process reaches it."""

    def __init__(self, target: Any, member: Member, sky: Sky, unavailable: type[Exception]) -> None:
        self._target = target
        self._member = member
        self._sky = sky
        self._unavailable = unavailable

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._target, verb)
        if not callable(method):  # a fact about the port, and no call
            return method
        member, sky, unavailable = self._member, self._sky, self._unavailable

        async def call(*args: Any, **kwargs: Any) -> Any:
            await sky.trouble(member, verb, unavailable, done=False)
            result = await method(*args, **kwargs)
            if result:
                sky.note(member.name, verb, told(result))
            await sky.trouble(member, verb, unavailable, done=True)
            return result

        setattr(self, verb, call)
        return call


def told(result: Any) -> Any:
    """A port's answer for the trace, without what is not drawn from the seed (tokens, the queue's mark)."""
    if isinstance(result, list):
        return tuple(told(each) for each in result)
    name = type(result).__name__
    facts = [getattr(result, field) for field in _TOLD if hasattr(result, field)]
    return f"{name}({', '.join(map(str, facts))})" if facts else name


_TOLD: Final = ("job_id", "id", "fence", "attempt", "status", "recorded_as", "after", "note")
