"""The one table of failures: complete, and what follows from a row."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.contracts.outcomes import Reject, Retry
from holdfast.workloads.documents.failures import TABLE, Code, DocumentFailure, ErrorType, Kind, kind_of, told_apart


def test_every_code_has_one_row_and_every_kind_of_seed_003_has_codes():
    assert set(TABLE) == set(Code)
    assert {each.error_type for each in TABLE.values()} == set(ErrorType)
    assert [each.value for each in ErrorType] == ["VALIDATION", "IO", "MODEL", "SYSTEM"]


@pytest.mark.parametrize("code", Code)
def test_the_words_of_a_row_are_one_line_for_people(code):
    words = TABLE[code].words
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
def test_a_failure_becomes_the_outcome_that_its_row_says(code):
    kind, wait = TABLE[code], timedelta(seconds=7)
    plain, told = DocumentFailure(code), DocumentFailure(code, "Words", "and more", retry_after=wait)
    assert str(plain) == plain.message == kind.words
    if kind.retried:
        assert plain.outcome == Retry(code, kind.words, None)
        assert told.outcome == Retry(code, "Words\nand more", wait)
    else:
        assert plain.outcome == Reject(code, kind.words)
        assert told.outcome == Reject(code, "Words\nand more")


def test_a_message_and_its_detail_are_told_apart_again():
    assert told_apart(DocumentFailure(Code.TIMEOUT, "Words", "a\nb").outcome.message) == ("Words", "a\nb")
    assert told_apart("Words") == ("Words", None)
    assert told_apart("") == ("", None)


def test_a_code_that_is_not_in_the_table_is_a_surprise_of_our_own():
    assert kind_of("HTTP_STATUS") == Kind(ErrorType.IO, retried=True, words="Unable to download the file")
    for code in ("EFFECT_REFUSED", "BAD_OUTCOME", "", "http_status"):
        assert kind_of(code) is TABLE[Code.UNEXPECTED]
        assert kind_of(code).error_type is ErrorType.SYSTEM
