"""Finding the workload and the job that a caller names, among those that the caller may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Path

from holdfast.api import ApiServices
from holdfast.api.errors import Code, Refusal
from holdfast.api.tenant_guard import Caller
from holdfast.contracts.errors import NotFound
from holdfast.contracts.ledger import LedgerEntry
from holdfast.contracts.queries import LetterQuery, Page
from holdfast.contracts.tenants import JOB_SCOPES
from holdfast.contracts.workload import Workload

_LETTERS: Final = 100
"""The most dead letters of one job that are shown."""

WorkloadName = Annotated[str, Path(description="The workload's name.", examples=["invoices"])]
Key = Annotated[str, Path(description="The job's idempotency key. It may contain `/`.", examples=["invoice-7"])]


class Lookup:
    """The workloads and jobs of a process, as each caller sees them."""

    def __init__(self, services: ApiServices, own_routes: Mapping[str, str]) -> None:
        self._services = services
        self._own_routes = own_routes

    @property
    def to_submit(self) -> list[Workload[Any]]:
        """The workloads whose jobs are submitted here."""
        return [each for name, each in self._services.workloads.items() if name not in self._own_routes]

    def workloads(self, caller: Caller) -> list[tuple[Workload[Any], str | None]]:
        """The workloads that this caller may use, each with the sentence about its own route, where it has one."""
        return [
            (each, self._own_routes.get(name))
            for name, each in self._services.workloads.items()
            if caller.tenant is None or self._may_use(caller, name)
        ]

    def workload(self, name: str, caller: Caller) -> Workload[Any]:
        """The workload with this name.

        Tenants use those that no feature brought, because a feature has routes of its own, and no schedules.
        """
        found = self._services.workloads.get(name)
        if found is not None and (caller.tenant is None or self._open_to_tenants(name)):
            return found
        if name in self._own_routes:
            raise Refusal(Code.NOT_FOUND, self._own_routes[name])
        known = ", ".join(each.name for each, _ in self.workloads(caller)) or "none"
        raise Refusal(Code.NOT_FOUND, f"There is no such workload here. Known: {known}.")

    def workload_to_submit(self, name: str, caller: Caller) -> Workload[Any]:
        """The same for a new job: a workload with a route of its own takes its jobs there, also from operators."""
        if name in self._own_routes:
            raise Refusal(Code.NOT_FOUND, self._own_routes[name])
        return self.workload(name, caller)

    async def entry(self, workload: str, key: str, caller: Caller) -> tuple[Workload[Any], LedgerEntry]:
        """The workload and the job. A job of another tenant counts as not found."""
        found = self.workload(workload, caller)
        entry = await self._services.store.entry(found.name, caller.stored_key(key))
        if entry is None or not caller.owns(entry):
            raise NotFound
        return found, entry

    async def dead_letters(self, entry: LedgerEntry) -> list[str]:
        """The ids of the job's dead letters, newest last."""
        found = await self._services.store.letters(LetterQuery(workload=entry.workload, key=entry.key), Page(_LETTERS))
        return [each.id for each in found.items]

    def _open_to_tenants(self, name: str) -> bool:
        return name in self._services.own_workloads and self._services.workloads[name].schedule is None

    def _may_use(self, caller: Caller, name: str) -> bool:
        return self._open_to_tenants(name) and any(
            caller.tenant is not None and caller.tenant.may(scope, name) for scope in JOB_SCOPES
        )
