"""The limiter: handlers of one process acquire permits in one call, and return the permits that they took."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.contracts.errors import BrokerUnavailable
from holdfast.contracts.queues import RateLimit
from holdfast.engine.limiter import Limiter
from tests.support.gateway import assembled
from tests.support.waiting import eventually

A_SECOND = timedelta(milliseconds=1001)  # a clock of milliseconds may be one behind
HOLD = timedelta(seconds=60)
TWO = RateLimit(2, timedelta(seconds=1))


class Visitor:
    """Takes a permit, and gives the permit back when the test says so."""

    def __init__(self, limiter, rate=TWO):
        self.inside = asyncio.Event()
        self.leave = asyncio.Event()
        self.task = asyncio.create_task(self._visit(limiter, rate))

    async def _visit(self, limiter, rate):
        async with limiter.limit("museum", rate):
            self.inside.set()
            await self.leave.wait()


def inside(visitors):
    return [number for number, visitor in enumerate(visitors) if visitor.inside.is_set()]


async def test_as_many_as_the_rate_are_inside_and_a_permit_rests_after_use():
    async with assembled() as gateway:
        limiter = Limiter(gateway.broker, HOLD)
        visitors = [Visitor(limiter) for _ in range(4)]
        await eventually(lambda: inside(visitors) == [0, 1])
        visitors[0].leave.set()
        await visitors[0].task
        await limiter.settle()
        asked = gateway.broker.calls["acquire"]
        await eventually(lambda: gateway.broker.calls["acquire"] > asked + 2)
        assert inside(visitors) == [0, 1], "the permit of the first rests for a second"
        gateway.clock.advance(A_SECOND)
        await eventually(lambda: inside(visitors) == [0, 1, 2])
        gateway.clock.advance(timedelta(hours=1))  # nobody left, and nobody may hold a permit for so long
        await eventually(lambda: inside(visitors) == [0, 1, 2, 3])
        for visitor in visitors:
            visitor.leave.set()
        await asyncio.gather(*(visitor.task for visitor in visitors))


async def test_many_who_come_together_ask_once():
    async with assembled() as gateway:
        limiter = Limiter(gateway.broker, HOLD)
        rate = RateLimit(50, timedelta(seconds=1))
        visitors = [Visitor(limiter, rate) for _ in range(50)]
        await eventually(lambda: len(inside(visitors)) == 50)
        assert gateway.broker.calls["acquire"] <= 2
        for visitor in visitors:
            visitor.leave.set()
        await asyncio.gather(*(visitor.task for visitor in visitors))
        await limiter.settle()
        assert gateway.broker.calls["release"] <= 3


async def test_who_gives_up_takes_nothing_along():
    async with assembled() as gateway:
        limiter = Limiter(gateway.broker, HOLD)
        first = [Visitor(limiter) for _ in range(2)]
        await eventually(lambda: inside(first) == [0, 1])
        impatient, patient = Visitor(limiter), Visitor(limiter)
        await asyncio.sleep(0)
        impatient.task.cancel()
        await asyncio.wait({impatient.task})
        for visitor in first:
            visitor.leave.set()
        await asyncio.gather(*(visitor.task for visitor in first))
        await limiter.settle()
        gateway.clock.advance(A_SECOND)
        await eventually(patient.inside.is_set)
        assert not impatient.inside.is_set()
        patient.leave.set()
        await patient.task


async def test_a_permit_is_given_back_after_a_failure_too():
    async with assembled() as gateway:
        limiter = Limiter(gateway.broker, HOLD)
        with pytest.raises(ZeroDivisionError):
            async with limiter.limit("museum", TWO):
                raise ZeroDivisionError
        await limiter.settle()
        assert gateway.broker.calls["release"] == 1


async def test_a_queue_that_is_away_is_told_to_all_who_wait():
    async with assembled() as gateway:
        gateway.broker.break_down(BrokerUnavailable(), "acquire")
        limiter = Limiter(gateway.broker, HOLD)
        visitors = [Visitor(limiter) for _ in range(3)]
        told = await asyncio.gather(*(visitor.task for visitor in visitors), return_exceptions=True)
        assert [type(error) for error in told] == [BrokerUnavailable] * 3
        gateway.broker.repair()
        late = Visitor(limiter)
        await eventually(late.inside.is_set)
        late.leave.set()
        await late.task
