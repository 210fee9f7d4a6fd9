"""``events``: jobs as the ledger has them."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from holdfast.api.views import JobView
from holdfast.contracts.errors import NotFound
from holdfast.contracts.ledger import LedgerEntry, Status
from holdfast.contracts.queries import EntryQuery, Page, Slice
from holdfast.contracts.workload import readable_body
from holdfast.wiring import System

from . import options
from .opening import existing_system
from .options import conditions
from .output import moment, show_document, show_item, show_list

events = typer.Typer(help="Look jobs up in the ledger.", no_args_is_help=True, add_completion=False)


@events.command("show")
async def show(
    key: Annotated[str, typer.Argument(help="The idempotency key, such as courier-x:evt_123.", show_default=False)],
    workload: options.Workload = "courier",
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Show one job: its state, every attempt, and its content."""
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
    waiting = entry.not_before if entry.status is Status.FAILED else None
    sections = {"Content": content} if entry.result is None else {"Content": content, "Result": dict(entry.result)}
    show_item(
        _document((entry, content)),
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
        },
        json=json,
        attempts=entry.attempts,
        sections={title: partial(show_document, each) for title, each in sections.items()},
    )


@events.command("list")
async def list_(
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
    async with existing_system(data, app) as system:
        page = await system.store.find(query, Page(limit, cursor))
        found = Slice([(entry, _content(system, entry)) for entry in page.items], page.next)
    empty = "The ledger has no such job." if status or where else f"The ledger has no job of {workload} yet."
    show_list(found, _row, _document, json=json, whole=("status", "updated"), empty=empty)


def _row(job: tuple[LedgerEntry, object]) -> dict[str, object]:
    entry, _ = job
    return {
        "key": entry.key,
        "status": entry.status,
        "attempts": entry.attempt_count,
        "error or note": entry.last_error_code or entry.note,
        "updated": moment(entry.updated_at),
    }


def _document(job: tuple[LedgerEntry, object]) -> dict[str, object]:
    """The entry as ``GET /v1/jobs/{workload}/{key}`` shows it, and its content."""
    entry, content = job
    return {**JobView.picked(entry).as_json(), "content": content}


def _content(system: System, entry: LedgerEntry) -> object:
    """The content of the job, as its workload shows it to people."""
    workload = system.workloads.get(entry.workload)
    return readable_body(entry.body) if workload is None else workload.readable(entry.body)
