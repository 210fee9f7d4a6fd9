"""The pytest plugin: the fixture ``harness``.

The app is the one that the fixture ``holdfast_app`` returns: define this fixture, or name the app in the settings of
pytest (``holdfast_app = "mymodule:app"``). An async test gets a :class:`~holdfast.testing.Harness`, a plain test gets a
:class:`~holdfast.testing.SyncHarness`. The harness is opened in the event loop of the test, so any plugin for async
tests will do. pytest loads this module at each start: the engine is imported by the first test that needs it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.contracts.app import App

    from .harness import Harness
    from .sync import SyncHarness

_NAME = "holdfast_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The setting ``holdfast_app``."""
    parser.addini(_NAME, "The app for the fixture 'harness' of Holdfast, as module:attribute.", default="")


@pytest.fixture
def holdfast_app(request: pytest.FixtureRequest) -> App:
    """The app of the tests: the one that the setting ``holdfast_app`` of pytest names. Define this fixture instead."""
    name = str(request.config.getini(_NAME))
    if not name:
        message = (
            "The fixture 'harness' needs your app: define a fixture 'holdfast_app' that returns it, "
            f'or set {_NAME} = "mymodule:app" in the settings of pytest.'
        )
        raise pytest.UsageError(message)
    from holdfast.wiring import load_app  # noqa: PLC0415 - see above

    return load_app(name)


@pytest.fixture
def harness(request: pytest.FixtureRequest, holdfast_app: App) -> Iterator[Harness | SyncHarness]:
    """A harness with this app, opened: an async one in an async test."""
    from .harness import Harness  # noqa: PLC0415 - see above

    made = Harness(holdfast_app)
    if _is_async(request.function):
        yield made  # the call of the test closes it, in its own event loop
        if made.is_open:  # a fixture has opened it, and then the test was not called
            import asyncio  # noqa: PLC0415 - see above

            asyncio.run(made.close())
        return
    with made.sync() as blocking:
        yield blocking


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Open the harness around the body of an async test, in the event loop that runs the test."""
    made: Any = getattr(item, "funcargs", {}).get("harness")
    if isinstance(item, pytest.Function) and _is_ours(made) and _is_async(item.obj):
        item.obj = _inside(made, item.obj)


def _inside(made: Harness, test: Any) -> Any:  # noqa: ANN401 - a test function of any kind
    @functools.wraps(test)
    async def call(*given: Any, **named: Any) -> None:  # noqa: ANN401 - as the test has it
        async with made:
            await test(*given, **named)

    return call


def _is_async(test: object) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(test)) if callable(test) else False


def _is_ours(found: object) -> bool:
    """Whether it is our harness: other fixtures may have the same name."""
    return type(found).__module__ == f"{__package__}.harness"
