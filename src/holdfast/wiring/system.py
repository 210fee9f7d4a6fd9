"""The parts of one process, put together."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from holdfast.api.services import ApiOptions, ApiServices
from holdfast.api.wrong_keys import WrongKeys
from holdfast.config import Settings
from holdfast.contracts.ports import Ambient, Broker, Store
from holdfast.contracts.workload import Workload
from holdfast.engine.cancellation import Cancellation
from holdfast.engine.execution import ExecutionOptions
from holdfast.engine.intake import Intake
from holdfast.engine.maintenance import Maintenance
from holdfast.engine.review import Review
from holdfast.engine.tenants import Tenants
from holdfast.feature import Services
from holdfast.worker import Worker

from .cluster import Cluster
from .features import Built

_LESS_OFTEN: Final = 3
_PIPELINES: Final = 2
"""While one batch is sent to a server of the cluster, the other batch is worked."""


@dataclass(frozen=True, slots=True)
class System:
    """The parts of one process, put together and open."""

    settings: Settings
    workloads: Mapping[str, Workload[Any]]
    features: Mapping[str, Built]
    services: Services
    store: Store
    broker: Broker
    ambient: Ambient
    intake: Intake
    review: Review
    cancellation: Cancellation
    tenants: Tenants
    cluster: Cluster | None = None
    """The servers that ``store`` and ``broker`` talk to; None when both are one SQLite file."""

    def service(self, feature: str) -> Any:  # noqa: ANN401 - each feature's own object
        """The own object of this feature. Raises :class:`NotSetUp` with the reason."""
        return self.features[feature].service

    async def usage(self, company_id: str) -> dict[str, int]:
        """What a tenant uses of all features together, by name."""
        used: dict[str, int] = {}
        for each in self.features.values():
            if each.parts is not None and each.parts.usage is not None:
                for name, amount in (await each.parts.usage(company_id)).items():
                    used[name] = used.get(name, 0) + amount
        return used

    def api(self) -> Any:  # noqa: ANN401 - an ASGI app
        """The HTTP API."""
        services = ApiServices(
            store=self.store,
            broker=self.broker,
            intake=self.intake,
            review=self.review,
            clock=self.ambient.clock,
            ids=self.ambient.ids,
            workloads=self.workloads,
        )
        token = self.settings.operator_token
        options = ApiOptions(
            operator_token=token.get_secret_value() if token else None,
            max_body_bytes=self.settings.max_body_bytes,
            wrong_keys=WrongKeys(self.settings.auth_failures_per_minute),
        )
        from holdfast.api.app import create_app  # noqa: PLC0415 - workers and commands do without a web framework
        from holdfast.api.frame import FeatureApi, Frame  # noqa: PLC0415 - likewise

        frame = Frame(self.services, options)
        features = [
            FeatureApi(
                intakes=each.feature.intakes,
                routes=each.parts.routes(frame) if each.parts is not None and each.parts.routes is not None else None,
                paths=each.feature.paths,
                refusal=each.refusal,
            )
            for each in self.features.values()
        ]
        return create_app(services, options, features)

    def maintenance(self, *, alone: bool = False) -> Maintenance:
        """Maintenance. In a process without a worker (``alone``) it runs less often, because workers run it too."""
        interval = timedelta(milliseconds=self.settings.upkeep_interval_ms * (_LESS_OFTEN if alone else 1))
        # Entries of a sweep that crashed are swept again after the same time as a lost worker's jobs.
        lease = timedelta(seconds=self.settings.worker_lease_seconds)
        workloads = list(self.workloads.values())
        return Maintenance(self.store, self.broker, workloads, self.ambient, interval=interval, again_after=lease)

    def worker(self) -> Worker:
        """The worker."""
        options = ExecutionOptions(
            worker=self.ambient.ids.new(f"{socket.gethostname()}.{os.getpid()}"),
            concurrency=self.settings.worker_concurrency,
            lease=timedelta(seconds=self.settings.worker_lease_seconds),
            pipelines=_PIPELINES if self.settings.cluster else 1,
        )
        drain = timedelta(milliseconds=self.settings.worker_drain_timeout_ms)
        workloads = list(self.workloads.values())
        return Worker(workloads, self.store, self.broker, self.ambient, self.maintenance(), options, drain=drain)
