"""From outcomes to transitions: ``Decider`` decides. It neither waits nor writes."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from holdfast import Done, Expired, Failure, ListedDelays, Reason, Reject, Retry, Snooze, Upsert
from holdfast.contracts.dead_letters import letter_id
from holdfast.contracts.transitions import Complete, Expire, MoveToDeadLetters, Release, RetryLater
from holdfast.engine.transitions import Decider
from tests.support.workloads import Parcels, running

EFFECTS = [Upsert("parcel_places", "p", {"place": "home"})]
SECRET = "token=hunter2"


@pytest.fixture
def workload():
    workload = Parcels()
    workload.retry = ListedDelays((timedelta(seconds=10), timedelta(seconds=60)), max_attempts=3)
    workload.retention, workload.letter_retention = timedelta(days=3), timedelta(days=9)
    return workload


@pytest.fixture
def decided(workload):
    decider = Decider(workload, Random(1))

    def transition(outcome, attempt=1, generation=1):
        return decider.decide(outcome, running(generation=generation, attempt=attempt))

    return transition


def test_done_completes_with_its_effects(decided):
    assert decided(Done(EFFECTS, {"at": 1})) == Complete(timedelta(days=3), EFFECTS, {"at": 1})


def test_a_retry_waits_as_long_as_the_policy_says(decided):
    assert decided(Retry("HTTP_503", "away"), attempt=1) == RetryLater(timedelta(seconds=10), "HTTP_503", "away")
    assert decided(Retry("HTTP_503", "away"), attempt=2).after == timedelta(seconds=60)


@pytest.mark.parametrize(("asked", "wait"), [(5, 10), (10, 10), (300, 300)])
def test_a_retry_is_not_made_before_the_time_that_the_other_side_asked_for(decided, asked, wait):
    assert decided(Retry("THROTTLED", after=timedelta(seconds=asked))).after == timedelta(seconds=wait)


@pytest.mark.parametrize("attempt", [3, 4])
def test_the_last_attempt_that_fails_is_dead_lettered(decided, attempt):
    transition = decided(Retry("HTTP_503", "away", after=timedelta(days=1)), attempt=attempt)

    assert isinstance(transition, MoveToDeadLetters)
    assert (transition.code, transition.message, transition.reason_code) == ("HTTP_503", "away", "HTTP_503_EXHAUSTED")
    assert transition.reason_message == f"Retries exhausted after {attempt} attempts: away"
    assert (transition.retention, transition.letter_retention) == (timedelta(days=3), timedelta(days=9))


def test_a_workload_may_say_why_a_job_failed_for_good(workload, decided):
    workload.exhausted = lambda failure, attempts: Reason(f"{failure.code}_{attempts}", SECRET)

    transition = decided(Retry("HTTP_503", "away"), attempt=3)

    assert (transition.reason_code, transition.reason_message) == ("HTTP_503_3", "token=***")


def test_a_rejected_job_is_dead_lettered_at_once(decided):
    transition = decided(Reject("HTTP_404", "gone"), attempt=1)

    assert isinstance(transition, MoveToDeadLetters)
    assert (transition.code, transition.reason_code, transition.reason_message) == ("HTTP_404", "HTTP_404", "gone")


def test_a_letter_is_named_by_job_and_generation(decided):
    first, again, second = decided(Reject("X")), decided(Reject("Y"), attempt=2), decided(Reject("X"), generation=2)

    assert first.letter_id == again.letter_id == letter_id("parcels", "parcel:p", 1)
    assert second.letter_id == letter_id("parcels", "parcel:p", 2) != first.letter_id


def test_a_snooze_costs_nothing(decided):
    assert decided(Snooze(timedelta(hours=1)), attempt=3) == Release(timedelta(hours=1), snoozed=True)


def test_an_expired_job_expires_with_its_effects(decided):
    assert decided(Expired(EFFECTS)) == Expire(timedelta(days=3), EFFECTS)


@pytest.mark.parametrize("outcome", [Retry("X", SECRET), Reject("X", SECRET)])
@pytest.mark.parametrize("attempt", [1, 3])
def test_no_transition_tells_a_secret(decided, outcome, attempt):
    transition = decided(outcome, attempt=attempt)

    assert transition.message == "token=***"
    assert "hunter2" not in getattr(transition, "reason_message", "")


def test_a_classified_failure_ends_as_the_outcome_that_the_handler_would_have_returned(decided):
    later = timedelta(hours=1)

    assert decided(Failure("A", "a", retry=True, after=later)) == decided(Retry("A", "a", later))
    assert decided(Failure("B", "b", retry=False)) == decided(Reject("B", "b"))
