"""What every store promises, told against :class:`holdfast.contracts.ports.Store` alone.

An adapter subclasses :class:`StoreSuite` and supplies the fixture ``harness``, a
:class:`~tests.conformance.harness.StoreHarness`. The chapters are in ``tests/conformance/store``.
"""

from __future__ import annotations

import pytest

from tests.conformance.store.claiming import Claiming, Renewing
from tests.conformance.store.effects import Effects
from tests.conformance.store.reading import Reading, ReadingDocuments, ReadingLetters
from tests.conformance.store.recording import Recording
from tests.conformance.store.reviewing import Publishing, Replaying, Reviewing
from tests.conformance.store.settling import Settling
from tests.conformance.store.sweeping import MeetingTheQueue, Pruning, Sweeping


class StoreSuite(
    Recording,
    Claiming,
    Renewing,
    Settling,
    Effects,
    Sweeping,
    MeetingTheQueue,
    Pruning,
    Reviewing,
    Replaying,
    Publishing,
    Reading,
    ReadingLetters,
    ReadingDocuments,
):
    """All chapters."""

    @pytest.fixture
    async def store(self, harness):
        return await harness.store()
