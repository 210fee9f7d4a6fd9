"""The broker suite for the cluster's broker, on a real Valkey, and on the Redis of REDIS_URL if that is set."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.brokers.bullmq import BullmqBroker
from tests.conformance.broker_suite import BrokerSuite
from tests.support.valkey_server import RedisPlace, forget


class BullmqHarness:
    """A prefix of its own on a server that other tests use too."""

    moment = timedelta(milliseconds=400)
    keeps_failed = False

    def __init__(self, place: RedisPlace) -> None:
        self._place = place
        self._brokers: list[BullmqBroker] = []

    async def broker(self):
        broker = BullmqBroker(self._place.url, prefix=self._place.prefix)
        await broker.open()
        self._brokers.append(broker)
        return broker

    async def pass_time(self, duration):
        await asyncio.sleep(duration.total_seconds() + 0.02)  # Redis's own clock: it cannot be moved

    async def lose_everything(self):
        forget(self._place)

    async def close(self):
        for broker in self._brokers:
            await broker.close()


class TestBullmqBroker(BrokerSuite):
    @pytest.fixture
    async def harness(self, redis_place):
        harness = BullmqHarness(redis_place)
        yield harness
        await harness.close()
