"""``events``: jobs as the ledger has them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.api.views import JobView
from holdfast.contracts.errors import NotFound
from holdfast.contracts.ledger import Attempt, LedgerEntry, Status
from holdfast.contracts.queries import EntryQuery, Page, Slice
from holdfast.contracts.workload import readable_body
from holdfast.wiring import System

from . import options
from .arguments import conditions
from .opening import existing_system
from .output import print_json, say
from .tables import heading, moment, show_document, show_facts, show_table

events = typer.Typer(help="Look jobs up in the ledger.", no_args_is_help=True, add_completion=False)


@events.command("show")
def show(
    key: Annotated[str, typer.Argument(help="The idempotency key, such as courier-x:evt_123.", show_default=False)],
    workload: options.Workload = "courier",
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Show one job: its state, every attempt, and its content."""
    entry, content = asyncio.run(_entry(workload, key, app, data))
    if json:
        print_json(_document(entry, content))
        return
    waiting = entry.not_before if entry.status is Status.FAILED else None
    show_facts(
        {
            "key": entry.key,
            "status": entry.status,
            "note": entry.note,
            "workload": entry.workload,
            "job id": entry.job_id,
            "generation": entry.generation,
            "replay of": entry.replay_of,
            "first seen": moment(entry.first_seen_at),
            "updated": moment(entry.updated_at),
            "next attempt": moment(waiting),
            "deadline": moment(entry.deadline),
            "kept until": moment(entry.expires_at),
            "last error": entry.last_error_code and f"{entry.last_error_code}: {entry.last_error_message}",
            **{f"warning {number}": each for number, each in enumerate(entry.warnings, 1)},
            **{f"label {name}": value for name, value in entry.labels.items()},
        }
    )
    show_attempts(entry.attempts)
    heading("Content")
    show_document(content)
    if entry.result is not None:
        heading("Result")
        show_document(dict(entry.result))


@events.command("list")
def list_(
    status: Annotated[Status | None, typer.Option(help="Only jobs in this state.", show_default=False)] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL=VALUE", help="Only jobs with this label, such as shipmentId=shp_456."),
    ] = None,
    workload: options.Workload = "courier",
    limit: options.Limit = 20,
    cursor: options.Cursor = None,
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """List jobs, newest first."""
    query = EntryQuery(workload=workload, status=status, labels=conditions(where or ()))
    found = asyncio.run(_entries(query, Page(limit, cursor), app, data))
    if json:
        print_json({"items": [_document(*each) for each in found.items], "next": found.next})
        return
    if not found.items:
        say("The ledger has no such job." if status or where else f"The ledger has no job of {workload} yet.")
        return
    rows = (
        (each.key, each.status, each.attempt_count, each.last_error_code or each.note, moment(each.updated_at))
        for each, _ in found.items
    )
    show_table(("key", "status", "attempts", "error or note", "updated"), rows, whole=("status", "updated"))
    if found.next:
        say(f"There are more: --cursor {found.next}")


def show_attempts(attempts: Iterable[Attempt]) -> None:
    """The history of a job's attempts, as a table."""
    rows = [
        (each.attempt, each.outcome, each.error_code, each.error_message, moment(each.started_at), _took(each))
        for each in attempts
    ]
    heading("Attempts")
    if rows:
        show_table(("#", "outcome", "error", "message", "started", "took"), rows, whole=("started", "took"))
    else:
        show_facts({"none": "No worker has claimed it."})


def _took(attempt: Attempt) -> str | None:
    if attempt.finished_at is None:
        return None
    return f"{(attempt.finished_at - attempt.started_at).total_seconds():.3f} s"


def _document(entry: LedgerEntry, content: object) -> dict[str, Any]:
    """The entry as ``GET /v1/jobs/{workload}/{key}`` shows it, and its content."""
    view: dict[str, Any] = JobView.picked(entry).model_dump(mode="json", by_alias=True)
    return {**view, "content": content}


def _content(system: System, entry: LedgerEntry) -> object:
    """The content of the job, as its workload shows it to people."""
    workload = system.workloads.get(entry.workload)
    return readable_body(entry.body) if workload is None else workload.readable(entry.body)


async def _entry(workload: str, key: str, app: str | None, data: Path | None) -> tuple[LedgerEntry, object]:
    async with existing_system(data, app) as system:
        entry = await system.store.entry(workload, key)
        content = None if entry is None else _content(system, entry)
    if entry is None:
        hint = (
            "The key of a courier event is <source>:<eventId>, unless its sender gave another key."
            if workload == "courier"
            else ""
        )
        message = f"The ledger has no {workload} job with the key {key!r}. {hint}".rstrip()
        raise NotFound(message)
    return entry, content


async def _entries(
    query: EntryQuery, page: Page, app: str | None, data: Path | None
) -> Slice[tuple[LedgerEntry, object]]:
    async with existing_system(data, app) as system:
        found = await system.store.find(query, page)
        return Slice([(entry, _content(system, entry)) for entry in found.items], found.next)
