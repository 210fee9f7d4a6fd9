"""What a request says about itself becomes labels of its jobs."""

from __future__ import annotations

import pytest

from holdfast.contracts.tracing import labels_of, new_trace_id, request_labels, trace_id_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    "text", [PARENT, f"01-{TRACE}-00f067aa0ba902b7-01", f"cc-{TRACE}-00f067aa0ba902b7-01-what-ever"]
)
def test_a_valid_traceparent_has_a_trace_id(text):
    assert trace_id_of(text) == TRACE


@pytest.mark.parametrize(
    "text",
    [
        "",
        PARENT.upper(),
        f" {PARENT}",
        f"{PARENT}\n",
        f"{PARENT}-more",
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-00f067aa0ba902b7-01",
        f"00-{TRACE}-00f067aa0ba902b7",
        f"01-{TRACE}-00f067aa0ba902b7-01-{'x' * 500}",
    ],
)
def test_a_traceparent_that_is_not_valid_counts_as_none(text):
    assert trace_id_of(text) is None
    labels = labels_of("req-1", text)
    assert set(labels) == {"traceId", "requestId"}
    assert trace_id_of(f"00-{labels['traceId']}-00f067aa0ba902b7-01") == labels["traceId"]


def test_the_labels_of_a_request():
    assert labels_of("req-1", PARENT) == {"traceId": TRACE, "requestId": "req-1", "traceparent": PARENT}


def test_every_request_without_a_traceparent_gets_a_trace_of_its_own():
    assert new_trace_id() != new_trace_id()
    assert labels_of(None)["traceId"] != labels_of(None)["traceId"]


@pytest.mark.parametrize("request_id", ["cpf-529.982.247-25", "4111111111111111", "52998224725"])
def test_a_request_id_with_a_number_of_a_person_becomes_no_label(request_id):
    assert set(labels_of(request_id)) == {"traceId"}


def test_there_are_no_labels_outside_of_a_request():
    assert request_labels.get() == {}
