"""The parts of one process, put together."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from holdfast.api.app import create_app
from holdfast.api.services import ApiOptions, ApiServices
from holdfast.api.verify import SourceSecret
from holdfast.config import Settings
from holdfast.contracts.ports import Ambient, Broker, Store
from holdfast.contracts.retry import ExponentialBackoff
from holdfast.contracts.workload import App, Workload
from holdfast.engine.execution import ExecutionOptions
from holdfast.engine.intake import Intake
from holdfast.engine.review import Review
from holdfast.engine.upkeep import Upkeep
from holdfast.worker import Worker
from holdfast.workloads.courier import Courier, CourierDoor, CourierOptions

from .cluster import Cluster

_LANES: Final = 2
"""While one batch is on its way to a server of the cluster, the other is worked on."""


@dataclass(frozen=True, slots=True)
class System:
    """The parts of one process, put together and open."""

    settings: Settings
    workloads: Mapping[str, Workload[Any]]
    courier: Courier | None
    store: Store
    broker: Broker
    ambient: Ambient
    intake: Intake
    review: Review
    cluster: Cluster | None = None
    """The servers that ``store`` and ``broker`` talk to; None when both are one SQLite file."""

    def api(self) -> Any:  # noqa: ANN401 - an ASGI app
        """The HTTP side."""
        settings = self.settings
        services = ApiServices(
            store=self.store,
            broker=self.broker,
            intake=self.intake,
            review=self.review,
            clock=self.ambient.clock,
            ids=self.ambient.ids,
            workloads=self.workloads,
            courier=None if self.courier is None else CourierDoor(self.courier),
        )
        options = ApiOptions(
            secrets={
                source: [SourceSecret(each.secret.get_secret_value(), each.not_before, each.not_after) for each in held]
                for source, held in settings.courier_secrets.items()
            },
            tolerance=timedelta(seconds=settings.signature_tolerance_seconds),
            operator_token=settings.operator_token.get_secret_value() if settings.operator_token else None,
            max_body_bytes=settings.max_body_bytes,
        )
        return create_app(services, options)

    def upkeep(self) -> Upkeep:
        """What heals."""
        interval = timedelta(milliseconds=self.settings.upkeep_interval_ms)
        # What a sweeper that died had in hand is swept again when a dead worker's jobs would be claimed again.
        lease = timedelta(seconds=self.settings.worker_lease_seconds)
        workloads = list(self.workloads.values())
        return Upkeep(self.store, self.broker, workloads, self.ambient, interval=interval, again_after=lease)

    def worker(self) -> Worker:
        """What works."""
        options = ExecutionOptions(
            worker=self.ambient.ids.new(f"{socket.gethostname()}.{os.getpid()}"),
            concurrency=self.settings.worker_concurrency,
            lease=timedelta(seconds=self.settings.worker_lease_seconds),
            lanes=_LANES if self.settings.cluster else 1,
        )
        drain = timedelta(milliseconds=self.settings.worker_drain_timeout_ms)
        workloads = list(self.workloads.values())
        return Worker(workloads, self.store, self.broker, self.ambient, self.upkeep(), options, drain=drain)


def workloads_of(settings: Settings, app: App | None) -> tuple[Courier, tuple[Workload[Any], ...]]:
    """The courier workload, and all workloads, it and the user's own.

    Checked as one app: names and queues of the user's workloads must not meet ours.
    """
    courier = courier_of(settings)
    return courier, App([courier, *(app.workloads if app else ())]).workloads


def courier_of(settings: Settings) -> Courier:
    """The courier workload as configured."""
    secret = settings.courier_downstream_secret
    return Courier(
        CourierOptions(
            retry=ExponentialBackoff(
                max_attempts=settings.retry_max_attempts,
                base=timedelta(milliseconds=settings.retry_backoff_base_ms),
                multiplier=settings.retry_backoff_multiplier,
                jitter_percent=settings.retry_jitter_percent,
            ),
            timeout=timedelta(milliseconds=settings.handler_timeout_ms),
            retention=timedelta(days=settings.processed_events_ttl_days),
            letter_retention=timedelta(days=settings.dlq_ttl_days),
            downstream_url=settings.courier_downstream_url,
            downstream_secret=None if secret is None else secret.get_secret_value(),
            downstream_timeout=timedelta(milliseconds=settings.courier_downstream_timeout_ms),
            concurrency=settings.worker_concurrency,
        ),
    )
