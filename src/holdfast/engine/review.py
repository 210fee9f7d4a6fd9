"""Review: what people do with dead letters. Nothing here ever happens by itself (I9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.dead_letters import DeadLetter, ReviewStatus
from holdfast.contracts.effects import Effect
from holdfast.contracts.entries import new_entry
from holdfast.contracts.errors import BrokerUnavailable, InvalidQuery, NotFound, ReviewRefused, StoreUnavailable
from holdfast.contracts.ledger import NewEntry
from holdfast.contracts.ports import Broker, Store
from holdfast.contracts.queries import LetterQuery, Page, Slice
from holdfast.contracts.workload import Workload
from holdfast.telemetry import emit, events

from .entries import queue_job
from .projection import Projection
from .readers import Readers

_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay by filter did: how many letters matched, which were replayed, which could not be."""

    matched: int
    replayed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


class Review:
    """The desk where dead letters are read, reviewed, replayed and closed."""

    def __init__(self, store: Store, broker: Broker, workloads: Mapping[str, Workload[Any]]) -> None:
        self._store = store
        self._broker = broker
        self._workloads = workloads
        self._projection = Projection(store, broker)

    async def list(self, query: LetterQuery, page: Page) -> Slice[DeadLetter]:
        """Dead letters that match, oldest first."""
        return await self._store.letters(query, page)

    async def count(self, query: LetterQuery) -> int:
        """How many match."""
        return await self._store.count_letters(query)

    async def show(self, letter_id: str) -> DeadLetter:
        """One dead letter; :class:`NotFound` when there is none."""
        letter = await self._store.letter(letter_id)
        if letter is None:
            message = f"There is no dead letter {letter_id}."
            raise NotFound(message)
        return letter

    async def review(self, letter_id: str, *, actor: str, reason: str) -> DeadLetter:
        """``pending -> reviewed``: somebody has looked at it and says what they found."""
        moved = await self._store.review([letter_id], actor=actor, reason=reason)
        return await self._decided(letter_id, moved, ReviewStatus.REVIEWED, actor)

    async def close(self, letter_id: str, *, actor: str, reason: str) -> DeadLetter:
        """``reviewed | replayed -> closed``: nothing more will be done about it."""
        moved = await self._store.close([letter_id], actor=actor, reason=reason)
        letter = await self._decided(letter_id, moved, ReviewStatus.CLOSED, actor)
        await self._withdraw([letter])
        return letter

    async def replay(self, letter_id: str, *, actor: str, reason: str) -> DeadLetter:
        """``reviewed -> replayed``: the cause is mended, run it again."""
        letter = await self.show(letter_id)
        moved = await self._replay([letter], actor, reason)
        return await self._decided(letter_id, moved, ReviewStatus.REPLAYED, actor)

    async def replay_where(  # noqa: PLR0913 - a command with its options
        self,
        query: LetterQuery,
        *,
        limit: int,
        actor: str,
        reason: str,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ReplayReport:
        """Replay up to ``limit`` reviewed letters that match, oldest first.

        Letters in other states never match: a filter cannot skip the review. ``progress`` is told how many of how
        many are done. An empty filter is refused, because it says nothing about what was mended.
        """
        if query.empty:
            message = "A replay by filter needs at least one condition."
            raise InvalidQuery(message)
        if query.review_status not in (None, ReviewStatus.REVIEWED):
            message = f"Only reviewed dead letters can be replayed, not {query.review_status.value} ones."
            raise InvalidQuery(message)
        query = replace(query, review_status=ReviewStatus.REVIEWED)
        letters = await self._gather(query, limit)
        report = ReplayReport(await self._store.count_letters(query))
        if dry_run:
            report.replayed.extend(letter.id for letter in letters)
            return report
        for letter in letters:
            self._workload_of(letter)  # refuse before the first one moves
        for start in range(0, len(letters), _PAGE):
            page = letters[start : start + _PAGE]
            moved = await self._replay(page, actor, reason)
            report.replayed.extend(moved)
            report.skipped.extend(letter.id for letter in page if letter.id not in moved)
            if progress is not None:
                progress(start + len(page), len(letters))
        return report

    async def _gather(self, query: LetterQuery, limit: int) -> Sequence[DeadLetter]:
        letters: list[DeadLetter] = []
        cursor: str | None = None
        while len(letters) < limit:
            found = await self._store.letters(query, Page(min(_PAGE, limit - len(letters)), cursor))
            letters += found.items
            cursor = found.next
            if cursor is None:
                break
        return letters

    async def _replay(self, letters: Sequence[DeadLetter], actor: str, reason: str) -> Sequence[str]:
        replays = [(letter.id, self._new_job(letter)) for letter in letters]
        moved = await self._store.replay(replays, actor=actor, reason=reason)
        crash_point("review.replayed")
        done = [(letter, entry) for letter, (_, entry) in zip(letters, replays, strict=True) if letter.id in moved]
        await self._publish(done)
        await self._withdraw([letter for letter, _ in done])
        return moved

    def _new_job(self, letter: DeadLetter) -> NewEntry | None:
        workload = self._workload_of(letter)
        try:
            data = workload.replayed(letter)
            if data is None:
                return None
            # Recorded with its words for its readers, as any new job is.
            effects = Readers(workload).accepted(data, queued=False)
            return new_entry(workload, data, replay_of=letter.key, effects=effects)
        except Exception as error:
            message = f"The workload {workload.name} cannot make a new job of {letter.id}: {type(error).__name__}."
            raise ReviewRefused(message) from error

    async def _publish(self, done: Sequence[tuple[DeadLetter, NewEntry | None]]) -> None:
        """Hint the queue at once; were it away, upkeep would find the entries due."""
        by_workload: dict[str, list[Any]] = {}
        told: list[Effect] = []
        for letter, new in done:
            workload = self._workload_of(letter)
            # The ledger's own: a letter may hold less of the job than the job needs.
            stands = await self._store.entry(letter.workload, letter.key) if new is None else None
            entry = new or stands
            if entry is None:  # settled and pruned since
                continue
            job = queue_job(workload, entry.job_id, entry.body, attempt=1, priority=entry.priority)
            by_workload.setdefault(letter.workload, []).append(job)
            told += Readers(workload).enqueued(entry.body, 1 if stands is None else stands.generation)
        if told:
            try:
                await self._store.apply(told)
            except StoreUnavailable as error:  # the step is taken, and the worker's own words will follow
                emit(events.STORE_UNAVAILABLE, where="review", reason=error.message)
        for name, jobs in by_workload.items():
            try:
                await self._broker.publish(self._workloads[name].queue, jobs)
            except BrokerUnavailable as error:
                emit(events.QUEUE_UNAVAILABLE, where="review", queue=self._workloads[name].queue, reason=error.message)

    async def _withdraw(self, letters: Sequence[DeadLetter]) -> None:
        by_workload: dict[str, list[str]] = {}
        for letter in letters:
            by_workload.setdefault(letter.workload, []).append(letter.id)
        for name, letter_ids in by_workload.items():
            if name not in self._workloads:
                continue
            try:
                await self._projection.withdraw(self._workloads[name], letter_ids)
            except (BrokerUnavailable, StoreUnavailable) as error:  # the step is taken; upkeep will tidy up
                emit(events.QUEUE_UNAVAILABLE, where="review", reason=error.message)

    async def _decided(self, letter_id: str, moved: Sequence[str], step: ReviewStatus, actor: str) -> DeadLetter:
        letter = await self.show(letter_id)
        if letter_id not in moved:
            message = f"The dead letter is {letter.review_status.value}; it cannot become {step.value}."
            raise ReviewRefused(message)
        emit(events.LETTER_DECIDED, letter=letter_id, workload=letter.workload, step=step.value, actor=actor)
        return letter

    def _workload_of(self, letter: DeadLetter) -> Workload[Any]:
        try:
            return self._workloads[letter.workload]
        except KeyError:
            message = f"The workload {letter.workload} is not part of this process; start it with its --app."
            raise ReviewRefused(message) from None
