"""What the API is given: the engine behind it, the door of the courier workload, and its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from pydantic import BaseModel

from holdfast.contracts.admission import SignatureMeta
from holdfast.contracts.ports import Broker, Clock, Ids, Store
from holdfast.contracts.workload import Workload
from holdfast.engine.intake import Intake
from holdfast.engine.review import Review

from .verify import SourceSecret


class CourierDoor(Protocol):
    """How a signed request becomes a courier job. The courier workload brings it; the API only knows this much."""

    @property
    def workload(self) -> Workload[Any]:
        """The workload that the jobs are for."""
        ...

    def admit(
        self,
        document: Mapping[str, Any],
        *,
        meta: SignatureMeta,
        trace_id: str,
        received_at: datetime,
    ) -> BaseModel:
        """The job's data. Raises :class:`~holdfast.contracts.admission.InvalidContent`, naming the fields."""
        ...

    def intake_schema(self) -> dict[str, Any]:
        """The JSON Schema of the document that a courier sends."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServices:
    """Everything that the routes call."""

    store: Store
    broker: Broker
    intake: Intake
    review: Review
    clock: Clock
    ids: Ids
    workloads: Mapping[str, Workload[Any]]
    courier: CourierDoor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """What an operator decides about the API. Without an operator token, no operator route opens to anyone."""

    secrets: Mapping[str, Sequence[SourceSecret]] = field(default_factory=dict, repr=False)
    tolerance: timedelta = timedelta(seconds=300)
    operator_token: str | None = field(default=None, repr=False)
    max_body_bytes: int = 256 * 1024
