"""The one place where refusals of limits are counted and logged."""

from __future__ import annotations

import pytest

from holdfast.telemetry import attach, detach, events, refusals, refused


@pytest.fixture
def lines():
    seen = []

    def exporter(event, fields):
        seen.append((event, fields))

    attach(exporter)
    yield seen
    detach(exporter)


def test_every_refusal_counts_and_the_log_has_one_line_a_second(lines, monkeypatch):
    now = 100.0
    monkeypatch.setattr(events.time, "monotonic", lambda: now)
    monkeypatch.setattr(events, "_logged", {})
    before = refusals().get("test_bound", 0)
    for _ in range(1_000):
        refused("test_bound", where="here")
    now = 101.0
    refused("test_bound", where="here")

    assert refusals()["test_bound"] - before == 1_001
    assert lines == [
        (events.BOUND_REACHED, {"bound": "test_bound", "times": before + 1, "where": "here"}),
        (events.BOUND_REACHED, {"bound": "test_bound", "times": 1_000, "where": "here"}),
    ]


def test_each_bound_has_its_own_lines(lines, monkeypatch):
    monkeypatch.setattr(events, "_logged", {})
    refused("test_one")
    refused("test_two")

    assert [fields["bound"] for _, fields in lines] == ["test_one", "test_two"]
