"""What the API gives to the routes of a feature, and what it gets from them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Depends

from holdfast.feature import Services

from .operators import OperatorGuard
from .reading import Receive, Scope, Send
from .services import ApiOptions
from .tenant_guard import TenantGuard


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A plain ASGI callable that answers one path by itself, for a route that must be fast.

    It is called before any routing: it limits and reads the body, answers errors, and sends ``x-request-id``.
    ``operation`` describes it in the API's documentation, as an OpenAPI path item.
    """

    app: Callable[[Scope, Receive, Send], Awaitable[None]]
    operation: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes of a feature. ``leave`` is called when the process is about to stop: end long answers then."""

    routers: Sequence[APIRouter] = ()
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
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
    routes: Routes | None = None
    paths: Sequence[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    refusal: str = ""
