"""Review: what people do with dead letters. Nothing here happens automatically (I9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import ValidationError

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.dead_letters import DeadLetter, ListedLetter, ReviewStatus
from holdfast.contracts.effects import Effect
from holdfast.contracts.entries import new_entry, owner_of
from holdfast.contracts.errors import BrokerUnavailable, InvalidQuery, NotFound, ReviewRefused, StoreUnavailable
from holdfast.contracts.ledger import NewEntry
from holdfast.contracts.ports import Broker, Store
from holdfast.contracts.queries import LetterQuery, Page, Slice
from holdfast.contracts.tracing import passed_on
from holdfast.contracts.transitions import Publish
from holdfast.contracts.validation import describe_validation
from holdfast.contracts.workload import Workload
from holdfast.telemetry import emit, events

from .entries import queue_job
from .hooks import Hooks, report_failure
from .projection import Projection

_PAGE: Final = 100


STEPS_FROM: Final[Mapping[ReviewStatus, tuple[ReviewStatus, ...]]] = {
    ReviewStatus.REVIEWED: (ReviewStatus.PENDING,),
    ReviewStatus.REPLAYED: (ReviewStatus.REVIEWED,),
    ReviewStatus.CLOSED: (ReviewStatus.REVIEWED, ReviewStatus.REPLAYED),
}
"""Each step by the state that it leads to, and the states that it may be taken from."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The letters that a filter chose for a step: only these will be moved.

    ``matched`` is the number of letters that match the filter and are in a state that the step can start from.
    ``unreviewed`` is the number of matching letters that nobody has reviewed yet, for a step that needs a review.
    """

    step: ReviewStatus
    letters: Sequence[ListedLetter]
    matched: int
    unreviewed: int = 0


@dataclass(frozen=True, slots=True)
class StepReport:
    """The result for the chosen letters.

    ``skipped``: somebody else moved them meanwhile. ``refused``: no new job can be made of them, with the reason.
    """

    matched: int
    moved: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


class Review:
    """Reads, reviews, replays and closes dead letters."""

    def __init__(self, store: Store, broker: Broker, workloads: Mapping[str, Workload[Any]]) -> None:
        self._store = store
        self._broker = broker
        self._workloads = workloads
        self._projection = Projection(store, broker)

    async def list(self, query: LetterQuery, page: Page) -> Slice[ListedLetter]:
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
        """``pending -> reviewed``: somebody has read the letter, and the reason is what they found."""
        moved = await self._store.review([letter_id], actor=actor, reason=reason)
        return await self._decided(letter_id, moved, ReviewStatus.REVIEWED, actor)

    async def close(self, letter_id: str, *, actor: str, reason: str) -> DeadLetter:
        """``reviewed | replayed -> closed``: nothing more will be done about it."""
        moved = await self._store.close([letter_id], actor=actor, reason=reason)
        letter = await self._decided(letter_id, moved, ReviewStatus.CLOSED, actor)
        await self._unpublish([letter])
        return letter

    async def replay(self, letter_id: str, *, actor: str, reason: str) -> DeadLetter:
        """``reviewed -> replayed``: the cause is repaired, so run the job again."""
        letter = await self.show(letter_id)
        refused: dict[str, str] = {}
        moved = await self._replay([letter], actor, reason, refused)
        if refused:
            raise ReviewRefused(refused[letter_id])
        return await self._decided(letter_id, moved, ReviewStatus.REPLAYED, actor)

    async def replay_where(
        self, query: LetterQuery, *, limit: int, actor: str, reason: str, dry_run: bool = False
    ) -> StepReport:
        """Replay up to ``limit`` reviewed letters that match, oldest first. A dry run lists them, and refuses as much.

        An empty filter is refused, because it does not name what was repaired.
        """
        if query.empty:
            message = "A replay by filter needs at least one condition."
            raise InvalidQuery(message)
        chosen = await self.choose(ReviewStatus.REPLAYED, query, limit=limit)
        return await (self.preview(chosen) if dry_run else self.move(chosen, actor=actor, reason=reason))

    async def choose(self, step: ReviewStatus, query: LetterQuery, *, limit: int) -> Chosen:
        """Up to ``limit`` letters that match and that the step may be taken for, oldest first.

        Letters in other states never match: a filter cannot skip the review.
        """
        states = STEPS_FROM[step]
        if query.review_status is not None:
            if query.review_status not in states:
                wanted = " or ".join(state.value for state in states)
                message = f"Only {wanted} dead letters can be {step.value}, not {query.review_status.value} ones."
                raise InvalidQuery(message)
            states = (query.review_status,)
        queries = [replace(query, review_status=state) for state in states]
        letters = [letter for each in queries for letter in await self._collect(each, limit)]
        if len(queries) > 1:  # each query is sorted by itself
            letters.sort(key=lambda letter: (letter.created_at, letter.id))
        matched = sum([await self._store.count_letters(each) for each in queries])
        unreviewed = 0
        if ReviewStatus.PENDING not in states and query.review_status is None:
            unreviewed = await self._store.count_letters(replace(query, review_status=ReviewStatus.PENDING))
        return Chosen(step, letters[:limit], matched, unreviewed)

    async def check(self, step: ReviewStatus, letter_id: str) -> DeadLetter:
        """The letter, if the step may be taken for it. Otherwise raises what the step itself would raise."""
        letter = await self.show(letter_id)
        if letter.review_status not in STEPS_FROM[step]:
            raise _wrong_state(letter, step)
        if step is ReviewStatus.REPLAYED:
            self._new_job(letter)
        return letter

    async def preview(self, chosen: Chosen) -> StepReport:
        """The report that :meth:`move` would give, with the same refusals; nothing is moved."""
        report = StepReport(chosen.matched)
        self._require_workloads(chosen)
        for letter in chosen.letters:
            whole = await self._store.letter(letter.id) if chosen.step is ReviewStatus.REPLAYED else None
            try:
                if whole is not None:
                    self._new_job(whole)
            except ReviewRefused as error:
                report.refused[letter.id] = error.message
            else:
                report.moved.append(letter.id)
        return report

    async def move(
        self, chosen: Chosen, *, actor: str, reason: str, progress: Callable[[int, int], None] | None = None
    ) -> StepReport:
        """Take the step for the chosen letters. ``progress`` is called with the number done and the total."""
        report = StepReport(chosen.matched)
        letters = chosen.letters
        self._require_workloads(chosen)
        for start in range(0, len(letters), _PAGE):
            page = letters[start : start + _PAGE]
            moved = await self._move(chosen.step, page, actor, reason, report.refused)
            report.moved.extend(letter.id for letter in page if letter.id in moved)
            report.skipped.extend(
                letter.id for letter in page if letter.id not in moved and letter.id not in report.refused
            )
            if progress is not None:
                progress(start + len(page), len(letters))
        return report

    def _require_workloads(self, chosen: Chosen) -> None:
        """Refuse a replay before the first letter moves, if the workload of a letter is missing."""
        for letter in chosen.letters if chosen.step is ReviewStatus.REPLAYED else ():
            self._workload_of(letter)

    async def _move(
        self, step: ReviewStatus, letters: Sequence[ListedLetter], actor: str, reason: str, refused: dict[str, str]
    ) -> set[str]:
        """Move one page. A letter that cannot be replayed does not stop the others."""
        if step is ReviewStatus.REPLAYED:
            moved = await self._replay(letters, actor, reason, refused)
        else:
            write = self._store.review if step is ReviewStatus.REVIEWED else self._store.close
            moved = await write([letter.id for letter in letters], actor=actor, reason=reason)
            if step is ReviewStatus.CLOSED:
                await self._unpublish([letter for letter in letters if letter.id in moved])
        for letter in letters:
            if letter.id in moved:
                _emit_decided(letter, step, actor)
        return set(moved)

    async def _collect(self, query: LetterQuery, limit: int) -> Sequence[ListedLetter]:
        letters: list[ListedLetter] = []
        cursor: str | None = None
        while len(letters) < limit:
            found = await self._store.letters(query, Page(min(_PAGE, limit - len(letters)), cursor))
            letters += found.items
            cursor = found.next
            if cursor is None:
                break
        return letters

    async def _replay(
        self, letters: Sequence[ListedLetter], actor: str, reason: str, refused: dict[str, str]
    ) -> Sequence[str]:
        replays: list[tuple[ListedLetter, NewEntry | None]] = []
        for letter in letters:
            whole = await self._store.letter(letter.id)
            if whole is None:  # its retention is over since
                continue
            try:
                replays.append((letter, self._new_job(whole)))
            except ReviewRefused as error:
                refused[letter.id] = error.message
        if not replays:
            return []
        moved = await self._store.replay([(letter.id, new) for letter, new in replays], actor=actor, reason=reason)
        crash_point("review.replayed")
        done = [(letter, new) for letter, new in replays if letter.id in moved]
        await self._publish(done)
        await self._unpublish([letter for letter, _ in done])
        return moved

    def _new_job(self, letter: DeadLetter) -> NewEntry | None:
        workload = self._workload_of(letter)
        try:
            data = workload.replayed(letter)
            if data is None:
                return None
            # Recorded with the workload's own effects, like any new job.
            entry = new_entry(
                workload,
                data,
                replay_of=letter.key,
                owner=owner_of(letter.key, letter.labels),
                labels=passed_on(letter.labels),
            )
            return Hooks(workload).accepted(entry, data, queued=False)
        except ValidationError as error:
            message = f"It cannot be replayed: what it holds is no job of {workload.name}. {describe_validation(error)}"
            raise ReviewRefused(message) from error
        except Exception as error:
            report_failure(workload, "replayed", error)
            message = f"The workload {workload.name} cannot make a new job of {letter.id}: {type(error).__name__}."
            raise ReviewRefused(message) from error

    async def _publish(self, done: Sequence[tuple[ListedLetter, NewEntry | None]]) -> None:
        """Publish to the queue at once. If the queue is away, maintenance finds the entries due."""
        by_workload: dict[str, list[Any]] = {}
        effects: list[Effect] = []
        for letter, new in done:
            workload = self._workload_of(letter)
            # The body of the ledger entry: a letter may hold less than the job needs.
            existing = await self._store.entry(letter.workload, letter.key) if new is None else None
            entry = new or existing
            if entry is None:  # the entry was settled and pruned since
                continue
            job = queue_job(workload, entry.job_id, entry.body, attempt=1, priority=entry.priority)
            by_workload.setdefault(letter.workload, []).append(job)
            generation = 1 if existing is None else existing.generation
            effects += Hooks(workload).effects_of(Publish(), entry.job_id, entry.body, generation)
        if effects:
            try:
                await self._store.apply(effects)
            except StoreUnavailable as error:  # the step is taken, and the worker's own effects will follow
                emit(events.STORE_UNAVAILABLE, where="review", reason=error.message)
        for name, jobs in by_workload.items():
            try:
                await self._broker.publish(self._workloads[name].queue, jobs)
            except BrokerUnavailable as error:
                emit(events.QUEUE_UNAVAILABLE, where="review", queue=self._workloads[name].queue, reason=error.message)

    async def _unpublish(self, letters: Sequence[ListedLetter]) -> None:
        by_workload: dict[str, list[str]] = {}
        for letter in letters:
            by_workload.setdefault(letter.workload, []).append(letter.id)
        for name, letter_ids in by_workload.items():
            if name not in self._workloads:
                continue
            try:
                await self._projection.unpublish(self._workloads[name], letter_ids)
            except (BrokerUnavailable, StoreUnavailable) as error:  # the step is taken; maintenance will tidy up
                emit(events.QUEUE_UNAVAILABLE, where="review", reason=error.message)

    async def _decided(self, letter_id: str, moved: Sequence[str], step: ReviewStatus, actor: str) -> DeadLetter:
        letter = await self.show(letter_id)
        if letter_id not in moved:
            raise _wrong_state(letter, step)
        _emit_decided(letter, step, actor)
        return letter

    def _workload_of(self, letter: ListedLetter) -> Workload[Any]:
        try:
            return self._workloads[letter.workload]
        except KeyError:
            message = (
                f"The workload {letter.workload} is not part of this process. "
                "HOLDFAST_APP, app in holdfast.toml, or --app names your own workloads."
            )
            raise ReviewRefused(message) from None


def _wrong_state(letter: ListedLetter, step: ReviewStatus) -> ReviewRefused:
    return ReviewRefused(f"The dead letter is {letter.review_status.value}; it cannot become {step.value}.")


def _emit_decided(letter: ListedLetter, step: ReviewStatus, actor: str) -> None:
    emit(events.LETTER_DECIDED, letter=letter.id, workload=letter.workload, step=step.value, actor=actor)
