from __future__ import annotations

import pytest

from tests.api.world import a_world


@pytest.fixture
async def world(tmp_path):
    async with a_world(tmp_path) as made:
        yield made
