"""``GET /health`` and ``GET /ready``, for load balancers. Neither needs a token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from fastapi import Response

from holdfast import __version__
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable

from . import ApiServices
from .routes import Routes
from .views import HealthView, ReadinessView

_TIMEOUT_SECONDS: Final = 5.0


def health_routes(services: ApiServices) -> Routes:
    """The two routes."""
    routes = Routes("health", "For load balancers.")

    @routes.get("/health", summary="Is the process running?")
    async def health() -> HealthView:
        return HealthView(version=__version__)

    # Some load balancers use HEAD. The documentation of GET covers HEAD too.
    routes.head("/health", include_in_schema=False)(health)

    @routes.get(
        "/ready",
        summary="Can the gateway accept jobs?",
        responses={503: {"model": ReadinessView, "description": "The ledger cannot commit: no job can be accepted."}},
    )
    async def ready(response: Response) -> ReadinessView:
        store, queue = await asyncio.gather(_state(services.store.ping), _state(services.broker.ping))
        if store != "ok":
            response.status_code = 503
        return ReadinessView(ready=store == "ok", store=store, queue=queue)

    routes.head("/ready", include_in_schema=False)(ready)
    return routes


async def _state(ping: Callable[[], Awaitable[None]]) -> Literal["ok", "unavailable"]:
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            await ping()
    except (StoreUnavailable, BrokerUnavailable, TimeoutError):
        return "unavailable"
    return "ok"
