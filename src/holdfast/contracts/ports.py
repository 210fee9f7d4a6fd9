"""The ports: what the engine needs from the outside, and what each verb promises.

Every verb that touches jobs takes a batch: one round trip and one commit serve many jobs. A batch is an
optimisation, never a shared fate; results come back in the order of the request, one for each item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from .dead_letters import DeadLetter
from .effects import Effect
from .ledger import ClaimResult, DueEntry, Lease, LedgerEntry, NewEntry, Pruned, QueuePlaces, Recorded
from .queries import EntryQuery, LetterQuery, Page, RecordQuery, Slice
from .queues import (
    Acknowledgement,
    Delivery,
    Depth,
    History,
    Permits,
    Presence,
    QueueJob,
    RateLimit,
    WorkedElsewhere,
)
from .transitions import Settled, Settlement


class Clock(Protocol):
    """Time as one process sees it. Nothing durable is decided by it (I15): the store has its own clock."""

    def now(self) -> datetime:
        """The current instant in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        ...


class Ids(Protocol):
    """Fresh identifiers."""

    def new(self, prefix: str) -> str:
        """``prefix_`` and characters that nobody has used before."""
        ...


class Random(Protocol):
    """Chance, for jitter."""

    def uniform(self, a: float, b: float) -> float:
        """A number between ``a`` and ``b``."""
        ...


class Ledger(Protocol):
    """The record of every job. A verb that returns has been committed so that it survives power loss (I13)."""

    @property
    def publishes(self) -> bool:
        """Whether :meth:`record` puts new entries into the queue itself."""
        ...

    async def record(self, entries: Sequence[NewEntry]) -> list[Recorded]:
        """Insert entries as ``received``, each at most once per (workload, key) (I2).

        The insert itself decides, never a look beforehand. An existing key answers ``duplicate`` when the
        fingerprints agree and ``conflict`` when not; two equal keys in one batch count in their order. A job id that
        another key holds is a ``conflict`` too. A key that another system has recorded in the same place is a
        ``duplicate``; where that system has not settled the job and nobody can be working on it, its record becomes
        this entry, and is ``new`` for a job that the queue delivered. A store that shares its transactions with the
        queue publishes new entries itself, and says so (``queued``). The effects of a new entry are committed in its
        own transaction, those of others not at all; raises :class:`EffectRefused`, with nothing of the batch recorded,
        for one that can never be applied.
        """
        ...

    async def claim(
        self,
        workload: str,
        job_ids: Sequence[str],
        *,
        worker: str,
        lease: timedelta,
        max_attempts: int,
    ) -> list[ClaimResult]:
        """Take jobs into work: raise the fence, open an attempt, set ``processing`` (I4, I5).

        An entry that is ``processing`` under a lease that ran out is taken over: its open attempt is closed as
        ``LOST``. An entry with ``max_attempts`` attempts is taken without opening another (``Exhausted``), an entry
        past its deadline likewise (``Overdue``), even if the time of its next attempt has not come. Before all that
        counts whether the lost worker had proceeded (:class:`~holdfast.contracts.transitions.Proceed`): then nothing
        but ``Interrupted`` will do.
        """
        ...

    async def renew(self, workload: str, leases: Sequence[Lease], lease: timedelta) -> list[Lease]:
        """Prolong leases from now on the store's clock; return those that are no longer ours."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Commit transitions with their effects and dead letters in one transaction (I3, I8).

        Each needs ``fence == mine and status == processing`` (I4); one that fails the test writes nothing and
        answers stale, and so does a second transition on one lease in the batch. Effects on one document are folded in
        order. Raises :class:`EffectRefused` when an effect can never be applied, or :class:`StoreContended` when
        somebody else holds what it would write; then nothing of the batch was written, and the engine settles its
        jobs one by one. Only ``Proceed`` ends nothing: the lease stays ours, for another transition.
        """
        ...

    async def due(self, workload: str, limit: int, *, again_after: timedelta) -> list[DueEntry]:
        """Non-terminal entries that no worker or queue has shown signs of for too long, oldest first.

        Returning an entry postpones it by ``again_after``, so that two sweepers do not do the work twice.
        """
        ...

    async def unsettled(self, workload: str, job_ids: Sequence[str]) -> list[DueEntry]:
        """Those of these jobs that are recorded and not settled, without those that another system writes itself."""
        ...

    async def overdue(self, workload: str, limit: int) -> list[str]:
        """Job ids that wait (``received`` or ``failed``) past their deadline."""
        ...

    async def cancel(self, workload: str, job_ids: Sequence[str]) -> list[bool]:
        """Their senders want these jobs no more: those that wait (``received`` or ``failed``) are overdue from now on.

        Their next claim says ``Overdue`` with ``cancelled``. True for each that waits and is cancelled, now or before;
        False for one that is in work, settled, or unknown.
        """
        ...

    async def queue_places(self, workload: str, fairness_keys: Sequence[str]) -> QueuePlaces:
        """Where the ends of these lanes are, and the place that is being worked on.

        A lane's end is the greatest ``priority`` among its unsettled entries; the front is the greatest among the
        workload's entries in ``processing`` that stand in a lane, or, while there are none, the smallest among those
        that were ``received`` and wait. Both may be a moment old.
        """
        ...

    async def redact(self, workload: str, bodies: Mapping[str, str]) -> list[str]:
        """Put another body in the place of a settled job's, in its entry and in its dead letters.

        ``bodies`` goes by job id. For forgetting a person: everything else about the jobs stays, so that a duplicate is
        still known. Returns the ids of those that were settled, and so were changed.
        """
        ...

    async def entry(self, workload: str, key: str) -> LedgerEntry | None:
        """The entry of this idempotency key."""
        ...

    async def find(self, query: EntryQuery, page: Page) -> Slice[LedgerEntry]:
        """Entries that match, newest first."""
        ...

    async def counts(self, workload: str) -> Mapping[str, int]:
        """How many entries are in each status."""
        ...

    async def prune(self, limit: int) -> Pruned:
        """Delete terminal entries, dead letters and documents whose retention is over, never an entry that waits.

        An entry stays as long as a dead letter of its key does, so that no letter loses the job it tells of (I12).
        """
        ...


class DeadLetters(Protocol):
    """The dead letters and their review. Every step is a compare-and-set that records actor, reason and time (I9)."""

    async def letter(self, letter_id: str) -> DeadLetter | None:
        """One dead letter, whole."""
        ...

    async def letters(self, query: LetterQuery, page: Page) -> Slice[DeadLetter]:
        """Dead letters that match, oldest first."""
        ...

    async def count_letters(self, query: LetterQuery) -> int:
        """How many match."""
        ...

    async def review(self, letter_ids: Sequence[str], *, actor: str, reason: str) -> list[str]:
        """``pending -> reviewed``; returns the ids that moved."""
        ...

    async def replay(
        self,
        replays: Sequence[tuple[str, NewEntry | None]],
        *,
        actor: str,
        reason: str,
    ) -> list[str]:
        """``reviewed -> replayed``; returns the ids that moved, each at most once for ever (I9).

        Without a new entry, the job's own entry goes ``dead_lettered -> received`` with the next generation and no
        attempts, in the same transaction. With one, that entry is recorded instead and the old one stays.
        """
        ...

    async def close(self, letter_ids: Sequence[str], *, actor: str, reason: str) -> list[str]:
        """``reviewed | replayed -> closed``; returns the ids that moved."""
        ...

    async def letters_to_publish(self, workload: str, limit: int) -> list[DeadLetter]:
        """Pending letters that the queue has not been given, oldest first (I8)."""
        ...

    async def mark_published(self, letter_ids: Sequence[str], queue: str) -> bool:
        """The queue with this mark has them now.

        False, and nothing is marked, when the store has met another queue since: what was published is gone with the
        old one.
        """
        ...

    async def letters_to_unpublish(self, workload: str, limit: int) -> list[str]:
        """Ids of replayed and closed letters that the queue may still hold, oldest first (I8)."""
        ...

    async def mark_unpublished(self, letter_ids: Sequence[str]) -> None:
        """The queue no longer has them."""
        ...


class Records(Protocol):
    """The documents that effects wrote."""

    async def apply(self, effects: Sequence[Effect]) -> None:
        """Commit effects that belong to no job, such as what an operator decided: all of them or none.

        Raises :class:`EffectRefused` for one that can never be applied.
        """
        ...

    async def get(self, collection: str, key: str) -> Mapping[str, Any] | None:
        """One document."""
        ...

    async def find_records(self, query: RecordQuery, page: Page) -> Slice[Mapping[str, Any]]:
        """Documents with these values, in the query's order."""
        ...


class Store(Ledger, DeadLetters, Records, Protocol):
    """Everything durable."""

    async def detect_queue_reset(self, epoch: str) -> bool:
        """Remember the queue's mark; True when it is another than the one remembered.

        Then every waiting entry becomes due, every pending letter unpublished, and every letter that is dealt with
        outdated: the other queue has lost what the last one held, or has kept what that one had forgotten. Any number
        of processes may call this, and one of them is told True; one that dies meanwhile leaves the work to the next.
        """
        ...

    async def now(self) -> datetime:
        """The store's clock, which leases and due times go by (I15)."""
        ...

    async def ping(self) -> None:
        """Raise :class:`StoreUnavailable` unless a commit would work now."""
        ...


class Broker(Protocol):
    """The queue. It may forget anything at any time; the ledger and maintenance make good for it."""

    async def publish(self, queue: str, jobs: Sequence[QueueJob]) -> None:
        """Add jobs. One that waits or is in work under this id already is left as it is.

        A finished or failed one that the queue still keeps makes room for a new one that may ``revive`` it: the ledger
        says that it has to run again.
        """
        ...

    async def take(
        self,
        queue: str,
        limit: int,
        *,
        wait: timedelta,
        lease: timedelta,
        rate: RateLimit | None = None,
    ) -> list[Delivery]:
        """Lease up to ``limit`` jobs that are ready, best priority first, then oldest.

        Waits up to ``wait`` for the first one and then returns what is there. A paused queue gives nothing, and one
        that has given ``rate.most`` jobs, to anybody, gives no more until ``rate.per`` after the first of them.
        """
        ...

    async def settle(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Finish, fail or give back deliveries. One whose lease was lost is passed over."""
        ...

    async def renew(self, deliveries: Sequence[Delivery], lease: timedelta) -> list[Delivery]:
        """Prolong leases from now; return those that were lost."""
        ...

    async def recover(self, queue: str) -> int:
        """Make jobs whose lease ran out ready again; return how many."""
        ...

    async def remove(self, queue: str, job_ids: Sequence[str]) -> None:
        """Forget jobs that nobody holds a lease of."""
        ...

    async def look_up(self, queue: str, job_ids: Sequence[str]) -> list[Presence | WorkedElsewhere]:
        """Whether the queue has each of these jobs, and which of them somebody else's worker has finished."""
        ...

    async def history(self, queue: str, after: str | None = None) -> History:
        """The next events of the queue after a position, oldest first: what other people's workers finished.

        Without a position, only the latest few: a glance that costs next to nothing. ``"0"`` is before the oldest. A
        queue keeps a limited number of events, and may keep none.
        """
        ...

    async def depth(self, queue: str) -> Depth:
        """How many jobs wait, are delayed, are in work."""
        ...

    async def pause(self, queue: str, *, reason: str | None = None) -> None:
        """Hand out no more jobs until resumed, in any process. The reason is kept for people until then."""
        ...

    async def resume(self, queue: str) -> None:
        """Hand out jobs again."""
        ...

    async def acquire(self, name: str, rate: RateLimit, wanted: int, *, hold: timedelta) -> Permits:
        """Take up to ``wanted`` turns at something that all processes share a limit of.

        There are ``rate.most`` turns of this name. One that was given comes free ``rate.per`` after it is released, or
        ``hold`` and ``rate.per`` after it was given when nobody released it. So of what is done between taking a turn
        and releasing it, no span of ``rate.per`` ever sees more than ``rate.most`` (measured anywhere), unless somebody
        holds a turn for longer than ``hold``. The queue may forget turns only with everything else that it holds.
        """
        ...

    async def release(self, name: str, rate: RateLimit, permits: Sequence[str]) -> None:
        """Give turns back after use; each comes free ``rate.per`` from now. One that is not held is passed over."""
        ...

    async def reserve(self, name: str, rate: RateLimit, job_ids: Sequence[str]) -> list[timedelta]:
        """How long each job still has to wait for its own place in an even flow of ``rate.most`` in ``rate.per``.

        The first call for a job gives it the next free place, and later calls tell what is left of the wait. Zero means
        that its time has come, and uses the place up: a job that calls again gets another.
        """
        ...

    async def epoch(self) -> str:
        """A mark that the queue's storage keeps; another mark means that what it held is gone."""
        ...

    async def ping(self) -> None:
        """Raise :class:`BrokerUnavailable` unless the queue answers."""
        ...


@dataclass(frozen=True, slots=True)
class Ambient:
    """The three sources that a simulation replaces."""

    clock: Clock
    ids: Ids
    random: Random
