from __future__ import annotations

import pytest

from tests.api.courier_api import courier_api


@pytest.fixture
async def api(tmp_path):
    async with courier_api(tmp_path) as made:
        yield made
