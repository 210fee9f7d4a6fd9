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
from .options import conditions, instant_or_ago, span
from .output import attempt_table, moment, print_json, say, show_document, show_item, show_list

jobs = typer.Typer(help="List jobs; show one, wait for it, cancel it.", no_args_is_help=True, add_completion=False)

_MOST_LETTERS: Final = 100

_SINCE: Final = "Only jobs that arrived then or later: 2026-02-26T12:00:00Z, or 2h for two hours ago."

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
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Only with this key; 'ord-*' is every key that begins so.", show_default=False
        ),
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="WHEN", help=_SINCE, show_default=False)] = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only jobs that arrived before.", show_default=False)
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
        now = await system.store.now()
        query = EntryQuery(
            workload="",
            status=status,
            labels=labels,
            **_key_condition(key),
            seen_after=None if since is None else instant_or_ago("--since", since, now),
            seen_before=None if until is None else instant_or_ago("--until", until, now),
        )
        page = await newest(system, names, query, Page(limit, cursor))
        found = Slice([(entry, _content(system, entry)) for entry in page.items], page.next)
        if workload is not None and not found.items:
            require_known(system, workload)
        hint = missing_app(system)
    empty = f"The ledger has no job of {workload} yet."
    if status or where or key or since or until:
        empty = "The ledger has no such job."
    elif workload is None:
        empty = " ".join(["The ledger has no job yet.", *hint])
    show_list(
        found,
        partial(_row, several=len(names) > 1),
        _listed,
        json=json,
        whole=("workload", "status", "updated"),
        empty=empty,
    )


@jobs.command("wait")
async def wait(
    key: Key,
    at_most: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="How long to wait at most, such as 5m.")
    ] = "60s",
    workload: options.Workload = None,
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Wait for the end of a job, and print its result.

    Exit code 0: the job is processed; 1: it has ended in another way, or not in time.
    """
    patience = span("--timeout", at_most)
    async with existing_system(data, app) as system:
        waited_for = await find_job(system, key, workload)
        await system.waiting.until_ended(waited_for.workload, key, patience)
        job = await _found(system, key, waited_for.workload)
    if json:
        print_json(_whole_document(job))
    elif job.entry.result is not None:
        show_document(dict(job.entry.result))
    if job.entry.status is not Status.PROCESSED:
        raise Stop(*_why_not(job, at_most), code=REFUSED)
    if job.entry.result is None:
        say(f"{key} of {job.entry.workload} is processed. It has no result.")


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


def _key_condition(key: str | None) -> dict[str, str]:
    """The condition of ``--key``: a key, or with ``*`` at its end the beginning of keys."""
    if key is None:
        return {}
    if not key.rstrip("*"):
        message = "--key takes a key, or the beginning of keys and *, such as 'ord-*'."
        raise Stop(message)
    return {"key_prefix": key.removesuffix("*")} if key.endswith("*") else {"key": key}


def _why_not(job: _Found, timeout: str) -> list[str]:
    """Why the result of a job is not there."""
    entry = job.entry
    name = f"{entry.key} of {entry.workload}"
    if not entry.status.terminal:
        return [f"{name} has not ended after {timeout}: it is {entry.status}."]
    error = f": {entry.last_error_code}: {entry.last_error_message}" if entry.last_error_code else ""
    letters = [f"`holdfast dlq show {each.id}` shows why." for each in job.letters[-1:]]
    return [f"{name} is {_note(entry) or entry.status}{error}.".replace("..", "."), *letters]


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


def _document(job: tuple[LedgerEntry, object], letters: Sequence[DeadLetter] = ()) -> dict[str, Any]:
    """The entry as ``GET /v1/jobs/{workload}/{key}`` shows it. ``content`` is the older name of ``payload``."""
    entry, content = job
    ids = [each.id for each in letters]
    view = JobView.of(entry, entry.key, payload=content, dead_letters=ids, tracebacks=True)
    return {**view.as_json(), "content": content}


def _listed(job: tuple[LedgerEntry, object]) -> dict[str, Any]:
    """An entry of a list. Its dead letters are not looked up."""
    return {name: value for name, value in _document(job).items() if name not in {"deadLetters", "payload"}}


def _whole_document(job: _Found) -> dict[str, Any]:
    """The job, its dead letters, and the attempts of all its generations."""
    letters = [
        {"id": each.id, "generation": each.generation, "reviewStatus": each.review_status.value}
        | {"terminalReasonCode": each.reason_code, "replayedAs": each.replayed_as}
        for each in job.letters
    ]
    generations = [
        {"generation": number, "attemptHistory": [AttemptView.picked(each).as_json() for each in attempts]}
        for number, attempts in job.generations
    ]
    return {**_document((job.entry, job.content), job.letters), "letters": letters, "generations": generations}


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
