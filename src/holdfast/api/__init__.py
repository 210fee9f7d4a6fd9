"""The HTTP API: the frame around the routes of the features, and the routes of jobs, dead letters and health.

Start at ``app.create_app``. This module has only what the wiring passes to it: commands that only read a store need no
web framework, which takes longer to load than such a command takes to run. The package knows no feature: each brings
its own routes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.contracts.ports import Broker, Clock, Ids, Store
from holdfast.contracts.workload import Workload
from holdfast.engine.cancellation import Cancellation
from holdfast.engine.intake import Intake
from holdfast.engine.review import Review
from holdfast.engine.schedules import Schedules
from holdfast.engine.sender_limits import SenderLimits
from holdfast.engine.tenants import Tenants
from holdfast.engine.waiting import Waiting

from .wrong_keys import WrongKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServices:
    """Everything that the routes of the frame call."""

    store: Store
    broker: Broker
    intake: Intake
    review: Review
    schedules: Schedules
    clock: Clock
    ids: Ids
    workloads: Mapping[str, Workload[Any]]
    own_workloads: Collection[str]
    """The workloads that no feature brought. Tenants may use them, and operators read their collections."""
    cancellation: Cancellation
    tenants: Tenants
    limits: SenderLimits
    waiting: Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """The settings of the API. Without an operator token, every request to an operator route is refused."""

    operator_token: str | None = field(default=None, repr=False)
    max_body_bytes: int = 256 * 1024
    docs: bool = True
    """Whether ``/docs`` and ``/openapi.json`` are there."""
    wrong_keys: WrongKeys = field(default_factory=WrongKeys)
