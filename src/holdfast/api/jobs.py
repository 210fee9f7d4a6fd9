"""``/v1/jobs/{workload}``: the intake of workloads that have no route of their own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request

from holdfast.contracts.errors import HoldfastError, NotFound
from holdfast.contracts.ledger import RecordedAs
from holdfast.contracts.workload import Workload

from . import ApiOptions, ApiServices
from .errors import Code, Refusal, intake_refusal_of
from .openapi import INTAKE_CODES, refusals
from .routes import JSON_TYPE, Routes, read_model, unread_body
from .views import JobReceipt, JobView

_MAX_DELAY_MS: Final = 365 * 24 * 60 * 60 * 1000
_MAX_PRIORITY: Final = 2**21  # BullMQ's own limit

WorkloadName = Annotated[str, Path(description="The workload's name.")]


def job_routes(services: ApiServices, options: ApiOptions, own_routes: Mapping[str, str]) -> Routes:
    """Submit a job of a workload, and read the state of its jobs.

    ``own_routes``: the workloads that have a route of their own, and for each a sentence that names the route.
    """
    routes = Routes("jobs", "Jobs of other workloads. Needs the operator token.")
    others = [each for name, each in services.workloads.items() if name not in own_routes]
    contracts = tuple(dict.fromkeys(each.contract for each in others))
    workload_path = Path(
        description="The workload's name.",
        json_schema_extra={"enum": [each.name for each in others]} if others else None,
    )

    def find_workload(name: str) -> Workload[Any]:
        found = services.workloads.get(name)
        if found is None:
            raise Refusal(Code.NOT_FOUND, f"There is no such workload here. Known: {', '.join(services.workloads)}.")
        return found

    @routes.post(
        "/v1/jobs/{workload}",
        status_code=202,
        summary="Submit a job",
        description="The body is a job that matches the workload's contract. The workload makes the idempotency key "
        "from the job. It is safe to send the same body again.",
        responses=refusals(*INTAKE_CODES),
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
        request: Request = unread_body({JSON_TYPE: contracts}),
    ) -> JobReceipt:
        if workload in own_routes:
            raise Refusal(Code.NOT_FOUND, own_routes[workload])
        target = find_workload(workload)
        data = await read_model(request, target.contract, options.max_body_bytes)
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
        entry = await services.store.entry(find_workload(workload).name, key)
        if entry is None:
            raise NotFound
        return JobView.picked(entry)

    return routes
