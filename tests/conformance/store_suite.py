"""Tests of what every store guarantees. They use only :class:`holdfast.contracts.ports.Store`.

An adapter subclasses :class:`StoreSuite` and supplies the fixture ``harness``, a
:class:`~tests.conformance.harness.StoreHarness`. The test classes are in ``tests/conformance/store``.
"""

from __future__ import annotations

import pytest

from tests.conformance.store.cancelling import AskingToStop, Cancelling, TtlIncludesReplays
from tests.conformance.store.claiming import Claiming, Renewing
from tests.conformance.store.effects import Effects
from tests.conformance.store.fairness_keys import FairnessKeys
from tests.conformance.store.following import Following
from tests.conformance.store.proceeding import Proceeding, TransitionsWithEffects
from tests.conformance.store.progress import Ended, NotingProgress
from tests.conformance.store.reading import Reading, ReadingLetters, ReadingRecords
from tests.conformance.store.recording import Recording
from tests.conformance.store.recording_effects import RecordingEffects
from tests.conformance.store.records import Applying, ListingTheNewest, PruningRecords
from tests.conformance.store.redacting import Redacting
from tests.conformance.store.reviewing import Publishing, Replaying, Reviewing
from tests.conformance.store.settling import Settling
from tests.conformance.store.sweeping import DetectingQueueResets, Pruning, Sweeping


class StoreSuite(
    Recording,
    RecordingEffects,
    Claiming,
    Renewing,
    Settling,
    TransitionsWithEffects,
    Proceeding,
    Effects,
    Following,
    Cancelling,
    AskingToStop,
    TtlIncludesReplays,
    FairnessKeys,
    NotingProgress,
    Ended,
    Redacting,
    Sweeping,
    DetectingQueueResets,
    Pruning,
    Reviewing,
    Replaying,
    Publishing,
    Reading,
    ReadingLetters,
    ReadingRecords,
    Applying,
    ListingTheNewest,
    PruningRecords,
):
    """All test classes of the suite."""

    @pytest.fixture
    async def store(self, harness):
        return await harness.store()
