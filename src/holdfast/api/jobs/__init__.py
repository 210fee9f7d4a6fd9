"""``/v1/jobs/{workload}``: the jobs of workloads that have no route of their own.

Operators use them with their token, and tenants with an API key that has the scope. A tenant submits, sees and cancels
its own jobs only. In the ledger, the key of a tenant's job has the tenant's id before it; the tenant sends and sees the
key without this id. So no tenant learns of another's keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Depends

from holdfast.api import ApiOptions, ApiServices
from holdfast.api.frame import FeatureRoutes
from holdfast.api.operators import OperatorGuard
from holdfast.api.routes import Routes
from holdfast.api.tenant_guard import JobGuard, TenantGuard

from .cancelling import add_cancelling
from .lookup import Lookup
from .reading import add_listing, add_reading
from .submitting import add_submitting
from .watching import Watching, add_watching

_ABOUT: Final = (
    "Jobs of your own workloads. Needs the operator token, or an API key with the scope `jobs:write`, `jobs:read` or "
    "`jobs:cancel`, which may be bound to a workload (`jobs:write:invoices`). A tenant sees its own jobs; those of "
    "others count as not found."
)


def job_routes(services: ApiServices, options: ApiOptions, own_routes: Mapping[str, str]) -> FeatureRoutes:
    """Submit one job or many, list, show, wait, watch and cancel.

    ``own_routes``: the workloads that have a route of their own, and for each a sentence that names the route.
    """
    operators = OperatorGuard(options)

    def guarded_by(scope: str | None) -> list[Any]:
        tenants = TenantGuard(services.tenants, services.limits, options.wrong_keys, scope)
        return [Depends(JobGuard(operators, tenants))]

    routes = Routes("jobs", _ABOUT)
    lookup, watching = Lookup(services, own_routes), Watching(services)
    add_listing(routes, services, lookup, guarded_by)
    add_submitting(routes, services, options, lookup, guarded_by("jobs:write"))
    add_watching(routes, watching, lookup, guarded_by("jobs:read"))
    # This path comes last of those with GET: a key may contain "/", and so it would match the others too.
    add_reading(routes, lookup, watching, guarded_by("jobs:read"))
    add_cancelling(routes, services, lookup, guarded_by("jobs:cancel"))
    return FeatureRoutes([routes], leave=watching.stop)
