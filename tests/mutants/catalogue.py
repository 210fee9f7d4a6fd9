"""The mutants. Each is a promise that somebody might break without meaning to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Edit:
    """A text that stands exactly once in a file of the package, and what replaces it."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken engine: what is wrong with it, and how it is made."""

    name: str
    edits: tuple[Edit, ...]


def _mutant(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(name, (Edit(file, old, new),))


_EXECUTION: Final = "engine/execution.py"
_INTAKE: Final = "engine/intake.py"
_PROJECTION: Final = "engine/projection.py"
_MAINTENANCE: Final = "engine/maintenance.py"
_SCHEDULES: Final = "engine/schedules.py"
_TRANSITIONS: Final = "engine/transitions.py"
_BROKER: Final = "brokers/sqlite.py"
_FOLDING: Final = "stores/folding.py"
_ENTRIES: Final = "stores/sqlite/entries.py"
_LEDGER: Final = "stores/sqlite/ledger.py"
_LETTERS: Final = "stores/sqlite/letters.py"
_SETTLING: Final = "stores/sqlite/settling.py"

_MARK: Final = "marked = await self._store.mark_published([letter.id for letter in letters], queue)"
_ORPHAN: Final = '    if attempts and attempts[-1]["outcome"] == AttemptOutcome.RUNNING:  # its worker vanished (I5)'
_CRASH: Final = 'crash_point("letters.settled")'

MUTANTS: Final[tuple[Mutant, ...]] = (
    # --- accepting
    _mutant(
        "a sender is told yes although the ledger failed",
        _INTAKE,
        """            await self._not_recorded(batch, error)
            return
""",
        """            from datetime import UTC, datetime
            now = datetime.now(UTC)
            recorded = [Recorded(RecordedAs.NEW, each.entry.job_id, {}, now, Status.RECEIVED) for each in batch]
""",
    ),
    _mutant(
        "the last sender of a key wins",
        _LEDGER,
        """FROM json_each(:entries) WHERE true
ON CONFLICT DO NOTHING
""",
        """FROM json_each(:entries) WHERE true
ON CONFLICT (workload, key) DO UPDATE SET body = excluded.body, fingerprint = excluded.fingerprint
""",
    ),
    _mutant(
        "other content under a known key is called a duplicate",
        _LEDGER,
        "recorded_as = RecordedAs.DUPLICATE if same else RecordedAs.CONFLICT",
        "recorded_as = RecordedAs.DUPLICATE",
    ),
    _mutant(
        "a duplicate is called new",
        _LEDGER,
        "if row_id > newest_before and identity not in ours:",
        "if fingerprint == entry.fingerprint:",
    ),
    _mutant(
        "foreign jobs are left lying in the queue",
        _EXECUTION,
        "            if unknown:\n",
        "            if unknown and not named:\n                return []\n            if unknown:\n",
    ),
    # --- claiming and settling
    _mutant(
        "settling does not look at the fence",
        _SETTLING,
        "WHERE e.fence = s.value ->> 2 AND e.status = 'processing'",
        "WHERE e.status = 'processing'",
    ),
    _mutant(
        "effects of stale workers are applied",
        _SETTLING,
        "if str(position) in mine.keys() - late}",
        "if str(position) not in late}",
    ),
    Mutant(
        "a takeover does not raise the fence",
        (
            Edit(_LEDGER, "SET status = 'processing', fence = fence + 1,", "SET status = 'processing', fence = 1,"),
            Edit(_LEDGER, "    if status in _TERMINAL:\n", "    fence = 0\n    if status in _TERMINAL:\n"),
        ),
    ),
    _mutant(
        "a job is taken over while its lease holds",
        _LEDGER,
        "if wait > 0 and (held or not overdue):",
        "if wait > 0 and not held and not overdue:",
    ),
    _mutant(
        "waits are not kept",
        _LEDGER,
        "if wait > 0 and (held or not overdue):",
        "if wait > 0 and held:",
    ),
    _mutant(
        "leases are not renewed in time",
        _EXECUTION,
        "await asyncio.sleep(self._options.lease.total_seconds() / 3)",
        "await asyncio.sleep(self._options.lease.total_seconds() * 3)",
    ),
    Mutant(
        "a lease is settled twice in one batch",
        (
            Edit(_SETTLING, "first.setdefault((each.workload, each.lease.job_id, each.lease.fence), str(position))",
                 "first[each.workload, each.lease.job_id, each.lease.fence, position] = str(position)"),
            Edit(_SETTLING, "leases = {position: lease for lease, position in first.items()}",
                 "leases = {position: lease[:3] for lease, position in first.items()}"),
            Edit("engine/settling.py", "await self._store.settle(settlements), strict=True",
                 "await self._store.settle([*settlements, *(replace(each, transition=Release()) for each in settlements"
                 ")])"),
        ),
    ),
    # --- attempts
    _mutant(
        "lost attempts stay open",
        _LEDGER,
        _ORPHAN,
        "    if not attempts and not body:  # its worker vanished (I5)",
    ),
    _mutant(
        "lost attempts are forgotten",
        _LEDGER,
        _ORPHAN + '\n        attempts[-1] |= {**LOST, "finishedAt": now}',
        _ORPHAN + "\n        attempts.pop()",
    ),
    _mutant(
        "a poison job is tried for ever",
        _LEDGER,
        "if len(attempts) >= max_attempts:",
        "if len(attempts) >= max_attempts * 10:",
    ),
    _mutant(
        "one attempt too many",
        _TRANSITIONS,
        "if job.claim.attempt >= attempt_limit(self._workload, job.job):",
        "if job.claim.attempt > attempt_limit(self._workload, job.job):",
    ),
    _mutant(
        "a release costs an attempt",
        _SETTLING,
        "                    attempts.pop()\n",
        "                    self._close(attempts, AttemptOutcome.LOST)\n",
    ),
    _mutant(
        "a stopping worker drops what it has not finished",
        _EXECUTION,
        "            self._finish(running, self._given_up(running))\n",
        "            self._leave(running)\n",
    ),
    _mutant(
        "an outcome without a decision is dropped",
        _TRANSITIONS,
        "        except Exception as error:  # noqa: BLE001 - other people filled it in",
        "        except ZeroDivisionError as error:  # noqa: BLE001 - other people filled it in",
    ),
    # --- what cannot be undone
    _mutant(
        "nobody remembers that a job has passed its point of no return",
        _LEDGER,
        "    if proceeded:  # what the job did",
        "    if proceeded and not body:  # what the job did",
    ),
    _mutant(
        "a surprise beyond the point of no return is retried",
        "engine/handling.py",
        "    if context.running.proceeded:\n        return _unknown(",
        "    if not context.job.key:\n        return _unknown(",
    ),
    _mutant(
        "a stopping worker releases a job whose effect may have happened",
        _EXECUTION,
        "        if running.proceeded:\n",
        "        if not running.lease:\n",
    ),
    _mutant(
        "a handler goes on before its point of no return is committed",
        "engine/context.py",
        "        settled = await answer\n",
        "        await asyncio.sleep(0)\n        return\n        settled = await answer\n",
    ),
    # --- effects
    _mutant(
        "a late event undoes a newer one",
        _FOLDING,
        "elif effect.only_if_newer is not None and self._older(",
        "elif not effect.key and self._older(",
    ),
    _mutant(
        "a bad effect dead-letters the other jobs of its batch",
        "engine/settling.py",
        "return [pair for job in batch for pair in await self._settle_alone(job)]",
        """for job in batch:
            job.transition = self._decider.bare_dead_letter(job, Reason(EFFECT_REFUSED, reason))
        return await self._settle(batch)""",
    ),
    # --- deadlines
    _mutant("expired jobs are handled", _LEDGER, "    if overdue:\n", "    if overdue and not held and not body:\n"),
    _mutant(
        "a replayed job keeps its old deadline",
        _LETTERS,
        "deadline = iif(ledger_entries.mortal, ledger_entries.first_seen_at, :now) + ledger_entries.life,",
        "deadline = ledger_entries.deadline,",
    ),
    # --- cancelling
    _mutant(
        "a cancelled job is tried again",
        _ENTRIES,
        "SET withdrawn = 1, deadline = min(coalesce(deadline, :now), :now),",
        "SET withdrawn = 1,",
    ),
    _mutant(
        "a job is cancelled beyond its point of no return",
        _ENTRIES,
        "AND status = 'processing' AND NOT proceeded",
        "AND status = 'processing'",
    ),
    _mutant(
        "a handler does not learn that its job is cancelled",
        "engine/context.py",
        "                each.cancelled.set()\n",
        "                pass\n",
    ),
    _mutant(
        "a job that was stopped does not say that it was cancelled",
        _TRANSITIONS,
        "note = CANCELLED if job.cancelled.is_set() else None",
        "note = None",
    ),
    # --- the queue
    _mutant(
        "nobody sweeps",
        _MAINTENANCE,
        "await self._republish(workload, report)",
        "pass",
    ),
    _mutant(
        "nobody recovers what a dead worker held",
        _BROKER,
        "WHERE queue = :queue AND state = 'leased' AND due_at <= :now\n",
        "WHERE queue = :queue AND state = 'leased' AND due_at <= 0\n",
    ),
    # --- dead letters
    _mutant("the dead letter is not written", _SETTLING, "    if batch.letters:\n", "    if not batch.rows:\n"),
    _mutant(
        "every generation's dead letter has the same name",
        _TRANSITIONS,
        "letter_id(self._workload.name, job.claim.key, job.claim.generation)",
        "letter_id(self._workload.name, job.claim.key, 1)",
    ),
    _mutant(
        "a new queue does not get the old dead letters",
        _LEDGER,
        "UPDATE dead_letters SET published = 0 WHERE review_status = 'pending'",
        "UPDATE dead_letters SET published = 0 WHERE review_status = 'lost'",
    ),
    Mutant(
        "a dead letter is marked as published before it is",
        (
            Edit(_PROJECTION, f"            {_MARK}\n", ""),
            Edit(_PROJECTION, f"            {_CRASH}\n", f"            {_MARK}\n            {_CRASH}\n"),
        ),
    ),
    _mutant(
        "letters that are dealt with stay in the queue",
        _MAINTENANCE,
        "report.letters_unpublished += await self._projection.tidy(workload)",
        "report.letters_unpublished += 0",
    ),
    _mutant(
        "a replay does not need a review",
        _LETTERS,
        "if status is None or ReviewStatus.REPLAYED not in REVIEW_STEPS[ReviewStatus(status)]:",
        "if status is None:",
    ),
    _mutant(
        "any step from any state",
        _LETTERS,
        "starts = [start.value for start, ends in REVIEW_STEPS.items() if end in ends]",
        "starts = [start.value for start in REVIEW_STEPS]",
    ),
    # --- schedules
    _mutant(
        "a tick has another key in each process",
        "contracts/schedules.py",
        'key = f"schedule:{self.schedule}:{isoformat(self.at)}"',
        'key = f"schedule:{self.schedule}:{isoformat(self.at)}:{id(self)}"',
    ),
    _mutant(
        "the cursor moves before the ticks are recorded",
        _SCHEDULES,
        "                if not await self._submit(each, due, now):",
        """                await self._store.apply(_cursor_moves(each.schedule, records[name], due))
                if not await self._submit(each, due, now):""",
    ),
    _mutant(
        "a schedule starts from now whenever a process looks",
        _SCHEDULES,
        'self._cursors[name] = datetime.fromisoformat(record["cursor"])',
        "self._cursors[name] = now",
    ),
    _mutant(
        "ticks that could not be recorded are forgotten",
        _SCHEDULES,
        """            if isinstance(error, StoreUnavailable) or not isinstance(error, Exception):
                raise error
        if errors:
            emit_failure(events.SCHEDULE_FAILED, errors[0], schedule=schedule.name)
        return not errors""",
        """            del error
        return True""",
    ),
)  # fmt: skip
