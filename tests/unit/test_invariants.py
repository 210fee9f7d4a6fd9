"""docs/invariants.md names code and tests for each invariant. Here both are looked up."""

from __future__ import annotations

import re

import pytest

from tests.support.references import REFERENCE, ROOT, missing_code, missing_tests, texts

PAGE = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")
HEADING = re.compile(r"^## (I\d{1,2}): ", re.MULTILINE)
CITED = re.compile(r"\bI\d{1,2}\b")
"""Nothing else in this repository is written like this, so every form of a citation counts."""

INTRODUCTION, *PARTS = HEADING.split(PAGE)
SECTIONS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))
EACH = pytest.mark.parametrize("number", SECTIONS)


def part(number: str, name: str) -> str:
    """The paragraph of an invariant that begins with this word."""
    found = re.search(rf"^\*\*{name}\.\*\* (.+?)(?:\n\n|\Z)", SECTIONS[number], re.MULTILINE | re.DOTALL)
    assert found is not None, f"{number} has no paragraph {name!r}"
    return found[1]


def test_the_invariants_are_numbered_in_order():
    numbers = [int(number[1:]) for number in SECTIONS]

    assert numbers[:17] == list(range(1, 18))
    assert numbers == sorted(set(numbers))


@EACH
def test_an_invariant_says_what_is_always_true(number):
    assert part(number, "Always true").endswith(".")


@EACH
def test_the_named_code_exists(number):
    assert REFERENCE.findall(part(number, "How"))
    assert missing_code(part(number, "How")) == []


@EACH
def test_the_named_tests_exist(number):
    assert REFERENCE.findall(part(number, "Tests"))
    assert missing_tests(part(number, "Tests")) == []


def test_the_tests_of_the_introduction_exist():
    assert REFERENCE.findall(INTRODUCTION)
    assert missing_tests(INTRODUCTION) == []


def test_every_cited_invariant_exists():
    cited = [(path, number) for path, text in texts() for number in CITED.findall(text)]

    assert len(cited) > 100
    assert [each for each in cited if each[1] not in SECTIONS] == []
