"""``jobs``: jobs as the ledger has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final

import typer

from holdfast.api.views import AttemptView, JobView
from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.ledger import Attempt, Cancelled, LedgerEntry, Status
from holdfast.contracts.queries import EntryQuery, LetterQuery, Page, Slice
from holdfast.contracts.tracing import TRACE_ID
from holdfast.contracts.transitions import CANCELLED
from holdfast.contracts.workload import readable_body
from holdfast.wiring import System

from . import options
from .failures import REFUSED, Stop
from .lookup import find_job, known_workload, missing_app, newest, require_known, searched_by
from .opening import existing_system
from .options import conditions
from .output import attempt_table, moment, print_json, say, show_document, show_item, show_list

jobs = typer.Typer(help="List jobs; show one, wait for it, cancel it.", no_args_is_help=True, add_completion=False)

_MOST_LETTERS: Final = 100

Key = Annotated[str, typer.Argument(help="The job's key, such as courier-x:evt_123.", show_default=False)]


@dataclass(frozen=True, slots=True)
class _Found:
    """A job with its content, the dead letters of all its generations (oldest first), and the time of the store."""

    entry: LedgerEntry
    content: object
    letters: Sequence[DeadLetter]
    now: datetime

    @property
    def generations(self) -> list[tuple[int, Sequence[Attempt]]]:
        """The attempts of each generation. The letters keep those of earlier generations."""
        earlier = [(each.generation, each.attempts) for each in self.letters if each.generation < self.entry.generation]
        return [*earlier, (self.entry.generation, self.entry.attempts)]


@jobs.command("show")
async def show(
    key: Key,
    workload: options.Workload = None,
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Show a job: its state, attempts, dead letters, content and result."""
    async with existing_system(data, app) as system:
        job = await _found(system, key, workload)
    attempts = {
        "Attempts" if len(job.generations) == 1 else f"Attempts of generation {number}": partial(attempt_table, each)
        for number, each in job.generations
    }
    content = {"Content": partial(show_document, job.content)}
    result = {} if job.entry.result is None else {"Result": partial(show_document, dict(job.entry.result))}
    show_item(_whole_document(job), _facts(job), json=json, sections={**attempts, **content, **result})


@jobs.command("list")
async def list_(
    status: Annotated[Status | None, typer.Option(help="Only jobs in this state.", show_default=False)] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=VALUE",
            help="Only jobs with this label, such as shipmentId=shp_456, repeatable.",
            show_default=False,
        ),
    ] = None,
    workload: options.Workload = None,
    limit: options.Limit = 20,
    cursor: options.Cursor = None,
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """List jobs, newest first.

    Those of one workload, or of all workloads together. Labels and keys are looked up in an index.
    """
    labels = conditions(where or (), "shipmentId=shp_456")
    async with existing_system(data, app) as system:
        names = searched_by(system, workload, labels)
        query = EntryQuery(workload="", status=status, labels=labels)
        page = await newest(system, names, query, Page(limit, cursor))
        found = Slice([(entry, _content(system, entry)) for entry in page.items], page.next)
        if workload is not None and not found.items:
            require_known(system, workload)
        hint = missing_app(system)
    empty = f"The ledger has no job of {workload} yet."
    if status or where:
        empty = "The ledger has no such job."
    elif workload is None:
        empty = " ".join(["The ledger has no job yet.", *hint])
    show_list(
        found,
        partial(_row, several=len(names) > 1),
        _document,
        json=json,
        whole=("workload", "status", "updated"),
        empty=empty,
    )


@jobs.command("cancel")
async def cancel(
    key: Key,
    workload: options.Workload = None,
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Cancel a job.

    A waiting job ends at once. A running job is asked to stop, if its workload can be stopped.

    Exit code 0: the job is cancelled or asked to stop; 1: it is too late, or there is no such job.
    """
    async with existing_system(data, app) as system:
        entry = await find_job(system, key, workload)
        answer = await system.cancellation.cancel(known_workload(system, entry.workload), key)
        entry = await system.store.entry(entry.workload, key) or entry
    state = {Cancelled.ENDS: "cancelled", Cancelled.STOPS: "stopping", Cancelled.TOO_LATE: "too_late"}[answer]
    if json:
        print_json({"workload": entry.workload, "key": key, "state": state, "status": entry.status})
    match answer:
        case Cancelled.ENDS:
            say(f"{key} of {entry.workload} is cancelled: it will not run.")
        case Cancelled.STOPS:
            say(f"{key} of {entry.workload} is running. It was asked to stop, and it will not run again.")
        case Cancelled.TOO_LATE:
            running = entry.status is Status.PROCESSING
            why = "it is running and cannot be stopped" if running else f"it is {_note(entry) or entry.status.value}"
            message = f"Too late to cancel {key} of {entry.workload}: {why}."
            raise Stop(message, code=REFUSED)


# --- what is shown -----------------------------------------------------------------------------------------------


async def _found(system: System, key: str, workload: str | None) -> _Found:
    entry = await find_job(system, key, workload)
    query = LetterQuery(workload=entry.workload, key=entry.key)
    listed = await system.review.list(query, Page(_MOST_LETTERS))
    letters = [await system.review.show(each.id) for each in listed.items]
    return _Found(entry, _content(system, entry), letters, await system.store.now())


def _facts(job: _Found) -> dict[str, object]:
    entry = job.entry
    waits = entry.not_before > job.now
    letters = {
        f"dead letter {each.generation}" if len(job.letters) > 1 else "dead letter": (
            f"{each.id} ({each.review_status}), {each.reason_code}"
        )
        for each in job.letters
    }
    return {
        "key": entry.key,
        "status": entry.status,
        "note": _note(entry),
        "workload": entry.workload,
        "job id": entry.job_id,
        "generation": entry.generation,
        "replay of": entry.replay_of,
        "trace id": entry.labels.get(TRACE_ID),
        "first seen": moment(entry.first_seen_at),
        "updated": moment(entry.updated_at),
        "progress": _progress(entry),
        "due": moment(entry.not_before) if waits and entry.status is Status.RECEIVED else None,
        "next attempt": moment(entry.not_before) if entry.status is Status.FAILED else None,
        "deadline": moment(entry.deadline),
        "kept until": moment(entry.expires_at),
        "last error": entry.last_error_code and f"{entry.last_error_code}: {entry.last_error_message}",
        **letters,
        **{f"warning {number}": each for number, each in enumerate(entry.warnings, 1)},
        **{f"label {name}": value for name, value in entry.labels.items() if name != TRACE_ID},
    }


def _row(job: tuple[LedgerEntry, object], *, several: bool) -> dict[str, object]:
    entry, _ = job
    return {
        **({"workload": entry.workload} if several else {}),
        "key": entry.key,
        "status": entry.status,
        "attempts": entry.attempt_count,
        "error or note": entry.last_error_code or _note(entry),
        "updated": moment(entry.updated_at),
    }


def _document(job: tuple[LedgerEntry, object]) -> dict[str, Any]:
    """The entry as ``GET /v1/jobs/{workload}/{key}`` shows it, and its content."""
    entry, content = job
    return {**JobView.picked(entry).as_json(), "content": content}


def _whole_document(job: _Found) -> dict[str, Any]:
    """The job, its dead letters, and the attempts of all its generations."""
    letters = [
        {"id": each.id, "generation": each.generation, "reviewStatus": each.review_status.value}
        | {"terminalReasonCode": each.reason_code, "replayedAs": each.replayed_as}
        for each in job.letters
    ]
    generations = [
        {"generation": number, "attemptHistory": [_attempt(each) for each in attempts]}
        for number, attempts in job.generations
    ]
    return {**_document((job.entry, job.content)), "letters": letters, "generations": generations}


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {**AttemptView.picked(attempt).as_json(), "traceback": attempt.traceback}


def _progress(entry: LedgerEntry) -> str | None:
    """How far the job is, as its handler told last."""
    if entry.progress is None:
        return None
    done, total, note = (entry.progress.get(name) for name in ("done", "total", "note"))
    return f"{done}{'' if total is None else f' of {total}'}{'' if note is None else f', {note}'}"


def _note(entry: LedgerEntry) -> str | None:
    return "cancelled" if entry.note == CANCELLED else entry.note


def _content(system: System, entry: LedgerEntry) -> object:
    """The content of the job, as its workload shows it to people."""
    workload = system.workloads.get(entry.workload)
    return readable_body(entry.body) if workload is None else workload.readable(entry.body)
