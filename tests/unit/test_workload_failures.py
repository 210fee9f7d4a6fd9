"""No failure is silent (I21): a hook or a policy that raises is one event, and its job goes on with the default."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from random import Random

import pytest
from pydantic import BaseModel, field_validator

from holdfast import (
    Complete,
    Done,
    Expire,
    Failure,
    JobState,
    MoveToDeadLetters,
    Publish,
    Reject,
    Release,
    Retry,
    RetryLater,
    Workload,
)
from holdfast.contracts.entries import new_entry
from holdfast.contracts.ledger import Status
from holdfast.contracts.queues import Delivery
from holdfast.contracts.workload import Identity
from holdfast.engine.adoption import adopt
from holdfast.engine.entries import body_at_attempt
from holdfast.engine.failures import UNCLASSIFIED, classify
from holdfast.engine.hooks import Hooks, policy_limit
from holdfast.engine.transitions import Decider, attempt_limit
from holdfast.telemetry import emit_failure, events
from holdfast.telemetry.events import traceback_of
from holdfast.telemetry.logs import LogExporter
from tests.support.gateway import assembled
from tests.support.workloads import BatchedParcels, Parcel, Parcels, deliver, running

ANA = {"actor": "ana", "reason": "the place was closed"}
PARCEL = Parcel(id="p")
BODY = PARCEL.model_dump_json()
JOB = JobState("parcel:p", "parcel.p", PARCEL, 1, 1)
ENTRY = new_entry(Parcels(), PARCEL)
DAY = timedelta(days=1)
FAILURE = Failure("HTTP_503", "away", retry=True)


def broken(*_, **__):
    """A bug in a workload."""
    private = "ana.silva@example.com"
    message = f"no record of {private}"
    raise LookupError(message)


class Broken(Parcels):
    """Every hook of this workload raises."""

    on_transition = interrupted = exhausted = repeated = letter_body = identify = classify = max_attempts = broken
    dead_letter_payload = replayed = at_attempt = labels = broken

    async def copy_letters(self, letters):
        broken()


class BrokenPolicy:
    """A retry policy with bugs."""

    delay = broken

    @property
    def max_attempts(self):
        return broken()


def failures(seen) -> list[str]:
    """The hooks whose failures were told, each checked for what it must have and must not have."""
    told = [fields for event, fields in seen if event == events.WORKLOAD_FAILED]
    for fields in told:
        assert fields["workload"] == "parcels"
        assert fields["error"] == "LookupError"
        assert fields["reason"] == "no record of a***@e***.com"
        assert any("test_workload_failures.py" in line and "in broken" in line for line in fields["traceback"])
        assert "ana.silva" not in str(fields)
    return [fields["hook"] for fields in told]


@pytest.mark.parametrize(
    ("hook", "call", "default"),
    [
        ("on_transition", lambda hooks: hooks.accepted(ENTRY, PARCEL, queued=True), ENTRY),
        ("on_transition", lambda hooks: hooks.effects_of(Publish(), "parcel.p", BODY, 1), ()),
        *(
            ("on_transition", lambda hooks, transition=transition: hooks.with_effects(transition, JOB), transition)
            for transition in (
                RetryLater(DAY, "X", "x"),
                Release(),
                MoveToDeadLetters("letter", "X", "x", "X", "x", DAY, DAY),
                Complete(DAY, note="worked_elsewhere"),
                Expire(DAY),
                Expire(DAY, note="withdrawn"),
            )
        ),
        ("interrupted", lambda hooks: hooks.interrupted(2), Workload.interrupted(Parcels(), 2)),
        ("exhausted", lambda hooks: hooks.exhausted(FAILURE, 2), Workload.exhausted(Parcels(), FAILURE, 2)),
        ("repeated", lambda hooks: hooks.repeated({"at": "depot"}), "null"),
        ("letter_body", lambda hooks: hooks.letter_body(BODY), "null"),
        ("identify", lambda hooks: hooks.identify(BODY), Identity()),
    ],
)
def test_a_hook_that_raises_is_one_event_and_its_default_is_used(seen, hook, call, default):
    assert call(Hooks(Broken())) == default

    assert failures(seen) == [hook]


def test_a_hook_that_returns_no_effects_is_told_too(seen):
    workload = Parcels()
    workload.on_transition = lambda transition, job: None

    assert Hooks(workload).accepted(ENTRY, PARCEL, queued=True) == ENTRY

    ((event, fields),) = seen
    assert (event, fields["hook"], fields["error"]) == (events.WORKLOAD_FAILED, "on_transition", "TypeError")


def test_a_retry_policy_that_raises_is_told_and_a_job_is_retried_as_by_default(seen):
    workload = Parcels()
    workload.retry = BrokenPolicy()

    assert policy_limit(workload) == 5
    transition = Decider(workload, Random(1)).decide(Retry("HTTP_503", "away"), running())

    assert transition.after > timedelta(0)
    assert failures(seen) == ["retry.max_attempts", "retry.max_attempts", "retry.delay"]


def test_a_limit_of_attempts_that_raises_is_the_policys(seen):
    assert attempt_limit(Broken(), JOB) == 3

    assert failures(seen) == ["max_attempts"]


def test_a_classification_that_raises_leaves_the_failure_to_the_engine(seen):
    assert classify(ZeroDivisionError("x"), Broken()).code == UNCLASSIFIED

    assert failures(seen) == ["classify"]


def test_an_attempts_number_that_cannot_be_written_leaves_the_body_as_it_is(seen):
    assert body_at_attempt(Broken(), BODY, 2) == BODY

    assert failures(seen) == ["at_attempt"]


def test_a_body_that_breaks_the_contract_is_no_failure_of_the_workload(seen):
    hooks = Hooks(Parcels())

    assert hooks.data_of('{"id": 7}') is None
    assert hooks.data_of("\0") is None
    assert hooks.identify("no JSON") == Identity()
    assert seen == []


def test_a_contract_with_a_bug_is_told(seen):
    class Buggy(BaseModel):
        id: str

        @field_validator("id")
        @classmethod
        def _look_up(cls, value: str) -> str:
            return broken(value)

    workload = Parcels()
    workload.contract = Buggy

    assert Hooks(workload).data_of(BODY) is None
    assert failures(seen) == ["contract"]


async def test_a_job_of_a_workload_whose_hooks_all_raise_still_comes_to_its_end(seen):
    workload = Broken(lambda job: Reject("CLOSED", "nobody there"))
    workload.labels = lambda data: {}
    workload.at_attempt = lambda data, attempt: data
    async with assembled(workload) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.DEAD_LETTERED)
        (letter,) = await gateway.letters()
        assert letter.reason_code == "CLOSED"
        assert len(await gateway.queued("parcels-dead")) == 1

    told = failures(seen)
    assert told.count("on_transition") == 3  # accepted, published, dead-lettered
    assert set(told) == {"on_transition", "letter_body", "dead_letter_payload", "copy_letters"}


async def test_a_replay_that_the_workload_cannot_make_is_told(seen):
    workload = Parcels(lambda job: Reject("CLOSED", "nobody there"))
    workload.replayed = broken
    async with assembled(workload) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.DEAD_LETTERED)
        (letter,) = await gateway.letters()
        await gateway.review.review(letter.id, **ANA)
        with pytest.raises(Exception, match="cannot make a new job"):
            await gateway.review.replay(letter.id, **ANA)

    assert failures(seen) == ["replayed"]


async def test_a_job_that_the_workload_cannot_adopt_becomes_a_dead_letter_and_the_cause_is_told(seen):
    async with assembled(Broken()) as gateway:
        await adopt(gateway.store, gateway.workload, [Delivery("parcels-main", "j1", BODY, "token")])

    assert failures(seen) == ["adopt", "identify", "letter_body"]


async def test_a_batch_that_fails_as_a_whole_is_told_although_each_job_succeeds_alone(seen):
    async def script(jobs):
        if len(jobs) > 1:
            broken()
        return [deliver(job) for job in jobs]

    async with assembled(BatchedParcels(script)) as gateway:
        for name in "ab":
            await gateway.accept(name)
        async with gateway.working():
            for name in "ab":
                await gateway.until(name, Status.PROCESSED)

    assert failures(seen) == ["handle_batch"]


# --- the traceback ----------------------------------------------------------------------------------------------------


def raised(call) -> Exception:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - any error is an example
        return error
    raise AssertionError


def test_a_traceback_has_places_and_source_lines_and_no_values():
    def wrong() -> None:
        try:
            broken()
        except LookupError as error:
            message = "ana.silva"
            raise ValueError(message) from error

    lines = traceback_of(raised(wrong))

    assert lines.index("LookupError") < lines.index("ValueError") == len(lines) - 1
    assert any(line.endswith("in broken: raise LookupError(message)") for line in lines)
    assert "no record of ana" not in str(lines)


def test_a_secret_in_a_source_line_is_masked():
    error = raised(lambda: broken(password="hunter2"))

    lines = traceback_of(error)

    assert any('password="***"' in line for line in lines)
    assert "hunter2" not in str(lines)


def test_an_endless_recursion_has_a_short_traceback():
    def deeper() -> None:
        deeper()

    lines = traceback_of(raised(deeper))

    assert 2 < len(lines) < 30
    assert lines[-1] == "RecursionError"


def test_an_error_in_a_group_of_one_is_told_as_itself(seen):
    emit_failure(events.WORKER_FAULT, ExceptionGroup("tasks", [raised(broken)]))

    ((_, fields),) = seen
    assert fields["error"] == "LookupError"


def test_a_validation_error_does_not_repeat_the_value(seen):
    name = "Ana Silva"
    emit_failure(events.WORKER_FAULT, raised(lambda: Parcel(id="p", seen_at=name)))

    ((_, fields),) = seen
    assert fields["reason"] == "seen_at: must be a whole number"
    assert "Ana" not in str(fields)


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_failure_is_an_error_in_the_log_with_every_line_of_its_traceback(style):
    written = io.StringIO()
    error = raised(broken)

    LogExporter("error", style, written)(
        events.WORKLOAD_FAILED,
        {"workload": "parcels", "hook": "accepted", "traceback": traceback_of(error)},
    )

    text = written.getvalue()
    if style == "json":
        told = json.loads(text)
        assert (told["level"], told["traceback"]) == ("error", traceback_of(error))
    else:
        assert text.splitlines()[1:] == [f"    {line}" for line in traceback_of(error)]


def test_lists_in_an_event_are_scrubbed_too():
    written = io.StringIO()

    LogExporter("info", "json", written)("said", {"to": ["user@example.com"], "done": Done is not None})

    assert json.loads(written.getvalue())["to"] == ["u***@e***.com"]
