"""What the API gives to the routes of a feature, and what it gets from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from fastapi import Depends
from pydantic import BaseModel

from holdfast.contracts.effects import Effect
from holdfast.contracts.errors import HoldfastError
from holdfast.contracts.ledger import RecordedAs
from holdfast.contracts.tenants import Sender
from holdfast.contracts.workload import Workload
from holdfast.feature import Receipt, Services

from . import ApiOptions
from .errors import Code, Refusal, intake_refusal_of
from .operators import OperatorGuard
from .routes import AsgiRoute, Routes
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
        self._wrong_keys = options.wrong_keys
        self._operators = OperatorGuard(options)

    def operators_only(self) -> Any:  # noqa: ANN401 - what fastapi's Depends returns
        """A dependency of a route: only requests with the operator token pass."""
        return Depends(self._operators)

    def tenants_only(self, scope: str) -> Any:  # noqa: ANN401 - what fastapi's Depends returns
        """A dependency of a route: only requests with a tenant's key for this scope pass. See :func:`tenant_of`."""
        return Depends(TenantGuard(self.services.tenants, self.services.limits, self._wrong_keys, scope))

    async def accept(
        self,
        workload: Workload[Any],
        data: BaseModel,
        *,
        priority: int = 0,
        delay: timedelta = timedelta(0),
        effects: Sequence[Effect] = (),
        sender: Sender | None = None,
    ) -> Receipt:
        """Record a job and publish it, as :meth:`Intake.accept`. The request is refused if that is not possible now.

        It is refused too if its key belongs to a job with another content.
        """
        try:
            receipt = await self.services.intake.accept(
                workload, data, priority=priority, delay=delay, effects=effects, sender=sender
            )
        except HoldfastError as error:
            raise intake_refusal_of(error) from error
        if receipt.recorded_as is RecordedAs.CONFLICT:
            raise Refusal(Code.IDEMPOTENCY_CONFLICT)
        return receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureApi:
    """A feature as the API sees it. Without routes, its paths answer with ``refusal``: why it is not set up."""

    intakes: Mapping[str, str] = field(default_factory=dict)
    routes: FeatureRoutes | None = None
    paths: Sequence[str] = ()
    refusal: str = ""
