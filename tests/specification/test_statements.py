"""Whether the tests beside this one state something of every rule, and whether it is counted."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.specification import FOLDER, example, rules
from tests.support.statements import PROPERTY, pytest_terminal_summary

CITED = re.compile(r'"((?:[CDE]\d{1,3} ?)+)"|f"\{cited\} ([CDE\d ]+)"')
KNOWN = {number for number, _ in rules()}


def cited() -> set[str]:
    """The rules that the files of this folder name."""
    files = [path for path in Path(__file__).parent.glob("*.py") if path != Path(__file__)]
    found = [match for path in files for match in CITED.findall(path.read_text(encoding="utf-8"))]
    return {number for pair in found for number in "".join(pair).split()}


def test_every_cited_rule_exists():
    assert cited() - KNOWN == set()


def test_every_rule_has_a_statement():
    assert KNOWN - cited() == set()


@pytest.mark.parametrize("path", sorted((FOLDER / "examples").iterdir()), ids=lambda path: path.name)
def test_an_example_is_json_that_the_first_page_names(path):
    assert example(path.stem)
    assert f"(examples/{path.name})" in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_a_statement_names_rules_that_exist(statement):
    with pytest.raises(AssertionError, match="C999"), statement("C1 C999", "nothing"):
        pass
    with pytest.raises(AssertionError, match="names no rule"), statement("", "nothing"):
        pass


def test_a_statement_that_fails_is_named_and_not_counted(statement, request):
    with pytest.raises(AssertionError) as caught, statement("C1", "one is two"):
        assert int("1") == 2
    assert caught.value.__notes__ == ["rules C1: one is two"]
    assert request.node.user_properties == []


def report(*statements: list[str]) -> SimpleNamespace:
    return SimpleNamespace(user_properties=[(PROPERTY, each) for each in statements])


def test_statements_are_counted_once_for_both_deployments():
    lines: list[str] = []
    reports = [report(["C1", "a", "embedded"], ["C1 C2", "b", "embedded"]), report(["C1", "a", "cluster"])]
    reporter = SimpleNamespace(stats={"passed": reports, "": [object()]}, write_line=lines.append)

    pytest_terminal_summary(reporter)

    assert lines == ["specification: 2 statements of 2 rules, on embedded and cluster"]


def test_nothing_is_said_where_nothing_was_stated():
    lines: list[str] = []

    pytest_terminal_summary(SimpleNamespace(stats={"passed": [report()]}, write_line=lines.append))

    assert lines == []
