"""``POST /v1/jobs/{workload}``: one job, or up to 500 of them, each with its own answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool

from holdfast.api import ApiOptions, ApiServices, strict_json
from holdfast.api.asgi import TRACE, read_json_bytes, refusal_of_any
from holdfast.api.batches import batch_response
from holdfast.api.errors import Code, Refusal, field_problems, intake_refusal_of
from holdfast.api.openapi import INTAKE_CODES, refusals
from holdfast.api.routes import JSON_TYPE, Routes, unread_body
from holdfast.api.tenant_guard import Caller, caller_of
from holdfast.api.views import JobBatch, JobReceipt, due_at
from holdfast.contracts.admission import FieldProblem
from holdfast.contracts.errors import HoldfastError, NewerVersion
from holdfast.contracts.ledger import RecordedAs
from holdfast.contracts.tracing import TRACE_ID
from holdfast.contracts.workload import VERSION_FIELD, Workload

from .lookup import Lookup

MAX_BATCH: Final = 500
_MAX_DELAY_MS: Final = 365 * 24 * 60 * 60 * 1000
_MAX_PRIORITY: Final = 2**21  # BullMQ's own limit
_BATCH_BODIES: Final = 16
"""A batch may have so many times the bytes of one job."""
_MOST_BATCH_VALUES: Final = MAX_BATCH * 100
_LARGE: Final = 64 * 1024
_VERSION: Final = f'"{VERSION_FIELD}"'.encode()
_ABOUT: Final = f"""\
The body is a job that matches the workload's contract, or a list of 1 to {MAX_BATCH} jobs. The workload makes the
idempotency key from the job. It is safe to send the same body again: a duplicate gets the first receipt.

Each job of a list is accepted or refused on its own, as if it had been sent alone: the answer is a 207 with one answer
for each job, in the order of the request.

The job keeps your `x-request-id` and your `traceparent`."""


def add_submitting(
    routes: Routes, services: ApiServices, options: ApiOptions, lookup: Lookup, guarded: list[Any]
) -> None:
    """Add the route."""
    submission = _Submission(services)
    others = lookup.to_submit
    contracts = tuple(dict.fromkeys(each.contract for each in others))
    workload_path = Path(
        description="The workload's name.",
        json_schema_extra={"enum": [each.name for each in others]} if others else None,
    )

    @routes.post(
        "/v1/jobs/{workload}",
        status_code=202,
        response_model=JobReceipt,
        dependencies=guarded,
        summary="Submit a job, or many",
        description=_ABOUT,
        responses={
            207: {"model": JobBatch, "description": "The body was a list: one answer for each job."},
            **refusals(*INTAKE_CODES, Code.INVALID_DELAY),
        },
    )
    async def submit(
        workload: str = workload_path,
        delay_ms: Annotated[
            int,
            Query(
                alias="delayMs", ge=0, le=_MAX_DELAY_MS, description="Milliseconds to wait before the first attempt."
            ),
        ] = 0,
        priority: Annotated[
            int, Query(ge=0, le=_MAX_PRIORITY, description="A smaller number goes first; 0 goes before all.")
        ] = 0,
        request: Request = unread_body({JSON_TYPE: contracts}, most_items=MAX_BATCH),
    ) -> Response | JobReceipt:
        caller = caller_of(request)
        target = lookup.workload_to_submit(workload, caller)
        jobs = await _read(request, target, options.max_body_bytes)
        delay = timedelta(milliseconds=delay_ms)
        if isinstance(jobs, list):
            trace_id = request.scope[TRACE]
            results = await submission.accept_all(target, jobs, caller, priority, delay, trace_id)
            return await batch_response(JobBatch, results, trace_id)
        try:
            return await submission.accept(target, jobs, caller, priority, delay)
        except HoldfastError as error:
            raise intake_refusal_of(error) from error


async def _read(request: Request, workload: Workload[Any], limit: int) -> BaseModel | list[BaseModel | Refusal]:
    """The job in the body; or those of a list, each with what is wrong with it instead of the job."""
    raw = await read_json_bytes(request.scope["headers"], request.receive, limit * _BATCH_BODIES)
    read = _batch_of if raw.lstrip(b" \t\r\n").startswith(b"[") else _job_of
    if len(raw) <= _LARGE:
        return read(raw, workload, limit)
    return await run_in_threadpool(read, raw, workload, limit)  # the other requests go on


def _job_of(raw: bytes, workload: Workload[Any], limit: int) -> BaseModel:
    if len(raw) > limit:
        raise Refusal(Code.PAYLOAD_TOO_LARGE, f"The body is larger than {limit} bytes.")
    strict_json.parse(raw)
    return _validated(raw, workload)


def _batch_of(raw: bytes, workload: Workload[Any], limit: int) -> list[BaseModel | Refusal]:
    items = strict_json.parse(raw, _MOST_BATCH_VALUES)
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_BATCH:
        raise Refusal(Code.INVALID_PAYLOAD, f"A list has 1 to {MAX_BATCH} jobs.")
    return [_item_of(item, workload, limit) for item in items]


def _item_of(item: object, workload: Workload[Any], limit: int) -> BaseModel | Refusal:
    text = json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()
    if len(text) > limit:
        return Refusal(Code.PAYLOAD_TOO_LARGE, f"The job is larger than {limit} bytes.")
    try:
        return _validated(text, workload)
    except Refusal as refusal:
        return refusal


def _validated(raw: bytes, workload: Workload[Any]) -> BaseModel:
    """The job as an instance of its contract. The refusal names the fields that are wrong.

    A body that names its version is brought to the version of today. Without a version it is of today.
    """
    try:
        found: BaseModel = workload.read(raw) if _VERSION in raw else workload.contract.model_validate_json(raw)
    except ValidationError as error:
        details = field_problems(error.errors(include_url=False))
    except NewerVersion:
        details = [FieldProblem(VERSION_FIELD, f"must be at most {workload.version}")]
    except Exception:  # noqa: BLE001 - the workload's own code, on what a sender wrote
        details = [FieldProblem(VERSION_FIELD, "names a version whose content this is not")]
    else:
        return found
    raise Refusal(Code.INVALID_PAYLOAD, details=details)


class _Submission:
    """Records jobs for their callers. The jobs of a list share commits."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services

    async def accept(
        self, workload: Workload[Any], data: BaseModel, caller: Caller, priority: int, delay: timedelta
    ) -> JobReceipt:
        """Record the job. Raises a refusal for a key that another job has."""
        receipt = await self._services.intake.accept(
            workload, data, priority=priority, delay=delay, sender=caller.sender, owner=caller.owner
        )
        if receipt.recorded_as is RecordedAs.CONFLICT:
            raise Refusal(Code.IDEMPOTENCY_CONFLICT)
        due = receipt.due_at
        if receipt.duplicate and delay:  # as the first receipt said
            entry = await self._services.store.entry(workload.name, receipt.key)
            due = None if entry is None else due_at(entry)
        return JobReceipt(
            workload=workload.name,
            key=caller.shown_key(receipt.key),
            job_id=receipt.job_id,
            queued=receipt.queued,
            duplicate=receipt.duplicate,
            received_at=receipt.received_at,
            due_at=due,
            trace_id=receipt.labels.get(TRACE_ID),
        )

    async def accept_all(  # noqa: PLR0917 - jobs, and how they are submitted
        self,
        workload: Workload[Any],
        jobs: Sequence[BaseModel | Refusal],
        caller: Caller,
        priority: int,
        delay: timedelta,
        trace_id: str,
    ) -> list[JobReceipt | Refusal]:
        """One answer for each job, in order. A job that is refused does not affect the others."""
        if caller.sender is not None:
            # The request was counted as one. Its jobs count like as many requests.
            self._services.limits.count_more(caller.sender, len(jobs) - 1)

        async def accept_one(job: BaseModel | Refusal) -> JobReceipt | Refusal:
            if isinstance(job, Refusal):
                return job
            try:
                return await self.accept(workload, job, caller, priority, delay)
            except Exception as error:  # noqa: BLE001 - the outermost frame of one job: every error gets an answer
                return refusal_of_any(error, trace_id)

        return await asyncio.gather(*map(accept_one, jobs))
