"""The small harness of an adapter under test. The suites know nothing else about the adapter.

An adapter passes when its subclass of :class:`~tests.conformance.store_suite.StoreSuite` or
:class:`~tests.conformance.broker_suite.BrokerSuite` passes; the subclass only supplies the fixture ``harness``.
Where backends are allowed to differ, the harness has a flag. No test is skipped by name.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from holdfast.contracts.ports import Broker, Store


class Harness(Protocol):
    """One fresh backend, for one test."""

    moment: timedelta
    """A short time on the backend's clock. Tests wait for it often, and a few calls fit into it."""

    async def pass_time(self, duration: timedelta) -> None:
        """Let at least this much time pass on the backend's clock: move the clock, or wait."""
        ...


class StoreHarness(Harness, Protocol):
    """A fresh store that knows the workloads and the collections of ``tests.conformance.vocabulary``."""

    grace: timedelta
    """An untouched entry becomes due this long after its time. The stores are opened with this value."""

    async def store(self) -> Store:
        """One more instance on the same backend, open: what another process would see."""
        ...


class BrokerHarness(Harness, Protocol):
    """A fresh broker."""

    keeps_failed: bool
    """Whether a job that failed for good stays in the queue for people to read. Then its id stays taken."""

    async def broker(self) -> Broker:
        """One more instance on the same backend, open: what another process would see."""
        ...

    async def lose_everything(self) -> None:
        """Delete everything, like a server that lost its data: jobs, settings and the epoch."""
        ...
