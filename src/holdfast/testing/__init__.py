"""Tests of your own jobs: the real engine, on a database of the test and a clock that the test moves.

    async with Harness(app) as h:
        order = await h.submit(sync_order, Order(number="42"))
        await h.settle()
        assert await h.result(order) == Synced(...)

See docs/guide/testing.md. ``holdfast.testing.plugin`` has the fixture ``harness`` for pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .harness import Harness, Stuck
    from .sync import SyncHarness

__all__ = ["Harness", "Stuck", "SyncHarness"]

_PLACES: Final = {"Harness": "harness", "Stuck": "harness", "SyncHarness": "sync"}

if not TYPE_CHECKING:  # a type checker would believe that every name exists

    def __getattr__(name: str) -> object:
        """A public name, when it is first used: pytest loads the plugin, and only a test of jobs needs the engine."""
        if name in _PLACES:
            return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
