"""``documents``: read a file, submit files, and see their status."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import typer

from holdfast import Page, RecordQuery
from holdfast.feature import FileMissing, Services
from holdfast.features.documents.feature import DocumentService, DocumentsFeature
from holdfast.features.documents.job_records import result_object
from holdfast.features.documents.records import JOBS, RESULTS, DocumentStatus
from holdfast.features.documents.views import DocumentView
from holdfast.terminal import (
    REFUSED,
    Stop,
    find_records,
    moment,
    open_feature,
    options,
    print_json,
    require_item,
    say,
    show_facts,
    show_item,
    show_list,
)
from holdfast.views import AttemptView

from .options import pages, print_content
from .run import run
from .submit import submit

documents = typer.Typer(
    help="Read a file; submit files; see their status; cancel.", no_args_is_help=True, add_completion=False
)
documents.command("run")(run)
documents.command("submit")(submit)

JobId = Annotated[str, typer.Argument(metavar="JOB_ID", help="The job.", show_default=False)]
Owner = Annotated[
    str | None,
    typer.Option("--tenant", metavar="TENANT", help="Whose job it is, by id or name.", show_default=False),
]
_TEXT = "text.txt"
_MOST_OWNERS = 200
_SHOWN_ABOVE = frozenset({"job_id", "status", "error", "warnings", "cached"})


@documents.command("list")
async def list_(
    tenant: options.Tenant = None,
    status: Annotated[
        DocumentStatus | None, typer.Option(help="Only jobs with this status.", show_default=False)
    ] = None,
    limit: options.Limit = 20,
    cursor: options.Cursor = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """List jobs, newest first."""
    async with open_feature(DocumentsFeature.name, DocumentService, data) as parts:
        found = await find_records(
            parts.services,
            JOBS,
            Page(limit, cursor),
            newest_by="accepted_at",
            owner="company_id",
            tenant=tenant,
            status=status,
        )
    empty = "There is no such job." if tenant or status else "There are no documents yet."
    show_list(found, _row, _document, json=json, whole=("id", "status", "accepted"), empty=empty)


@documents.command("show")
async def show(job_id: JobId, tenant: Owner = None, data: options.Data = None, json: options.Json = False) -> None:
    """Show one job: its status, every attempt, its result, and the job that it replays."""
    async with open_feature(DocumentsFeature.name, DocumentService, data) as parts:
        store = parts.services.store
        record = await _record(parts.services, job_id, tenant)
        stored = await store.get(RESULTS, record["job_id"])
        entry = await store.entry(parts.workload.name, record["job_id"])
    result = None if stored is None else result_object(stored)
    attempts = () if entry is None else entry.attempts
    history = [AttemptView.picked(each).model_dump(mode="json", by_alias=False) for each in attempts]
    view = DocumentView.of(record)
    error = record.get("error")
    sections = {}
    if result is not None and view.status is DocumentStatus.COMPLETED:
        rest = {name: value for name, value in result.items() if name not in _SHOWN_ABOVE}
        sections["Result"] = partial(show_facts, rest)
    show_item(
        {**_document(record), "result": result, "attempt_history": history},
        {
            "id": view.job_id,
            "key": record["job_id"] if record["job_id"] != view.job_id else None,
            "status": f"{view.status}{' (asked to stop)' * (view.cancel_requested and not view.status.final)}",
            "stage": view.stage,
            "progress": _progress(view),
            "job": f"{view.job_type} of {view.input_type}",
            "tenant": record.get("company_id"),
            "file": view.filename,
            "engine": view.engine,
            "language": view.language,
            "metadata": view.metadata and json_module.dumps(view.metadata, ensure_ascii=False),
            "attempts": f"{view.attempts} of {view.max_attempts or '?'}",
            "error": error and f"{error['message']} ({error['code']}, {error['error_type']})",
            "detail": error and error.get("detail"),
            "warnings": " ".join(view.warnings) or None,
            "from an earlier result": "yes" if view.cached else None,
            "replay of": view.replay_of,
            "replayed as": view.replayed_as,
            "accepted": moment(view.accepted_at),
            "started": moment(view.started_at),
            "finished": moment(view.finished_at),
            "deleted after": moment(view.expires_at),
        },
        json=json,
        attempts=None if entry is None else entry.attempts,
        sections=sections,
    )


@documents.command("text")
async def text(job_id: JobId, tenant: Owner = None, data: options.Data = None) -> None:
    """Print the text of a COMPLETED job on standard output. Any other job has no text: exit code 1."""
    async with open_feature(DocumentsFeature.name, DocumentService, data) as parts:
        record = await _record(parts.services, job_id, tenant)
        status = DocumentStatus(record["status"])
        if status is not DocumentStatus.COMPLETED:
            message = f"The job is {status.value}: there is no text{'' if status.final else ' yet'}."
            raise Stop(message, code=REFUSED)
        result = await parts.services.store.get(RESULTS, record["job_id"])
        try:
            content = await parts.admission.output(result or {}, _TEXT)
        except FileMissing:
            message = "The files of this result are deleted."
            raise Stop(message, code=REFUSED) from None
    print_content(content)


@documents.command("cancel")
async def cancel(job_id: JobId, tenant: Owner = None, data: options.Data = None, json: options.Json = False) -> None:
    """Cancel a job that waits, or ask the worker to stop a job in progress.

    A job that has ended does not change: exit code 1.
    """
    async with open_feature(DocumentsFeature.name, DocumentService, data) as parts:
        record = await _record(parts.services, job_id, tenant)
        status = DocumentStatus(record["status"])
        if not status.final:
            await parts.services.cancellation.cancel(parts.workload, record["job_id"])
            status = DocumentStatus((await _record(parts.services, record["job_id"]))["status"])
    asked = not status.final
    if json:
        print_json({"job_id": job_id, "status": status.value, "cancel_requested": asked})
    if asked:
        done = f"{job_id} is in progress, and will stop soon."
    elif status is DocumentStatus.CANCELLED:
        done = f"{job_id} will not be read."
    else:
        message = f"The job is {status.value}: it has ended."
        raise Stop(message, code=REFUSED)
    if not json:
        say(done)


def _row(record: Mapping[str, Any]) -> dict[str, object]:
    view = DocumentView.of(record)
    return {
        "id": view.job_id,
        "status": view.status,
        "input": view.input_type,
        "file": view.filename,
        "progress": f"{view.progress:.0f} %",
        "attempts": view.attempts,
        "error": view.error and view.error.code,
        "accepted": moment(view.accepted_at),
    }


def _document(record: Mapping[str, Any]) -> dict[str, Any]:
    """The job as in ``GET /v1/documents/{job_id}``, with fields for operators only: tenant and error detail."""
    view = DocumentView.of(record).model_dump(mode="json")
    return {**view, "company_id": record.get("company_id"), "error": record.get("error")}


def _progress(view: DocumentView) -> str:
    percent = f"{view.progress:.0f} %"
    if view.pages is not None:
        return f"{percent}, {pages(view.pages_done or 0, view.pages)}"
    if view.chunks is not None:
        return f"{percent}, {view.chunks_done} of {view.chunks} chunks of sound"
    return percent


async def _record(services: Services, job_id: str, tenant: str | None = None) -> Mapping[str, Any]:
    """The job with this key, or with this id of a tenant. Each tenant may have a job of that id."""
    by_key = await services.store.get(JOBS, job_id)
    same_id = RecordQuery(collection=JOBS, where={"given_id": job_id})
    found = [
        *([] if by_key is None else [by_key]),
        *(await services.store.find_records(same_id, Page(_MOST_OWNERS))).items,
    ]
    if tenant is not None:
        company_id = (await services.tenants.named(tenant)).company_id
        found = [each for each in found if each.get("company_id") == company_id]
    if len(found) > 1:
        message = "Several tenants have a job with this id: add --tenant."
        raise Stop(message)
    return require_item(found[0] if found else None, "job", "holdfast documents list")
