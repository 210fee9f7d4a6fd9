"""Statements of the specification that a test run has checked, counted for its last lines.

A pytest plugin: ``tests/conftest.py`` names it. A test states with ``statement``:

    with statement("C6", "the job has the ten fields"):
        assert set(job) == set(example)

or as a whole, with ``@pytest.mark.rule("C24")``: then the test's name, with its parameters, is the statement. A
statement is counted once, on however many deployments it was checked. The counts travel in the reports, so that they
arrive from the processes of pytest-xdist too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import pytest

from .specification import rules

Statement = Callable[[str, str], AbstractContextManager[None]]

PROPERTY: Final = "statement"
PARAMETER: Final = "deployment"
"""The parameter of a test that names the deployment."""

_known = frozenset(number for number, _ in rules())


def _numbers(cited: str) -> list[str]:
    numbers = cited.replace(",", " ").split()
    assert numbers, "a statement names no rule"
    assert _known.issuperset(numbers), f"no rules of docs/specification: {sorted({*numbers} - _known)}"
    return numbers


def _deployment(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    return "" if callspec is None else str(callspec.params.get(PARAMETER, ""))


def _note(item: pytest.Item, numbers: list[str], text: str) -> None:
    """Of plain values only: they are sent between processes."""
    item.user_properties.append((PROPERTY, [" ".join(numbers), text, _deployment(item)]))


@pytest.fixture
def statement(request: pytest.FixtureRequest) -> Statement:
    """States something about rules, and counts it if it holds."""

    @contextmanager
    def state(cited: str, text: str) -> Iterator[None]:
        numbers = _numbers(cited)
        try:
            yield
        except AssertionError as error:
            error.add_note(f"rules {', '.join(numbers)}: {text}")
            raise
        _note(request.node, numbers, text)

    return state


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that is a statement as a whole counts when it has passed."""
    marks = list(item.iter_markers("rule"))
    cited = [_numbers(" ".join(mark.args)) for mark in marks]
    outcome = yield
    for numbers in cited:
        name = item.name
        if deployment := _deployment(item):
            name = name.replace(deployment, "").replace("[-", "[").replace("-]", "]").removesuffix("[]")
        _note(item, numbers, name)
    return outcome


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The count, when there is something to count."""
    found = {
        tuple(value)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == PROPERTY
    }
    if found:
        terminalreporter.write_line(summary(found))


def summary(found: set[tuple[str, str, str]]) -> str:
    """``specification: 3 statements of 2 rules, on embedded and cluster``."""
    statements = {(numbers, text) for numbers, text, _ in found}
    numbers = {number for cited, _ in statements for number in cited.split()}
    places = sorted({place for _, _, place in found if place}, reverse=True)
    return f"specification: {len(statements)} statements of {len(numbers)} rules" + (
        f", on {' and '.join(places)}" if places else ""
    )
