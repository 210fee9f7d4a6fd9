"""A model of the ledger: what the store's port promises, in plain Python, without a database.

Each verb changes the model and returns the answer that the store must give. Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.contracts.dead_letters import ReviewStatus, letter_id
from holdfast.contracts.effects import IGNORED_STALE
from holdfast.contracts.ledger import (
    AlreadySettled,
    Cancelled,
    Claimed,
    Exhausted,
    Interrupted,
    Lease,
    NotNow,
    Overdue,
    QueuePlaces,
    RecordedAs,
    Status,
    Unrecorded,
)
from holdfast.contracts.transitions import CANCELLED, OVERDUE, REVIEW_STEPS

NAME: Final = "things"
GRACE: Final = 500
LEASE: Final = 10_000
AGAIN: Final = 3_000
RETENTION: Final = 60_000
LETTER_RETENTION: Final = 90_000
MAX_ATTEMPTS: Final = 3

_WAITING: Final = (Status.RECEIVED, Status.FAILED)
_ENDS: Final = {
    "complete": Status.PROCESSED,
    "dead-letter": Status.DEAD_LETTERED,
    "expire": Status.EXPIRED,
    "cancel": Status.EXPIRED,
}
FAIRNESS_KEYS: Final = {"a": ("x", 1), "b": ("x", 2), "c": ("y", 3)}
"""The fairness key and the place of each key's job."""


def job_of(key: str) -> str:
    """The job id of a key."""
    return f"job-{key}"


def body_of(content: str) -> str:
    """The body of a job with this content."""
    return f'{{"name":"{content}"}}'


def letter_body_of(key: str, after: int) -> str | None:
    """What a transition puts on the letter: now and then another body than the job's."""
    return f'"masked {key}"' if after else None


def mark_of(key: str, generation: int, kind: str) -> str:
    """The key of the document that a transition of this kind writes."""
    return f"{key}{generation}{kind}"


@dataclass
class Entry:
    """A ledger entry."""

    key: str
    content: str
    first_seen: int
    not_before: int
    ttl: int | None
    ttl_includes_replays: bool
    body: str
    status: Status = Status.RECEIVED
    generation: int = 1
    fence: int = 0
    attempts: list[str] = field(default_factory=list)
    due: int | None = None
    deadline: int | None = None
    lease_until: int | None = None
    expires: int | None = None
    note: str | None = None
    progress: tuple[int, int] | None = None
    """What was done, and when that was told."""
    proceeded: bool = False
    cancelled: bool = False

    def holds(self, lease: Lease) -> bool:
        """Whether the lease is the one that counts (I4)."""
        return self.status is Status.PROCESSING and self.fence == lease.fence

    def close(self, outcome: str) -> None:
        """End the attempt that is open, if one is."""
        if self.attempts and self.attempts[-1] == "running":
            self.attempts[-1] = outcome


@dataclass
class Letter:
    """A dead letter."""

    id: str
    key: str
    generation: int
    attempts: list[str]
    body: str
    expires: int
    status: ReviewStatus = ReviewStatus.PENDING
    steps: list[ReviewStatus] = field(default_factory=list)
    published: bool = False

    def step(self, end: ReviewStatus) -> bool:
        """Take a step of the review, if it is open from here."""
        if end not in REVIEW_STEPS[self.status]:
            return False
        self.status = end
        self.steps.append(end)
        return True


class Model:
    """Ledger, letters and documents."""

    def __init__(self) -> None:
        self.now = 1_790_000_000_000
        self.entries: dict[str, Entry] = {}
        self.letters: dict[str, Letter] = {}
        self.marks: set[str] = set()
        self.newest: int | None = None
        """The instant on the document that jobs share (I16)."""

    def entry_of(self, lease: Lease) -> Entry | None:
        """The entry that a lease speaks of."""
        return self.entries.get(lease.job_id.removeprefix("job-"))

    # --- senders ------------------------------------------------------------------------------------------

    def record(
        self, key: str, content: str, delay: int, ttl: int | None, ttl_includes_replays: bool
    ) -> tuple[Any, ...]:
        """One entry for each key (I2)."""
        entry = self.entries.get(key)
        if entry is not None:
            recorded_as = RecordedAs.DUPLICATE if entry.content == content else RecordedAs.CONFLICT
            return recorded_as, entry.first_seen, entry.status
        start = self.now + delay
        entry = Entry(key, content, self.now, start, ttl, ttl_includes_replays, body_of(content), due=start + GRACE)
        entry.deadline = None if ttl is None else self.now + ttl
        self.entries[key] = entry
        self.marks.add(mark_of(key, 1, "record"))
        return RecordedAs.NEW, self.now, Status.RECEIVED

    def cancel(self, keys: Sequence[str], running: bool) -> list[Cancelled]:
        """Those that wait are overdue from now on; so are those in work, if they can still be stopped."""
        return [self._cancel(self.entries.get(key), running) for key in keys]

    def _cancel(self, entry: Entry | None, running: bool) -> Cancelled:
        if entry is None or entry.status.terminal:
            return Cancelled.TOO_LATE
        held = entry.status is Status.PROCESSING
        if held and (entry.proceeded or not running):
            return Cancelled.TOO_LATE
        entry.cancelled = True
        entry.deadline = self.now if entry.deadline is None else min(entry.deadline, self.now)
        return Cancelled.STOPS if held else Cancelled.ENDS

    def asked_to_stop(self, leases: Sequence[Lease]) -> list[Lease]:
        """The leases that hold, of jobs that were cancelled."""
        held = [(lease, self.entry_of(lease)) for lease in leases]
        return [lease for lease, entry in held if entry is not None and entry.holds(lease) and entry.cancelled]

    def redact(self, keys: Sequence[str], body: str) -> list[str]:
        """Settled jobs and their letters get another body."""
        settled = [key for key in keys if key in self.entries and self.entries[key].status.terminal]
        for key in settled:
            self.entries[key].body = body
        for letter in self.letters.values():
            letter.body = body if letter.key in settled else letter.body
        return settled

    def lines(self) -> QueuePlaces:
        """The fairness keys of jobs that are not settled."""
        unsettled = [each for each in self.entries.values() if not each.status.terminal]
        ends: dict[str, int] = {}
        for entry in unsettled:
            fairness_key, place = FAIRNESS_KEYS[entry.key]
            ends[fairness_key] = max(place, ends.get(fairness_key, 0))
        working = [FAIRNESS_KEYS[each.key][1] for each in unsettled if each.status is Status.PROCESSING]
        waiting = [FAIRNESS_KEYS[each.key][1] for each in unsettled if each.status is Status.RECEIVED]
        return QueuePlaces(max(working, default=min(waiting, default=0)), ends)

    # --- workers ------------------------------------------------------------------------------------------

    def claim(self, keys: Sequence[str]) -> list[tuple[Any, ...]]:
        """Take jobs into work, each once in a batch."""
        return [
            (NotNow, LEASE) if key in keys[:place] else self._claim(self.entries.get(key))
            for place, key in enumerate(keys)
        ]

    def _claim(self, entry: Entry | None) -> tuple[Any, ...]:
        if entry is None:
            return (Unrecorded,)
        if entry.status.terminal:
            return AlreadySettled, entry.status
        held = entry.status is Status.PROCESSING
        overdue = entry.deadline is not None and entry.deadline <= self.now
        wait = ((entry.lease_until or 0) if held else entry.not_before) - self.now
        if wait > 0 and (held or not overdue):
            return NotNow, wait
        entry.status, entry.fence = Status.PROCESSING, entry.fence + 1
        entry.lease_until = entry.due = self.now + LEASE
        entry.close("lost")
        if entry.proceeded:
            return Interrupted, entry.fence, len(entry.attempts)
        if not overdue and len(entry.attempts) < MAX_ATTEMPTS:
            entry.attempts.append("running")
            return Claimed, entry.fence, len(entry.attempts), entry.generation
        return (Overdue, entry.fence, entry.cancelled) if overdue else (Exhausted, entry.fence, len(entry.attempts))

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """Prolong what holds; return the rest."""
        lost = []
        for lease in leases:
            entry = self.entry_of(lease)
            if entry is not None and entry.holds(lease):
                entry.lease_until = entry.due = self.now + LEASE
            else:
                lost.append(lease)
        return lost

    def note_progress(self, reports: Sequence[tuple[Lease, int]]) -> None:
        """How far jobs are; a lease that does not hold changes nothing (I4)."""
        for lease, done in reports:
            entry = self.entry_of(lease)
            if entry is not None and entry.holds(lease):
                entry.progress = (done, self.now)

    def ended(self, keys: Sequence[str]) -> list[str]:
        """The keys of jobs that are over."""
        return [key for key in keys if key in self.entries and self.entries[key].status.terminal]

    def settle(self, lease: Lease, kind: str, after: int, instant: int) -> tuple[Status | None, str | None]:
        """One transition; a lease that does not hold changes nothing (I4)."""
        entry = self.entry_of(lease)
        if entry is None or not entry.holds(lease):
            return None, None
        if kind in ("proceed", "repeatable") and entry.deadline is not None and entry.deadline <= self.now:
            return Status.PROCESSING, OVERDUE
        self.marks.add(mark_of(entry.key, entry.generation, kind))
        if kind in ("proceed", "repeatable"):
            entry.proceeded = entry.proceeded or kind == "proceed"
            return Status.PROCESSING, None
        entry.lease_until = entry.note = entry.due = None
        entry.not_before, entry.proceeded = self.now, False
        if kind == "back":
            entry.attempts = [each for each in entry.attempts if each != "running"]
        entry.close("succeeded" if kind == "complete" else "failed")
        if kind in ("retry", "back"):
            untouched = kind == "back" and not entry.attempts
            entry.status = Status.RECEIVED if untouched else Status.FAILED
            entry.not_before = self.now + after
            entry.due = entry.not_before + GRACE
        else:
            self._end(entry, kind, after, instant)
        return entry.status, entry.note

    def _end(self, entry: Entry, kind: str, after: int, instant: int) -> None:
        entry.status = _ENDS[kind]
        entry.expires = self.now + (max(RETENTION, LETTER_RETENTION) if kind == "dead-letter" else RETENTION)
        if kind == "dead-letter":
            name = letter_id(NAME, entry.key, entry.generation)
            expires = self.now + LETTER_RETENTION
            body = letter_body_of(entry.key, after) or entry.body
            self.letters[name] = Letter(name, entry.key, entry.generation, list(entry.attempts), body, expires)
        if kind == "cancel":
            entry.note = CANCELLED
        if kind == "complete":
            stale = self.newest is not None and instant < self.newest
            entry.note = IGNORED_STALE if stale else None
            self.newest = self.newest if stale else instant

    # --- sweepers -----------------------------------------------------------------------------------------

    def due(self) -> dict[str, tuple[int, int, int]]:
        """Entries that nobody has touched for too long: attempts, the wait that is left, the generation."""
        found = [each for each in self.entries.values() if each.due is not None and each.due <= self.now]
        for entry in found:
            entry.due = self.now + AGAIN
        return {
            job_of(each.key): (len(each.attempts), max(0, each.not_before - self.now), each.generation)
            for each in found
        }

    def overdue(self) -> set[str]:
        """Jobs that wait past their deadline."""
        return {
            job_of(each.key)
            for each in self.entries.values()
            if each.status in _WAITING and each.deadline is not None and each.deadline <= self.now
        }

    def lose_queue(self) -> None:
        """Another queue: everything that waits is to be published again."""
        for entry in self.entries.values():
            entry.due = self.now if entry.status in _WAITING else entry.due
        for letter in self.letters.values():
            letter.published = letter.published and letter.status is not ReviewStatus.PENDING

    def publish(self) -> set[str]:
        """Letters that the queue lacks."""
        lacking = [each for each in self.letters.values() if not each.published and not each.steps]
        for letter in lacking:
            letter.published = True
        return {letter.id for letter in lacking}

    def prune(self) -> tuple[int, list[str]]:
        """What has outlived its retention; an entry stays as long as a letter of its key does (I12)."""
        letters = sorted(each.id for each in self.letters.values() if each.expires <= self.now)
        for name in letters:
            del self.letters[name]
        spoken_of = {each.key for each in self.letters.values()}
        gone = [
            each.key
            for each in self.entries.values()
            if each.expires is not None and each.expires <= self.now and each.key not in spoken_of
        ]
        for key in gone:
            del self.entries[key]
        return len(gone), letters

    # --- people -------------------------------------------------------------------------------------------

    def step(self, name: str, end: ReviewStatus) -> bool:
        """A review, or a closing."""
        letter = self.letters.get(name)
        return letter is not None and letter.step(end)

    def replay(self, name: str) -> bool:
        """The next generation, once (I9)."""
        letter = self.letters.get(name)
        entry = None if letter is None else self.entries.get(letter.key)
        if letter is None or entry is None:
            return False
        current = entry.status is Status.DEAD_LETTERED and entry.generation == letter.generation
        if not current or not letter.step(ReviewStatus.REPLAYED):
            return False
        entry.status, entry.generation, entry.attempts = Status.RECEIVED, entry.generation + 1, []
        entry.not_before, entry.due, entry.expires, entry.note = self.now, self.now + GRACE, None, None
        entry.proceeded, entry.cancelled, entry.progress = False, False, None
        entry.deadline = (
            None if entry.ttl is None else (entry.first_seen if entry.ttl_includes_replays else self.now) + entry.ttl
        )
        return True

    def replay_as(self, name: str, key: str, content: str) -> bool:
        """A new job in the place of the dead one, under a key that is free."""
        letter = self.letters.get(name)
        if letter is None or key in self.entries or not letter.step(ReviewStatus.REPLAYED):
            return False
        self.record(key, content, 0, None, ttl_includes_replays=False)
        return True
