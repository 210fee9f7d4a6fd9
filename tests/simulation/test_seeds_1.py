"""Part 1 of the seeds; see ``chunks``."""

from __future__ import annotations

import pytest

from tests.simulation.chunks import chunks, live_through, name_of


@pytest.mark.parametrize("seeds", chunks(0), ids=name_of)
def test_every_promise_is_kept(seeds):
    live_through(seeds)
