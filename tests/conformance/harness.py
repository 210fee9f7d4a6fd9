"""What an adapter brings to be tested: a small harness. The suites know nothing else about it.

An adapter passes when its subclass of :class:`~tests.conformance.store_suite.StoreSuite` or
:class:`~tests.conformance.broker_suite.BrokerSuite` passes; the subclass only supplies the fixture ``harness``.
Where backends may rightly differ, a flag of the harness says so. No test is skipped by name.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from holdfast.contracts.ports import Broker, Store


class Harness(Protocol):
    """One fresh backend, for one test."""

    moment: timedelta
    """A span of the backend's time: short enough to let pass often, long enough for a handful of calls to fit into."""

    async def pass_time(self, duration: timedelta) -> None:
        """Let at least this much of the backend's time pass: move its clock, or wait."""
        ...


class StoreHarness(Harness, Protocol):
    """A fresh store that knows the workloads and the collections of ``tests.conformance.vocabulary``."""

    grace: timedelta
    """How long after its time an untouched entry becomes due. The stores are opened with it."""

    async def store(self) -> Store:
        """One more instance on the same backend, open: what another process would see."""
        ...


class BrokerHarness(Harness, Protocol):
    """A fresh broker."""

    keeps_failed: bool
    """Whether a job that failed for good stays in the queue, for people to look at, and so keeps its id taken."""

    async def broker(self) -> Broker:
        """One more instance on the same backend, open: what another process would see."""
        ...

    async def lose_everything(self) -> None:
        """What a server that lost its memory does: jobs, settings and the mark are gone."""
        ...
