"""What the wiring passes to the API: the engine, and the options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.contracts.ports import Broker, Clock, Ids, Store
from holdfast.contracts.workload import Workload
from holdfast.engine.intake import Intake
from holdfast.engine.review import Review

from .wrong_keys import WrongKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServices:
    """Everything that the routes of the frame call."""

    store: Store
    broker: Broker
    intake: Intake
    review: Review
    clock: Clock
    ids: Ids
    workloads: Mapping[str, Workload[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """The settings of the API. Without an operator token, every request to an operator route is refused."""

    operator_token: str | None = field(default=None, repr=False)
    max_body_bytes: int = 256 * 1024
    wrong_keys: WrongKeys = field(default_factory=WrongKeys)
