"""What Gemini's answers mean, for every shape that an answer can have."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.features.documents.child.gemini import http_failure, page_text, transcript, whole_text
from holdfast.features.documents.failures import Code, DocumentFailure

NOW = datetime(2026, 1, 25, 11, 0, tzinfo=UTC)
WORDS = ["STOP", "SAFETY", "MAX_TOKENS", "candidates", "content", "parts", "text", "finishReason", "promptFeedback"]
FIELDS = [*WORDS[3:], "blockReason", "thought", "segments", "start", "end", "language", "error", "details", "@type"]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=5)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
)


def code_of(call, *args):
    with pytest.raises(DocumentFailure) as caught:
        call(*args)
    return caught.value.code


def answer(**candidate):
    return json.dumps({"candidates": [candidate]})


@given(ANYTHING)
def test_no_answer_whatever_its_shape_is_a_surprise(document):
    for call in (whole_text, lambda body: transcript(body, 60.0)):
        with contextlib.suppress(DocumentFailure):
            call(json.dumps(document))
    for body in (document, {"error": document}, {"error": {"details": document}}):
        assert http_failure(429, body, None, NOW).code is Code.MODEL_RATE_LIMIT


@pytest.mark.parametrize(
    "body",
    [
        None,
        "[" * 100_000,
        "9" * 5_000,
        answer(finishReason=["STOP"], content={"parts": [{"text": "x"}]}),
        answer(finishReason="STOP", content={"parts": "x"}),
        answer(finishReason="STOP", content={"parts": [{"text": 5}]}),
        answer(finishReason="STOP", content={"parts": [{"text": "x"}, 1]}),
        answer(finishReason="STOP", content={"parts": [{"text": " \n"}]}),
        answer(finishReason="STOP", content={"parts": [{"text": "only thoughts", "thought": True}]}),
        answer(finishReason="MALFORMED_RESPONSE", content={"parts": [{"text": "x"}]}),
    ],
)
def test_an_answer_without_a_whole_text_is_malformed(body):
    assert code_of(whole_text, body) is Code.MODEL_MALFORMED


@pytest.mark.parametrize(
    "reason",
    ["BLOCKLIST", "IMAGE_SAFETY", "LANGUAGE", "OTHER", "PROHIBITED_CONTENT", "RECITATION", "SAFETY", "SPII"],
)
def test_a_model_that_stops_for_the_content_has_refused_it_even_with_some_text(reason):
    assert code_of(whole_text, answer(finishReason=reason, content={"parts": [{"text": "x"}]})) is Code.MODEL_REFUSED


def test_a_word_that_is_no_word_of_an_enumeration_is_not_repeated():
    with pytest.raises(DocumentFailure) as caught:
        whole_text(json.dumps({"promptFeedback": {"blockReason": "Maria's salary is 9"}}))
    assert (caught.value.code, caught.value.detail) == (Code.MODEL_REFUSED, "prompt blocked")
    assert http_failure(500, {"error": {"status": "Maria's"}}, None, NOW).detail == "500"


def test_a_text_can_be_kept_by_every_store():
    assert page_text("a\0b\ud800c\r\n") == "ab?c"
    _, (segment,) = transcript('{"segments": [{"start": 0, "end": 1, "text": "a\\u0000\\ud800"}]}', 1.0)
    assert segment.text == "a?"


@pytest.mark.parametrize(
    "segment",
    [
        {"start": 0, "end": 1},
        {"start": 0, "end": 1, "text": None},
        {"end": 1, "text": "x"},
        {"start": True, "end": 1, "text": "x"},
        {"start": float("nan"), "end": 1, "text": "x"},
        {"start": 0, "end": float("inf"), "text": "x"},
        {"start": 0, "end": 10**400, "text": "x"},
        {"start": 2, "end": 1, "text": "x"},
        "x",
    ],
)
def test_a_segment_that_is_not_what_was_asked_spoils_the_transcript(segment):
    good = {"start": 0, "end": 1, "text": "good"}
    assert code_of(transcript, json.dumps({"segments": [good, segment]}), 60.0) is Code.MODEL_MALFORMED


def test_times_lie_within_the_sound_and_no_text_is_lost_for_them():
    said = [{"start": 70.12345, "end": 80, "text": "late"}, {"start": 1.23456, "end": 2, "text": "early"}]
    language, segments = transcript(json.dumps({"segments": said, "language": "Brazilian Portuguese"}), 60.0)
    assert language is None
    assert [(each.start, each.end, each.text) for each in segments] == [(1.235, 2.0, "early"), (60.0, 60.0, "late")]


def retry_info(delay):
    return {"error": {"details": [{"@type": "x"}, {"@type": "a/google.rpc.RetryInfo", "retryDelay": delay}]}}


@pytest.mark.parametrize(
    ("body", "header", "seconds"),
    [
        (retry_info("37s"), None, 37),
        (retry_info("0.25s"), "99", 0.25),
        (retry_info("0s"), "99", 0),
        (retry_info("999999s"), None, 3_600),
        (retry_info("soon"), "99", 99),
        (retry_info(5), None, None),
        ({}, "Sun, 25 Jan 2026 11:00:30 GMT", 30),
        ({}, "Sun, 25 Jan 2026 10:00:00 GMT", 0),
        ({}, "999999", 3_600),
        ("x", "soon", None),
    ],
)
def test_the_wait_is_what_the_body_asks_for_then_the_header_and_at_most_an_hour(body, header, seconds):
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert http_failure(429, body, header, NOW).retry_after == expected
