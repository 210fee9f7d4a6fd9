"""The table of legal transitions: those of the specification, ours with the reason, and those that the page draws."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.contracts.dead_letters import ReviewStatus
from holdfast.contracts.ledger import Status
from holdfast.contracts.transitions import EDGES, REVIEW_STEPS, TRANSITIONS, TransitionName, legal

DOCUMENT = Path(__file__).parents[2] / "docs" / "lifecycle.md"

SPECIFIED_EDGES = {
    ("received", "processing"),
    ("processing", "processed"),
    ("processing", "failed"),
    ("failed", "processing"),
    ("failed", "dead_lettered"),
}
"""Rules C42 to C46."""

OUR_EDGES = {
    ("failed", "expired"),  # a job that outlived its deadline (E9)
    ("processing", "processing"),  # a worker vanished; the next one takes over
    ("processing", "received"),  # a worker released the job untried
    ("dead_lettered", "received"),  # a person replays it
}

SPECIFIED_REVIEW = [("pending", "reviewed"), ("reviewed", "replayed"), ("replayed", "closed")]


def test_the_edges_are_those_of_the_specification_and_ours():
    assert {(start.value, end.value) for start, end in EDGES} == SPECIFIED_EDGES | OUR_EDGES


def test_every_transition_has_a_path():
    assert set(TRANSITIONS) == set(TransitionName)
    assert all(len(path) >= 2 for paths in TRANSITIONS.values() for path in paths)


@pytest.mark.parametrize("start", Status)
@pytest.mark.parametrize("end", Status)
def test_legal_answers_for_every_pair(start, end):
    assert legal(start, end) == ((start.value, end.value) in SPECIFIED_EDGES | OUR_EDGES)


def test_only_a_person_moves_a_job_from_a_terminal_state():
    leaving = {name for name, paths in TRANSITIONS.items() for path in paths for start in path[:-1] if start.terminal}

    assert leaving == {TransitionName.REPLAY}
    assert {status.value for status in Status if status.terminal} == {"processed", "dead_lettered", "expired"}


def test_every_job_can_reach_an_end():
    for start in Status:
        reached, frontier = set(), {start}
        while frontier:
            reached |= frontier
            frontier = {end for begin, end in EDGES if begin in frontier} - reached
        assert any(status.terminal for status in reached)


def test_the_review_takes_the_steps_of_rule_c69_and_one_more():
    steps = {(start.value, end.value) for start, ends in REVIEW_STEPS.items() for end in ends}

    assert steps == {*SPECIFIED_REVIEW, ("reviewed", "closed")}
    assert set(REVIEW_STEPS) == set(ReviewStatus)


def test_the_document_draws_the_same_tables():
    drawn = set(re.findall(r"^\s*(\w+) --> (\w+)", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE))
    review = {(start.value, end.value) for start, ends in REVIEW_STEPS.items() for end in ends}

    assert drawn == {(start.value, end.value) for start, end in EDGES} | review
