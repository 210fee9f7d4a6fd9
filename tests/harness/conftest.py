"""A shop, and a harness around it."""

from __future__ import annotations

import pytest

from holdfast.testing import Harness
from tests.harness.shop import Shop


@pytest.fixture
def shop():
    return Shop()


@pytest.fixture
async def h(shop):
    async with Harness(shop.app) as harness:
        yield harness
