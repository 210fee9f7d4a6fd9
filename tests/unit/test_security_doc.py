"""docs/security.md names tests, limits and the rows of OWASP. Here they are looked up."""

from __future__ import annotations

import re

import pytest

from holdfast.api.errors import Code
from holdfast.contracts.admission import ErrorCode
from tests.support.references import REFERENCE, ROOT, SOURCE, missing_tests

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
BOUND = re.compile(r'(?:\b(?:refused|_refuse_over)\(|\b_(?:refuse|break)\(Code\.\w+, )"(\w+)"')
BOUNDS = sorted({name for path in SOURCE.rglob("*.py") for name in BOUND.findall(path.read_text(encoding="utf-8"))})


def test_the_named_tests_exist():
    assert len(REFERENCE.findall(PAGE)) > 20
    assert missing_tests(PAGE) == []


@pytest.mark.parametrize("number", range(1, 11))
def test_every_risk_of_owasp_has_a_row_with_a_test(number):
    (row,) = re.findall(rf"^\| API{number} .*$", PAGE, re.MULTILINE)
    assert REFERENCE.findall(row)


@pytest.mark.parametrize("name", BOUNDS)
def test_every_limit_of_the_code_is_on_the_page(name):
    assert f"`{name}`" in PAGE


def test_the_limits_of_the_code_are_found():
    assert {"json_depth", "url_bytes", "intake_pending"} <= set(BOUNDS)


def test_every_refusal_by_a_limit_is_on_the_page():
    codes = [each for each in vars(Code).values() if isinstance(each, ErrorCode)]
    limits = {each.value for each in codes if each.status in {408, 413, 414, 429, 431} or "TOO_MANY" in each.value}
    assert {name for name in limits if f"`{name}`" not in PAGE} == set()
