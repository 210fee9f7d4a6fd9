"""The lifecycle of ledger entries and dead letters against a model of it, through the store's port.

Hypothesis plays senders, workers (also such that come too late), sweepers and people; the clock is ours. The store
must answer as the model does, and after every step the whole ledger must be what the model says.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule
from pydantic import BaseModel

from holdfast.contracts.dead_letters import ReviewStatus, letter_id
from holdfast.contracts.effects import Collection, Upsert
from holdfast.contracts.ledger import Lease, NewEntry, Status
from holdfast.contracts.queries import LetterQuery
from holdfast.contracts.times import from_ms, isoformat, to_ms
from holdfast.contracts.transitions import (
    CANCELLED,
    Complete,
    Expire,
    MoveToDeadLetters,
    Proceed,
    Release,
    RetryLater,
    Settlement,
)
from holdfast.contracts.workload import Workload
from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore
from tests.support.letters import whole_letters
from tests.support.long_run import LONG_RUN
from tests.unit.lifecycle_model import (
    AGAIN,
    FAIRNESS_KEYS,
    GRACE,
    LEASE,
    LETTER_RETENTION,
    MAX_ATTEMPTS,
    NAME,
    RETENTION,
    Model,
    body_of,
    job_of,
    letter_body_of,
    mark_of,
)

KEYS = tuple(FAIRNESS_KEYS)


class Thing(BaseModel):
    name: str


class Things(Workload[Thing]):
    name = NAME
    contract = Thing
    queue = "things"
    dead_letter_queue = "things-dead"
    collections = (Collection("marks", "mark"), Collection("clocks", "clock"))


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def new_entry(
    key: str, content: str, delay: int = 0, ttl: int | None = None, ttl_includes_replays: bool = False
) -> NewEntry:
    fairness_key, place = FAIRNESS_KEYS[key]
    return NewEntry(
        workload=NAME,
        key=key,
        job_id=job_of(key),
        body=body_of(content),
        fingerprint=content,
        delay=ms(delay),
        ttl=None if ttl is None else ms(ttl),
        ttl_includes_replays=ttl_includes_replays,
        fairness_key=fairness_key,
        priority=place,
        effects=[Upsert("marks", mark_of(key, 1, "record"), {"outcome": "recorded"})],
    )


def transition(kind: str, key: str, generation: int, after: int, instant: int) -> Any:
    mark = Upsert("marks", mark_of(key, generation, kind), {"outcome": kind})
    match kind:
        case "complete":
            clock = Upsert("clocks", "shared", {"at": instant}, only_if_newer="at")
            return Complete(ms(RETENTION), (mark, clock), {"ok": True})
        case "retry":
            return RetryLater(ms(after), "AGAIN", "later", (mark,))
        case "back":
            return Release(ms(after), (mark,))
        case "proceed" | "repeatable":
            return Proceed((mark,), repeatable=kind == "repeatable")
        case "dead-letter":
            name, body = letter_id(NAME, key, generation), letter_body_of(key, after)
            return MoveToDeadLetters(
                name, "BAD", "bad", "WHY", "why", ms(RETENTION), ms(LETTER_RETENTION), (mark,), body
            )
        case _:
            return Expire(ms(RETENTION), (mark,), CANCELLED if kind == "cancel" else None)


def told(answer: Any) -> tuple[Any, ...]:
    """The facts of a claim that the model knows too."""
    names = {
        "Claimed": ("fence", "attempt", "generation"),
        "Exhausted": ("fence", "attempt"),
        "Interrupted": ("fence", "attempt"),
        "Overdue": ("fence", "cancelled"),
    }
    kind = type(answer)
    if hasattr(answer, "after"):
        return kind, answer.after // ms(1)
    if hasattr(answer, "status"):
        return kind, answer.status
    return kind, *(getattr(answer, name) for name in names.get(kind.__name__, ()))


keys = st.sampled_from(KEYS)
kinds = st.sampled_from(
    ("complete", "retry", "back", "dead-letter", "expire", "cancel", "proceed", "proceed", "repeatable")
)
waits = st.sampled_from((0, 1, 700, LEASE // 2))
instants = st.integers(1, 9)
ttls = st.sampled_from((None, 15_000))


class Lifecycle(RuleBasedStateMachine):
    leases = Bundle("leases")
    letters = Bundle("letters")

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.loop = asyncio.new_event_loop()
        self.database = Database(None, now=lambda: self.model.now)
        self.store = SqliteStore(self.database, [Things()], grace=ms(GRACE))
        self.queues = 0

    def teardown(self) -> None:
        self.do(self.database.close())
        self.loop.close()

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    @initialize()
    def open(self) -> None:
        self.do(self.store.open())
        assert self.do(self.store.detect_queue_reset("queue 0")) is False

    @rule(milliseconds=st.sampled_from((1, GRACE, AGAIN, LEASE - 1, LEASE, 30_000)))
    def wait(self, milliseconds: int) -> None:
        self.model.now += milliseconds

    # --- senders and workers --------------------------------------------------------------------------------

    @rule(
        wanted=st.lists(st.tuples(keys, st.sampled_from("xxy")), min_size=1, max_size=3),
        delay=waits,
        ttl=ttls,
        ttl_includes_replays=st.booleans(),
    )
    def record(
        self, wanted: list[tuple[str, str]], delay: int, ttl: int | None, ttl_includes_replays: bool = False
    ) -> None:
        expected = [self.model.record(key, content, delay, ttl, ttl_includes_replays) for key, content in wanted]
        jobs = [new_entry(key, content, delay, ttl, ttl_includes_replays) for key, content in wanted]
        answers = self.do(self.store.record(jobs))
        assert [(each.recorded_as, to_ms(each.first_seen_at), each.status) for each in answers] == expected

    @rule(wanted=st.lists(st.sampled_from((*KEYS, "nobody")), min_size=1, max_size=3), running=st.booleans())
    def cancel(self, wanted: list[str], running: bool = False) -> None:
        expected = self.model.cancel(wanted, running)
        assert self.do(self.store.cancel(NAME, [job_of(key) for key in wanted], running=running)) == expected

    @rule(held=st.lists(leases, min_size=1, max_size=3, unique=True))
    def look_for_cancellations(self, held: list[Lease]) -> None:
        assert self.do(self.store.asked_to_stop(NAME, held)) == self.model.asked_to_stop(held)

    @rule(target=leases, wanted=st.lists(st.sampled_from((*KEYS, "nobody")), min_size=1, max_size=3))
    def claim(self, wanted: list[str]) -> Any:
        expected = self.model.claim(wanted)
        job_ids = [job_of(key) for key in wanted]
        answers = self.do(self.store.claim(NAME, job_ids, worker="w", lease=ms(LEASE), max_attempts=MAX_ATTEMPTS))
        assert [told(answer) for answer in answers] == expected
        return multiple(*(Lease(each.job_id, each.fence) for each in answers if hasattr(each, "fence")))

    @rule(held=st.lists(leases, min_size=1, max_size=3, unique=True))
    def renew(self, held: list[Lease]) -> None:
        expected = self.model.renew(held)
        assert self.do(self.store.renew(NAME, held, ms(LEASE))) == expected

    @rule(reports=st.lists(st.tuples(leases, st.integers(0, 9)), min_size=1, max_size=4))
    def note_progress(self, reports: list[tuple[Lease, int]]) -> None:
        """Leases of any age, and one of them perhaps twice: then the last report counts."""
        self.model.note_progress(reports)
        self.do(self.store.note_progress(NAME, [(lease, {"done": done}) for lease, done in reports]))

    @rule(target=letters, wanted=st.lists(st.tuples(leases, kinds, waits, instants), min_size=1, max_size=4))
    def settle(self, wanted: list[tuple[Lease, str, int, int]]) -> Any:
        """Leases of any age, and one of them perhaps twice in the batch: then the first transition counts."""
        settlements, expected, dead_lettered, spoken = [], [], [], set()
        for lease, kind, after, instant in wanted:
            entry = self.model.entry_of(lease)
            key, generation = lease.job_id.removeprefix("job-"), entry.generation if entry else 1
            settlements.append(Settlement(NAME, lease, transition(kind, key, generation, after, instant)))
            again = lease in spoken
            expected.append((None, None) if again else self.model.settle(lease, kind, after, instant))
            spoken.add(lease)
            if expected[-1][0] is Status.DEAD_LETTERED:
                dead_lettered.append(letter_id(NAME, key, generation))
        answers = self.do(self.store.settle(settlements))
        assert [(each.status, each.note) for each in answers] == expected
        return multiple(*dead_lettered)

    # --- ways to states that chance alone seldom reaches ----------------------------------------------------

    @rule(
        target=letters,
        key=keys,
        ends=st.lists(
            st.sampled_from(("retry", "back", "dead-letter", "dead-letter", "complete")), min_size=1, max_size=4
        ),
        instant=instants,
        between=waits,
        ttl=ttls,
        ttl_includes_replays=st.booleans(),
    )
    def saga(
        self, key: str, ends: list[str], instant: int, between: int, ttl: int | None, ttl_includes_replays: bool
    ) -> Any:
        """A job that is worked, dead-lettered, sent back, worked again."""
        if key not in self.model.entries:
            self.record([(key, "x")], 0, ttl, ttl_includes_replays)
        dead_lettered = []
        for place, end in enumerate(ends, start=1):
            self.wait(between)
            self.claim([key])
            entry = self.model.entries[key]
            if entry.status is not Status.PROCESSING:
                break
            self.settle([(Lease(job_of(key), entry.fence), end, 0, instant)])
            if end == "dead-letter":
                dead_lettered.append(letter_id(NAME, key, entry.generation))
                if place < len(ends):
                    self.wait(between)
                    self.review(dead_lettered[-1])
                    self.replay(dead_lettered[-1])
        return multiple(*dead_lettered)

    @rule(key=keys, kind=st.sampled_from(("complete", "retry", "back", "expire")))
    def come_too_late(self, key: str, kind: str) -> None:
        """A worker that slept through its lease, and one that took over in the meantime."""
        if key not in self.model.entries:
            self.record([(key, "x")], 0, None)
        self.claim([key])
        lease = Lease(job_of(key), self.model.entries[key].fence)
        self.wait(LEASE)
        self.claim([key])
        self.renew([lease])
        self.settle([(lease, kind, 0, 9)])

    @rule(
        target=letters,
        key=keys,
        mark=st.sampled_from(("proceed", "proceed", "repeatable")),
        end=st.sampled_from(("nothing", "nothing", "retry", "back")),
        replayed=st.booleans(),
    )
    def vanish(self, key: str, mark: str, end: str, replayed: bool) -> Any:
        """A worker that is lost past its point of no return, or after it came back from there."""
        if key not in self.model.entries:
            self.record([(key, "x")], 0, None)
        self.claim([key])
        entry = self.model.entries[key]
        lease = Lease(job_of(key), entry.fence)
        self.settle([(lease, mark, 0, 9)])
        if end != "nothing":
            self.settle([(lease, end, 0, 9)])
            self.claim([key])
        self.wait(LEASE)
        self.claim([key])
        self.settle([(Lease(job_of(key), entry.fence), "dead-letter", 0, 9)])
        letter = letter_id(NAME, key, entry.generation)
        if letter not in self.model.letters:
            return multiple()
        if replayed:
            self.review(letter)
            self.replay(letter)
            self.claim([key])
            self.wait(LEASE)
            self.claim([key])
        return letter

    @rule(key=keys, end=st.sampled_from(("cancel", "back", "dead-letter")))
    def regret(self, key: str, end: str) -> None:
        """A sender that wants its job no more."""
        if key not in self.model.entries:
            self.record([(key, "x")], 0, None)
        self.cancel([key])
        self.claim([key])
        self.settle([(Lease(job_of(key), self.model.entries[key].fence), end, 0, 9)])
        self.cancel([key])

    # --- sweepers -----------------------------------------------------------------------------------------

    @rule()
    def sweep(self) -> None:
        assert set(self.do(self.store.overdue(NAME, 100))) == self.model.overdue()
        expected = self.model.due()
        answers = self.do(self.store.due(NAME, 100, again_after=ms(AGAIN)))
        assert {each.job_id: (each.attempt_count, each.after // ms(1), each.generation) for each in answers} == expected

    @rule()
    def publish(self) -> None:
        found = [letter.id for letter in self.do(self.store.letters_to_publish(NAME, 100))]
        assert set(found) == self.model.publish()
        assert self.do(self.store.mark_published(found, f"queue {self.queues}"))

    @rule()
    def lose_queue(self) -> None:
        self.publish()
        self.queues += 1
        self.model.lose_queue()
        assert self.do(self.store.detect_queue_reset(f"queue {self.queues}")) is True
        assert self.do(self.store.detect_queue_reset(f"queue {self.queues}")) is False
        self.publish()

    @rule(milliseconds=st.sampled_from((0, RETENTION, LETTER_RETENTION)))
    def prune(self, milliseconds: int) -> None:
        self.wait(milliseconds)
        expected = self.model.prune()
        pruned = self.do(self.store.prune(100))
        assert (pruned.entries, sorted(pruned.letters.get(NAME, []))) == expected

    # --- people -------------------------------------------------------------------------------------------

    @rule(letter=letters)
    def review(self, letter: str) -> None:
        expected = [letter] if self.model.step(letter, ReviewStatus.REVIEWED) else []
        assert self.do(self.store.review([letter], actor="ana", reason="because")) == expected

    @rule(letter=letters)
    def close(self, letter: str) -> None:
        expected = [letter] if self.model.step(letter, ReviewStatus.CLOSED) else []
        assert self.do(self.store.close([letter], actor="ana", reason="because")) == expected

    @rule(letter=letters)
    def replay(self, letter: str) -> None:
        expected = [letter] if self.model.replay(letter) else []
        twice = [(letter, None), (letter, None)]
        assert self.do(self.store.replay(twice, actor="ana", reason="because")) == expected

    @rule(letter=letters, key=keys)
    def replay_as_another_job(self, letter: str, key: str) -> None:
        expected = [letter] if self.model.replay_as(letter, key, "x") else []
        replays = [(letter, new_entry(key, "x"))]
        assert self.do(self.store.replay(replays, actor="ana", reason="because")) == expected

    @rule(wanted=st.lists(st.sampled_from((*KEYS, "nobody")), min_size=1, max_size=3, unique=True))
    def redact(self, wanted: list[str]) -> None:
        expected = [job_of(key) for key in self.model.redact(wanted, '"forgotten"')]
        assert self.do(self.store.redact(NAME, dict.fromkeys(map(job_of, wanted), '"forgotten"'))) == expected

    # --- what is always so ----------------------------------------------------------------------------------

    @invariant()
    def the_ledger_is_as_the_model(self) -> None:
        for key in KEYS:
            stored, entry = self.do(self.store.entry(NAME, key)), self.model.entries.get(key)
            if entry is None:
                assert stored is None
                continue
            assert (stored.status, stored.generation, stored.fence) == (entry.status, entry.generation, entry.fence)
            assert [each.outcome.value for each in stored.attempts] == entry.attempts
            assert [each.attempt for each in stored.attempts] == list(range(1, stored.attempt_count + 1))
            times = (stored.not_before, stored.deadline, stored.lease_until, stored.expires_at)
            expected = [entry.not_before, entry.deadline, entry.lease_until, entry.expires]
            assert [None if each is None else to_ms(each) for each in times] == expected
            assert (stored.note, stored.body) == (entry.note, entry.body)
            progress = entry.progress and {"done": entry.progress[0], "at": isoformat(from_ms(entry.progress[1]))}
            assert stored.progress == progress
            if stored.status.terminal:
                assert all(each.finished_at is not None for each in stored.attempts)

    @invariant()
    def the_letters_are_as_the_model(self) -> None:
        stored = self.do(whole_letters(self.store, LetterQuery(workload=NAME)))
        assert {each.id for each in stored} == set(self.model.letters)
        for each in stored:
            letter = self.model.letters[each.id]
            assert (each.key, each.generation, each.review_status) == (letter.key, letter.generation, letter.status)
            assert [decision.step for decision in each.decisions] == letter.steps
            assert [attempt.outcome.value for attempt in each.attempts] == letter.attempts
            assert (each.attempt_count, each.body) == (len(letter.attempts), letter.body)

    @invariant()
    def those_who_wait_learn_who_has_ended(self) -> None:
        asked = [*KEYS, "nobody"]
        assert self.do(self.store.ended(NAME, asked)) == self.model.ended(asked)

    @invariant()
    def the_fairness_keys_are_as_the_model(self) -> None:
        assert self.do(self.store.queue_places(NAME, ["x", "y", "z"])) == self.model.lines()

    @invariant()
    def every_effect_was_applied(self) -> None:
        assert all(self.do(self.store.get("marks", mark)) for mark in self.model.marks)
        clock = self.do(self.store.get("clocks", "shared"))
        assert (clock and clock["at"]) == self.model.newest


TestLifecycle = pytest.mark.chaos(pytest.mark.slow(Lifecycle.TestCase))  # `make chaos` tries more
TestLifecycle.settings = settings(max_examples=200 if LONG_RUN else 60, stateful_step_count=35, deadline=None)
