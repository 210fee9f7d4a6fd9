"""``POST /v1/jobs/{workload}/{key}/cancel``."""

from __future__ import annotations

from typing import Any, Final, Literal

from fastapi import Request

from holdfast.api import ApiServices
from holdfast.api.errors import Code, Refusal
from holdfast.api.openapi import refusals
from holdfast.api.routes import Routes
from holdfast.api.tenant_guard import caller_of
from holdfast.api.views import JobCancel
from holdfast.contracts.admission import FieldProblem
from holdfast.contracts.ledger import Cancelled, LedgerEntry, Status
from holdfast.contracts.transitions import CANCELLED

from .lookup import Key, Lookup, WorkloadName

_ABOUT: Final = """\
A job that waits will not run: it ends as `expired`. A job in work is asked to stop, if its workload allows that. A job
that has ended, or is in work and cannot be stopped, is answered with 409 and its status. Cancelling twice gives the
same answer as once."""


def add_cancelling(routes: Routes, services: ApiServices, lookup: Lookup, guarded: list[Any]) -> None:
    """Add the route."""

    @routes.post(
        "/v1/jobs/{workload}/{key:path}/cancel",
        status_code=202,
        dependencies=guarded,
        summary="Cancel a job",
        description=_ABOUT,
        responses=refusals(Code.TOO_LATE),
    )
    async def cancel_job(request: Request, workload: WorkloadName, key: Key) -> JobCancel:
        caller = caller_of(request)
        target, entry = await lookup.entry(workload, key, caller)
        state: Literal["cancelled", "stopping"] = "cancelled"
        match await services.cancellation.cancel(target, entry.key):
            case Cancelled.STOPS:
                state = "stopping"
            case Cancelled.TOO_LATE:
                _, entry = await lookup.entry(workload, key, caller)
                if not _was_cancelled(entry):
                    raise Refusal(Code.TOO_LATE, details=[FieldProblem("status", entry.status.value)])
        return JobCancel(workload=target.name, key=key, state=state)


def _was_cancelled(entry: LedgerEntry) -> bool:
    return entry.status is Status.EXPIRED and entry.note == CANCELLED
