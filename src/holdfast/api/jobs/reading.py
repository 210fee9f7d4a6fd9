"""Reading jobs: the workloads, lists of jobs, and one job, also after waiting for its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from holdfast.api import ApiServices
from holdfast.api.errors import Code, Refusal
from holdfast.api.filters import MAX_PAGE, Filter, Instant, conditions
from holdfast.api.openapi import refusals
from holdfast.api.routes import Routes
from holdfast.api.tenant_guard import Caller, caller_of
from holdfast.api.views import JobList, JobSummary, JobView, WorkloadList, WorkloadView
from holdfast.contracts.admission import FieldProblem
from holdfast.contracts.entries import OWNER
from holdfast.contracts.ledger import Status
from holdfast.contracts.queries import EntryQuery, Page
from holdfast.contracts.workload import Workload

from .lookup import Key, Lookup, WorkloadName
from .watching import LONGEST_WAIT, Watching

_MOST_LABELS: Final = 5
_LIST: Final = """\
Newest first. All conditions must hold. A label must be one of the workload's `indexed_labels`. A page may have fewer
jobs than `limit`, and still have a `next`."""
_SHOW: Final = f"""\
With `wait`, the answer comes when the job has ended, or when so many seconds are over (at most {LONGEST_WAIT}). Look at
`status`: `processed`, `dead_lettered` and `expired` are ends. 25 such requests count as one open stream of
their tenant.

Tracebacks are for operators: a tenant sees the code and the message of each error. A key that ends with `/events` is
found by the list, with `key=`."""


class JobListing(BaseModel):
    """A filter for jobs, and which page of them to show."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    status: Status | None = None
    label: list[Annotated[str, Field(max_length=500)]] = Field(
        default=[], max_length=_MOST_LABELS, description="`name=value`; may be repeated.", examples=[["customer=ACME"]]
    )
    key: Filter | None = Field(default=None, description="The idempotency key.")
    after: Instant | None = Field(default=None, description="First seen then or later.")
    before: Instant | None = Field(default=None, description="First seen earlier.")
    limit: int = Field(default=50, ge=1, le=MAX_PAGE)
    cursor: Filter | None = Field(default=None, description="The `next` of the page before.")

    def query(self, workload: Workload[Any], caller: Caller) -> EntryQuery:
        """The filter as a query of the ledger. A tenant's query is about its own jobs."""
        labels = conditions("label", self.label)
        if not labels.keys() <= set(workload.indexed_labels):
            raise _not_indexed(workload)
        if caller.owner is not None:
            labels[OWNER] = caller.owner
        return EntryQuery(
            workload=workload.name,
            status=self.status,
            labels=labels,
            key=None if self.key is None else caller.stored_key(self.key),
            seen_after=self.after,
            seen_before=self.before,
        )


def _not_indexed(workload: Workload[Any]) -> Refusal:
    names = ", ".join(workload.indexed_labels) or "none"
    problem = f"must be one of the workload's indexed_labels: {names}"
    return Refusal(Code.NOT_INDEXED, details=[FieldProblem("label", problem)])


def add_listing(
    routes: Routes, services: ApiServices, lookup: Lookup, guarded_by: Callable[[str | None], list[Any]]
) -> None:
    """Add the routes that list workloads and jobs."""

    @routes.get("/v1/workloads", dependencies=guarded_by(None), summary="List the workloads that you may use")
    async def list_workloads(request: Request) -> WorkloadList:
        return WorkloadList(
            items=[
                WorkloadView(
                    name=each.name,
                    queue=each.queue,
                    contract=each.contract.model_json_schema(),
                    indexed_labels=list(each.indexed_labels),
                    own_route=own_route,
                )
                for each, own_route in lookup.workloads(caller_of(request))
            ]
        )

    @routes.get(
        "/v1/jobs/{workload}",
        dependencies=guarded_by("jobs:read"),
        summary="List jobs",
        description=_LIST,
        responses=refusals(Code.NOT_INDEXED),
    )
    async def list_jobs(request: Request, workload: WorkloadName, listing: Annotated[JobListing, Query()]) -> JobList:
        caller = caller_of(request)
        query = listing.query(lookup.workload(workload, caller), caller)
        found = await services.store.find(query, Page(listing.limit, listing.cursor))
        own = [each for each in found.items if caller.owns(each)]
        return JobList(items=[JobSummary.of(each, caller.shown_key(each.key)) for each in own], next=found.next)


def add_reading(routes: Routes, lookup: Lookup, watching: Watching, guarded: list[Any]) -> None:
    """Add the route that shows one job."""

    @routes.get(
        "/v1/jobs/{workload}/{key:path}",
        dependencies=guarded,
        summary="Show a job: its state, attempts and result",
        description=_SHOW,
        responses=refusals(Code.TOO_MANY_REQUESTS, Code.TOO_MANY_STREAMS),
    )
    async def show_job(
        request: Request,
        workload: WorkloadName,
        key: Key,
        wait: Annotated[
            float,
            Query(ge=0, le=LONGEST_WAIT, allow_inf_nan=False, description="Seconds to wait for the end of the job."),
        ] = 0,
    ) -> JobView:
        caller = caller_of(request)
        target, entry = await lookup.entry(workload, key, caller)
        if wait and not entry.status.terminal:
            await watching.until_ended(request, caller, entry, wait)
            target, entry = await lookup.entry(workload, key, caller)
        return JobView.of(
            entry,
            key,
            payload=target.readable(entry.body),
            dead_letters=await lookup.dead_letters(entry),
            tracebacks=caller.tenant is None,
        )
