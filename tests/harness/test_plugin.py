"""The pytest plugin, in a pytest of its own: in plain tests, and in async tests with either plugin for them."""

from __future__ import annotations

import os
import subprocess
import sys
from textwrap import dedent

import pytest

APP = """
    from pydantic import BaseModel

    from holdfast import App

    app = App()


    class Order(BaseModel):
        number: str


    @app.job(key="number")
    async def double(order: Order) -> int:
        return 2 * int(order.number)
"""

ASYNC_TEST = """
    import pytest

    from orders import Order, double

    {mark}
    async def test_one(harness):
        order = await harness.submit(double, Order(number="21"))
        await harness.settle()
        assert await harness.result(order) == 42

    {mark}
    async def test_another_begins_anew(harness):
        assert await harness.jobs(double) == []
        assert (await harness.submit(double, Order(number="21"))).duplicate is False

    class TestMethods:
        {mark}
        async def test_in_a_class(self, harness):
            assert await harness.dead_letters() == []
"""

PLAIN_TEST = """
    from orders import Order, double

    def test_one(harness):
        order = harness.submit(double, Order(number="21"))
        harness.settle()
        assert harness.result(order) == 42
"""

ASYNCIO = ["-p", "pytest_asyncio.plugin", "-o", "asyncio_default_fixture_loop_scope=function"]
AUTO = [*ASYNCIO, "-o", "asyncio_mode=auto"]
SETTINGS = "[pytest]\nfilterwarnings = error\nholdfast_app = orders:app\n"


@pytest.fixture
def run(tmp_path):
    (tmp_path / "orders.py").write_text(dedent(APP))

    def run(test, *options, settings=SETTINGS):
        (tmp_path / "test_orders.py").write_text(dedent(test))
        (tmp_path / "pytest.ini").write_text(settings)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "holdfast.testing.plugin"]
        # Only the plugins that the test names: those that are installed here take seconds to load.
        alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(
            [*command, *options], cwd=tmp_path, env=alone, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    return run


@pytest.mark.parametrize(
    ("mark", "options"),
    [
        ("", AUTO),
        ("@pytest.mark.asyncio", [*ASYNCIO, "-o", "asyncio_mode=strict"]),
        ("@pytest.mark.anyio", ["-p", "anyio.pytest_plugin", "-k", "not trio"]),
    ],
    ids=["asyncio, auto", "asyncio, strict", "anyio"],
)
def test_async_tests(run, mark, options):
    assert "3 passed" in run(ASYNC_TEST.format(mark=mark), *options)


def test_plain_tests_need_no_plugin_for_async_tests(run):
    assert "1 passed" in run(PLAIN_TEST)


def test_fixtures_may_use_the_harness_and_the_app_may_be_a_fixture(run):
    test = """
        import pytest
        import orders

        @pytest.fixture
        def holdfast_app():
            return orders.app

        @pytest.fixture
        async def order(harness):
            return await harness.submit(orders.double, orders.Order(number="4"))

        async def test_one(harness, order):
            await harness.settle()
            assert await harness.result(order) == 8
    """
    assert "1 passed" in run(test, *AUTO, settings="[pytest]\nfilterwarnings = error\n")


def test_a_harness_that_only_a_fixture_has_used_is_closed(run):
    test = """
        import pytest

        @pytest.fixture
        async def used(harness):
            await harness.settle()

        @pytest.fixture
        def failing(used):
            raise KeyError("mine")

        async def test_one(failing): ...
    """
    told = run(test, *AUTO, "-W", "error::ResourceWarning")
    assert "1 error" in told
    assert "ResourceWarning" not in told


def test_without_an_app_the_message_says_what_to_do(run):
    told = run(PLAIN_TEST, settings="[pytest]\n")
    assert "define a fixture 'holdfast_app' that returns it" in told
    assert "1 error" in told


def test_a_failing_test_and_a_crash_that_did_not_happen_fail(run):
    test = """
        from orders import Order, double

        async def test_assert(harness):
            assert await harness.jobs(double) == ["none"]

        async def test_crash(harness):
            harness.crash()
    """
    told = run(test, *AUTO)
    assert "2 failed" in told
    assert "has not passed worker.handled" in told


def test_pytest_starts_without_the_engine():
    code = "import sys, holdfast.testing.plugin; print([each for each in sys.modules if each.startswith('holdfast')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "['holdfast', 'holdfast.testing', 'holdfast.testing.plugin']"
