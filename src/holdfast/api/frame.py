"""What the API gives to the routes of a feature, and what it gets from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import Depends

from holdfast.feature import Services

from .operators import OperatorGuard
from .routes import AsgiRoute, Routes
from .services import ApiOptions
from .tenant_guard import TenantGuard


@dataclass(frozen=True, slots=True)
class FeatureRoutes:
    """The routes of a feature: groups of routes, and single paths that answer without FastAPI.

    ``leave`` is called when the process is about to stop: end long answers then.
    """

    groups: Sequence[Routes] = ()
    direct: Sequence[AsgiRoute] = ()
    leave: Callable[[], None] | None = None


class Frame:
    """What the API gives to the routes of a feature."""

    def __init__(self, services: Services, options: ApiOptions) -> None:
        self.services = services
        self.max_body_bytes = options.max_body_bytes
        """The size of the largest body of a request, unless a route has its own limit."""
        self._operators = OperatorGuard(options)

    def operators_only(self) -> Any:  # noqa: ANN401 - what fastapi's Depends returns
        """A dependency of a route: only requests with the operator token pass."""
        return Depends(self._operators)

    def tenants_only(self, scope: str) -> Any:  # noqa: ANN401 - what fastapi's Depends returns
        """A dependency of a route: only requests with a tenant's key for this scope pass. See :func:`tenant_of`."""
        return Depends(TenantGuard(self.services.tenants, scope))


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureApi:
    """A feature as the API sees it. Without routes, its paths answer with ``refusal``: why it is not set up."""

    intakes: Mapping[str, str] = field(default_factory=dict)
    routes: FeatureRoutes | None = None
    paths: Sequence[str] = ()
    refusal: str = ""
