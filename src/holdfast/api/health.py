"""``GET /health`` and ``GET /ready``: for load balancers and people in a hurry. Neither needs a token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from fastapi import APIRouter, Response

from holdfast import __version__
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable

from .services import ApiServices
from .views import HealthView, ReadinessView

_PATIENCE_SECONDS: Final = 5.0


def health_routes(services: ApiServices) -> APIRouter:
    """The two routes."""
    routes = APIRouter(tags=["health"])

    @routes.get("/health", summary="Is the process alive?")
    async def health() -> HealthView:
        return HealthView(version=__version__)

    # Some load balancers ask with HEAD; the description of GET covers it.
    routes.head("/health", include_in_schema=False)(health)

    @routes.get(
        "/ready",
        summary="Can it accept work?",
        responses={503: {"model": ReadinessView, "description": "The ledger cannot commit: nothing can be accepted."}},
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
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await ping()
    except (StoreUnavailable, BrokerUnavailable, TimeoutError):
        return "unavailable"
    return "ok"
