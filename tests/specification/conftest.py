"""Both deployments for the tests of the specification."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.specification.places import DEPLOYMENTS, Place, opened


@pytest.fixture(params=DEPLOYMENTS)
def deployment(request) -> str:
    """Whatever is stated is stated of both."""
    return request.param


@pytest.fixture
async def open_place(deployment, request, tmp_path) -> AsyncIterator[Callable[..., Any]]:
    """Opens a place with settings of the test's own."""
    async with contextlib.AsyncExitStack() as stack:

        async def open_one(**changes: Any) -> Place:
            return await stack.enter_async_context(opened(deployment, request, tmp_path, **changes))

        yield open_one
