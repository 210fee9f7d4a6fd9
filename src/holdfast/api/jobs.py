"""``/v1/jobs/{workload}``: the door for workloads that have none of their own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request

from holdfast.contracts.errors import HoldfastError, NotFound
from holdfast.contracts.ledger import RecordedAs
from holdfast.contracts.workload import Workload

from .documents import DOCUMENTS_PATH
from .email import SEND_PATH
from .errors import Code, Refusal, intake_refusal_of
from .intake import COURIER_PATH
from .operators import fulfil, read_raw_json
from .services import ApiOptions, ApiServices
from .views import JobReceipt, JobView

_MAX_DELAY_MS: Final = 365 * 24 * 60 * 60 * 1000
_MAX_PRIORITY: Final = 2**21  # BullMQ's own limit

WorkloadName = Annotated[str, Path(description="The workload's name.")]


def job_routes(services: ApiServices, options: ApiOptions) -> APIRouter:
    """Intake by a workload's contract, and the state of its jobs."""
    routes = APIRouter(tags=["jobs"])
    elsewhere = dict(_own_routes(services))

    def known(name: str) -> Workload[Any]:
        found = services.workloads.get(name)
        if found is None:
            raise Refusal(Code.NOT_FOUND, f"There is no such workload here. Known: {', '.join(services.workloads)}.")
        return found

    @routes.post(
        "/v1/jobs/{workload}",
        status_code=202,
        summary="Hand in a job",
        description="The body is a job in the workload's contract. The workload's own key decides what is a "
        "duplicate; the same body may safely be sent again.",
    )
    async def submit(
        request: Request,
        workload: WorkloadName,
        delay_ms: Annotated[int, Query(alias="delayMs", ge=0, le=_MAX_DELAY_MS, description="Start no earlier.")] = 0,
        priority: Annotated[int, Query(ge=0, le=_MAX_PRIORITY, description="Smaller goes first, 0 before all.")] = 0,
    ) -> JobReceipt:
        if workload in elsewhere:
            raise Refusal(Code.NOT_FOUND, elsewhere[workload])
        target = known(workload)
        raw = await read_raw_json(request, options.max_body_bytes)
        data = fulfil(target.contract, raw)
        try:
            receipt = await services.intake.accept(
                target,
                data,
                priority=priority,
                delay=timedelta(milliseconds=delay_ms),
            )
        except HoldfastError as error:
            raise intake_refusal_of(error) from error
        if receipt.recorded_as is RecordedAs.CONFLICT:
            raise Refusal(Code.IDEMPOTENCY_CONFLICT)
        return JobReceipt(
            workload=target.name,
            key=receipt.key,
            job_id=receipt.job_id,
            queued=receipt.queued,
            duplicate=receipt.recorded_as is RecordedAs.DUPLICATE,
            received_at=receipt.received_at,
        )

    @routes.get("/v1/jobs/{workload}/{key:path}", summary="State and attempt history of a job")
    async def show_job(workload: WorkloadName, key: Annotated[str, Path()]) -> JobView:
        entry = await services.store.entry(known(workload).name, key)
        if entry is None:
            raise NotFound
        return JobView.of(entry)

    return routes


def _own_routes(services: ApiServices) -> Iterator[tuple[str, str]]:
    """The workloads that have a door of their own, and where it is."""
    if services.courier is not None:
        yield services.courier.workload.name, f"Courier events have a signed door of their own: POST {COURIER_PATH}."
    if services.email is not None:
        yield services.email.admission.workload.name, f"Emails have a door of their own, for tenants: POST {SEND_PATH}."
    if services.documents is not None:
        message = f"Files have a door of their own, for tenants: POST {DOCUMENTS_PATH}."
        yield services.documents.admission.workload.name, message
