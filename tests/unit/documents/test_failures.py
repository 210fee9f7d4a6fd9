"""The one table of failures: complete, and what follows from a row."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.contracts.outcomes import Reject, Retry
from holdfast.features.documents.failures import (
    TABLE,
    Code,
    DocumentFailure,
    ErrorType,
    Kind,
    kind_of,
    message_and_detail,
)


def test_every_code_has_one_row_and_every_error_type_of_the_specification_has_codes():
    assert set(TABLE) == set(Code)
    assert {each.error_type for each in TABLE.values()} == set(ErrorType)
    assert [each.value for each in ErrorType] == ["VALIDATION", "IO", "MODEL", "SYSTEM"]


@pytest.mark.parametrize("code", Code)
def test_the_message_of_a_row_is_one_line_for_people(code):
    words = TABLE[code].message
    assert words == words.strip()
    assert words[0].isupper()
    assert words.isprintable()
    assert not words.endswith(".")


def test_what_cannot_pass_is_not_tried_again_and_what_may_pass_is():
    assert {each.retried for each in TABLE.values() if each.error_type is ErrorType.VALIDATION} == {False}
    assert {each.retried for each in TABLE.values() if each.error_type is ErrorType.IO} == {True}
    retried = {code for code, kind in TABLE.items() if kind.retried and kind.error_type in {ErrorType.MODEL, "SYSTEM"}}
    assert retried == {
        Code.MODEL_RATE_LIMIT,
        Code.MODEL_UNAVAILABLE,
        Code.MODEL_TIMEOUT,
        Code.MODEL_MALFORMED,
        Code.OUT_OF_MEMORY,
        Code.TIMEOUT,
        Code.CHILD_CRASHED,
        Code.WORKER_LOST,
    }


@pytest.mark.parametrize("code", Code)
def test_a_failure_becomes_the_outcome_of_its_row(code):
    kind, wait = TABLE[code], timedelta(seconds=7)
    plain, told = DocumentFailure(code), DocumentFailure(code, "Words", "and more", retry_after=wait)
    assert str(plain) == plain.message == kind.message
    if kind.retried:
        assert plain.outcome == Retry(code, kind.message, None)
        assert told.outcome == Retry(code, "Words\nand more", wait)
    else:
        assert plain.outcome == Reject(code, kind.message)
        assert told.outcome == Reject(code, "Words\nand more")


def test_a_message_and_its_detail_are_split_again():
    assert message_and_detail(DocumentFailure(Code.TIMEOUT, "Words", "a\nb").outcome.message) == ("Words", "a\nb")
    assert message_and_detail("Words") == ("Words", None)
    assert message_and_detail("") == ("", None)


def test_a_code_that_is_not_in_the_table_counts_as_unexpected():
    assert kind_of("HTTP_STATUS") == Kind(ErrorType.IO, retried=True, message="Unable to download the file")
    for code in ("EFFECT_REFUSED", "BAD_OUTCOME", "", "http_status"):
        assert kind_of(code) is TABLE[Code.UNEXPECTED]
        assert kind_of(code).error_type is ErrorType.SYSTEM
