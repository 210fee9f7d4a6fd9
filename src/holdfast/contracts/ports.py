"""The ports: what the engine needs from the outside, and what each method guarantees.

Every method that touches jobs takes a batch: one round trip and one commit serve many jobs. A batch is only an
optimisation: a job that fails does not make the others fail. Results come back in the order of the request, one for
each item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from .dead_letters import DeadLetter, ListedLetter
from .effects import Effect
from .ledger import Cancelled, ClaimResult, DueEntry, Lease, LedgerEntry, NewEntry, Pruned, QueuePlaces, Recorded
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
    """The time of one process. It decides nothing durable (I15): the store has its own clock."""

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
    """Random numbers, for jitter."""

    def uniform(self, a: float, b: float) -> float:
        """A number between ``a`` and ``b``."""
        ...


class Ledger(Protocol):
    """The record of every job. What a method has written survives power loss once the method returns (I13)."""

    @property
    def publishes(self) -> bool:
        """Whether the queue is in the same file: ``record`` publishes new entries, and ``settle`` acknowledges."""
        ...

    async def record(self, entries: Sequence[NewEntry]) -> list[Recorded]:
        """Insert entries as ``received``, each at most once per (workload, key) (I2).

        The insert itself decides, and never a read before it. For an existing key the answer is ``duplicate`` if the
        fingerprints agree, otherwise ``conflict``; two equal keys in one batch count in their order. A job id that
        another key has is a ``conflict`` too. A key that another system has recorded in the same place is a
        ``duplicate``. If that system has not settled the job and nobody can be working on it, its record becomes this
        entry, and the answer for a job that the queue delivered is ``new``. A store that shares its transactions with
        the queue publishes new entries itself, and answers ``queued``. The effects of a new entry are committed in the
        entry's transaction; the effects of other entries are not applied. Raises :class:`EffectRefused`, and records
        nothing of the batch, if an effect can never be applied.
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
        """Claim jobs: raise the fence, open an attempt, set ``processing`` (I4, I5).

        An entry that is ``processing`` under a lease that ran out is claimed too: its open attempt is closed as
        ``LOST``. An entry with ``max_attempts`` attempts is claimed without a new attempt (``Exhausted``). So is an
        entry past its deadline (``Overdue``), even if its next attempt is not due. If the lost worker had proceeded
        (:class:`~holdfast.contracts.transitions.Proceed`), the answer is always ``Interrupted``: this is checked first.
        """
        ...

    async def renew(self, workload: str, leases: Sequence[Lease], lease: timedelta) -> list[Lease]:
        """Prolong leases from now on the store's clock; return those that are no longer ours."""
        ...

    async def note_progress(self, workload: str, progress: Sequence[tuple[Lease, Mapping[str, Any]]]) -> None:
        """Write how far jobs in work are, into :attr:`LedgerEntry.progress`: one write for all of them.

        The store adds the time of its clock as ``at``. A lease that no longer holds writes nothing (I4); of two reports
        on one lease, the last counts. Nothing else of the entry changes, also not ``updated_at``. The progress stays
        until the next report or a replay. It is for people: it need not survive power loss, and a report may be lost.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Commit transitions with their effects and dead letters in one transaction (I3, I8).

        Each settlement needs ``fence == mine and status == processing`` (I4). A settlement that fails this test writes
        nothing, and its answer is stale; so does a second transition on one lease in the batch. Effects on one record
        are folded in order. Raises :class:`EffectRefused` if an effect can never be applied, or
        :class:`StoreContended` if another transaction holds what it would write. Then nothing of the batch was
        written, and the engine settles its jobs one by one. ``Proceed`` does not end the lease: another transition
        follows. A store that shares its transactions with the queue (:attr:`publishes`) acknowledges the deliveries of
        the settlements that it writes, in the same transaction.
        """
        ...

    async def due(self, workload: str, limit: int, *, again_after: timedelta) -> list[DueEntry]:
        """Entries that are not settled and that no worker or queue has touched for too long, oldest first.

        An entry that is returned is not due again for ``again_after``, so that two sweeps do not do the work twice.
        """
        ...

    async def unsettled(self, workload: str, job_ids: Sequence[str]) -> list[DueEntry]:
        """Those of these jobs that are recorded and not settled, without those that another system writes itself."""
        ...

    async def overdue(self, workload: str, limit: int) -> list[str]:
        """Job ids that wait (``received`` or ``failed``) past their deadline."""
        ...

    async def cancel(self, workload: str, job_ids: Sequence[str], *, running: bool = False) -> list[Cancelled]:
        """Cancel jobs for their senders: those that wait (``received`` or ``failed``) are overdue from now on.

        Their next claim is ``Overdue`` with ``cancelled``. ``ENDS`` for each job that waits and is cancelled, now or
        before. With ``running``, a job in work before its point of no return is overdue from now on, too: its lease
        holds, but the job cannot proceed, and :meth:`asked_to_stop` names its lease. The answer is ``STOPS``.
        """
        ...

    async def asked_to_stop(self, workload: str, leases: Sequence[Lease]) -> list[Lease]:
        """Those of these leases that still hold, and whose jobs were cancelled. One read, for all jobs of a process."""
        ...

    async def queue_places(self, workload: str, fairness_keys: Sequence[str]) -> QueuePlaces:
        """The last place of each of these fairness keys, and the place that is being worked on.

        The last place of a key is the greatest ``priority`` among its unsettled entries. The front is the greatest
        ``priority`` among the workload's entries in ``processing`` that have a fairness key. If there are none, the
        front is the smallest among the ``received`` entries that wait. Both may be a moment old.
        """
        ...

    async def count_unsettled(self, prefix: str, most: int) -> int:
        """How many jobs are not settled whose fairness keys begin with this text.

        Those of all workloads of this process count that have fairness keys. Counting stops at ``most``. An index finds
        the jobs, so other owners' jobs cost nothing.
        """
        ...

    async def redact(self, workload: str, bodies: Mapping[str, str]) -> list[str]:
        """Replace the body of settled jobs, in the entry and in the dead letters.

        ``bodies`` has the new bodies by job id. This erases a person's data: everything else about the jobs stays, so
        that a duplicate is still known. Returns the ids of the jobs that were settled, and so were changed.
        """
        ...

    async def entry(self, workload: str, key: str) -> LedgerEntry | None:
        """The entry of this idempotency key."""
        ...

    async def ended(self, workload: str, keys: Sequence[str]) -> list[str]:
        """Those of these keys whose jobs have ended: their entries are terminal. One read by index, for many keys."""
        ...

    async def find(self, query: EntryQuery, page: Page) -> Slice[LedgerEntry]:
        """Entries that match, newest first. An index finds them: jobs of other workloads cost nothing.

        Raises :class:`InvalidQuery` for a label without an index, and for text that is no cursor.
        """
        ...

    async def counts(self, workload: str) -> Mapping[str, int]:
        """How many entries are in each status."""
        ...

    async def prune(self, limit: int) -> Pruned:
        """Delete terminal entries, dead letters and records whose retention is over, never an entry that waits.

        An entry stays as long as a dead letter of its key, so that no letter loses its job (I12).
        """
        ...


class DeadLetters(Protocol):
    """The dead letters and their review. Every step is a compare-and-set that records actor, reason and time (I9)."""

    async def letter(self, letter_id: str) -> DeadLetter | None:
        """One dead letter, whole."""
        ...

    async def letters(self, query: LetterQuery, page: Page) -> Slice[ListedLetter]:
        """Dead letters that match, oldest first. Their bodies are not read."""
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
        """``reviewed -> replayed``; returns the ids that moved. A letter moves at most once (I9).

        Without a new entry, the job's own entry goes ``dead_lettered -> received`` with the next generation and no
        attempts, in the same transaction. With a new entry, that entry is recorded instead and the old entry stays.
        """
        ...

    async def close(self, letter_ids: Sequence[str], *, actor: str, reason: str) -> list[str]:
        """``reviewed | replayed -> closed``; returns the ids that moved."""
        ...

    async def letters_to_publish(self, workload: str, limit: int) -> list[DeadLetter]:
        """Pending letters that were not published yet, oldest first (I8). Fewer than ``limit`` if they are large."""
        ...

    async def mark_published(self, letter_ids: Sequence[str], queue: str) -> bool:
        """Mark letters as published to the queue with this epoch.

        False, and nothing is marked, if the store has detected another epoch since: what was published is lost with
        the old queue.
        """
        ...

    async def letters_to_unpublish(self, workload: str, limit: int) -> list[str]:
        """Ids of replayed and closed letters that the queue may still have, oldest first (I8)."""
        ...

    async def mark_unpublished(self, letter_ids: Sequence[str]) -> None:
        """Mark letters as removed from the queue."""
        ...


class Records(Protocol):
    """The records that effects wrote."""

    async def apply(self, effects: Sequence[Effect]) -> None:
        """Commit effects that belong to no job, such as an operator's decision: all of them or none.

        Raises :class:`EffectRefused` for an effect that can never be applied.
        """
        ...

    async def get(self, collection: str, key: str) -> Mapping[str, Any] | None:
        """One record."""
        ...

    async def find_records(self, query: RecordQuery, page: Page) -> Slice[Mapping[str, Any]]:
        """Records with these values, in the query's order."""
        ...


class Store(Ledger, DeadLetters, Records, Protocol):
    """Everything durable."""

    async def detect_queue_reset(self, epoch: str) -> bool:
        """Remember the queue's epoch; True if it differs from the epoch that was remembered.

        Then every waiting entry becomes due, every pending letter counts as not published, and every replayed or closed
        letter has to be removed from the queue again: the new queue has lost jobs of the old queue, or has kept jobs
        that were removed there. Any number of processes may call this, and one of them gets True. If that process
        crashes meanwhile, the next call does the work.
        """
        ...

    async def now(self) -> datetime:
        """The store's clock, which leases and due times go by (I15)."""
        ...

    async def truncate_log(self) -> bool:
        """Remove erased data from the store's write-ahead log too, if the store has one that we can empty.

        False: another process was reading for too long, so the log is still there. Call this again then.
        """
        ...

    async def ping(self) -> None:
        """Raise :class:`StoreUnavailable` unless a commit would work now."""
        ...


class Broker(Protocol):
    """The queue. It may lose anything at any time; maintenance restores it from the ledger."""

    async def publish(self, queue: str, jobs: Sequence[QueueJob]) -> None:
        """Add jobs. A job that waits or is in work under this id already is left as it is.

        A finished or failed job that the queue still keeps is replaced if the new job has ``revive``: by the ledger,
        the job has to run again.
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

        Waits up to ``wait`` for the first job and then returns what is there. A paused queue gives nothing. A queue
        that has given ``rate.most`` jobs, to all workers together, gives no more until ``rate.per`` after the first.
        """
        ...

    async def settle(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Finish, fail or return deliveries. A delivery whose lease was lost is skipped."""
        ...

    async def renew(self, deliveries: Sequence[Delivery], lease: timedelta) -> list[Delivery]:
        """Prolong leases from now; return those that were lost."""
        ...

    async def recover(self, queue: str) -> int:
        """Make jobs whose lease ran out ready again; return how many."""
        ...

    async def remove(self, queue: str, job_ids: Sequence[str]) -> None:
        """Remove jobs that are not leased."""
        ...

    async def look_up(self, queue: str, job_ids: Sequence[str]) -> list[Presence | WorkedElsewhere]:
        """Whether the queue has each of these jobs, and which of them another system's worker has finished."""
        ...

    async def history(self, queue: str, after: str | None = None) -> History:
        """The next events of the queue after a position, oldest first: what other people's workers finished.

        Without a position, only the latest few: this costs almost nothing. ``"0"`` is before the oldest. A queue keeps
        a limited number of events, and may keep none.
        """
        ...

    async def depth(self, queue: str, *, most: int | None = None) -> Depth:
        """How many jobs wait, are delayed, are in work. A count may stop at ``most``, so that it costs no more."""
        ...

    async def pause(self, queue: str, *, reason: str | None = None) -> None:
        """Hand out no more jobs until resumed, in any process. The reason is kept for people until then."""
        ...

    async def resume(self, queue: str) -> None:
        """Hand out jobs again."""
        ...

    async def acquire(self, name: str, rate: RateLimit, wanted: int, *, hold: timedelta) -> Permits:
        """Take up to ``wanted`` permits of a limit that all processes share.

        There are ``rate.most`` permits of this name. A permit is free again ``rate.per`` after its release, or
        ``hold`` and ``rate.per`` after it was given if nobody released it. So the work between taking and releasing a
        permit is done at most ``rate.most`` times in any span of ``rate.per``, wherever it is measured, unless somebody
        keeps a permit for longer than ``hold``. The queue may lose permits only together with everything else.
        """
        ...

    async def release(self, name: str, rate: RateLimit, permits: Sequence[str]) -> None:
        """Release permits after use; each is free again ``rate.per`` from now. An unknown permit is skipped."""
        ...

    async def reserve(self, name: str, rate: RateLimit, job_ids: Sequence[str]) -> list[timedelta]:
        """How long each job still has to wait for its own place in an even flow of ``rate.most`` in ``rate.per``.

        The first call for a job gives it the next free place. Later calls return the rest of the wait. Zero means that
        the job may go on, and uses its place: a job that calls again gets another place.
        """
        ...

    async def epoch(self) -> str:
        """A mark in the queue's storage. Another mark means that the queue has lost its jobs."""
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
