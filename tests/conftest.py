"""What every test gets."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

# How long an example takes says more about what else the machine does than about us. Each test has its own limit.
settings.register_profile("holdfast", deadline=None)
settings.load_profile("holdfast")

# Shared checks and conformance suites are not test files themselves; pytest must still explain their failing asserts.
pytest.register_assert_rewrite("tests.support", "tests.conformance")

# Fixtures that many folders share: real servers, and Node.
pytest_plugins = (
    "tests.support.mongo_server",
    "tests.support.node",
    "tests.support.node_system",
    "tests.support.statements",
    "tests.support.valkey_server",
)

# A shell lets what it starts in the background ignore Ctrl-C, and programs hand that on to those that they start: the
# ones that tests send it to would not hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Ten thousand tests and all modules stay to the end: nobody looks for garbage among them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
