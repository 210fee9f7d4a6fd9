"""A system: the store, the queue, and all that works with them; with a cluster, its two adapters too.

The drivers of a cluster are imported only for a cluster.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from holdfast.api import ApiOptions, ApiServices
from holdfast.api.wrong_keys import WrongKeys
from holdfast.config import Settings
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.ports import Ambient, Broker, Store
from holdfast.contracts.tenants import TenantLimits
from holdfast.contracts.workload import Workload
from holdfast.engine.cancellation import Cancellation
from holdfast.engine.execution import ExecutionOptions
from holdfast.engine.intake import Intake
from holdfast.engine.maintenance import Maintenance
from holdfast.engine.review import Review
from holdfast.engine.schedules import Schedules
from holdfast.engine.tenants import Tenants
from holdfast.engine.waiting import Waiting
from holdfast.feature import Services
from holdfast.installed import cluster_lack
from holdfast.worker import Worker

from .features import FRAME_COLLECTIONS, Built

if TYPE_CHECKING:
    from holdfast.brokers.bullmq import BullmqBroker, RedisLists
    from holdfast.stores.mongo import MongoStore


@dataclass(frozen=True, slots=True)
class Cluster:
    """The queue in Redis and the store in MongoDB. Beyond the ports, they have facts about their servers."""

    broker: BullmqBroker
    store: MongoStore


@contextlib.asynccontextmanager
async def connect(settings: Settings, workloads: Sequence[Workload[Any]]) -> AsyncIterator[Cluster]:
    """Both adapters, ready to use. The servers need not be reachable yet."""
    if settings.redis_url is None or settings.mongo_uri is None:
        message = "A cluster needs REDIS_URL and MONGO_URI."
        raise ConfigurationError(message)
    if (lack := cluster_lack(settings)) is not None:
        message = f"{lack.message} Install it: {lack.remedy}"
        raise ConfigurationError(message)
    from holdfast.brokers.bullmq import BullmqBroker  # noqa: PLC0415 - the embedded default does without drivers
    from holdfast.stores.mongo import MongoStore  # noqa: PLC0415 - likewise

    broker = BullmqBroker(
        settings.redis_url.get_secret_value(),
        prefix=settings.queue_prefix,
        keep_completed_in={each.queue: each.keep_completed for each in workloads if each.keep_completed is not None},
        worker_name=f"{socket.gethostname()}.{os.getpid()}",
    )
    store = MongoStore(
        settings.mongo_uri.get_secret_value(),
        settings.mongo_db_name,
        workloads,
        collections=FRAME_COLLECTIONS,
        grace=timedelta(milliseconds=settings.publish_grace_ms),
    )
    try:
        yield Cluster(broker, store)
    finally:
        await broker.close()
        await store.disconnect()


def plain_lists(settings: Settings, jobs: str, letters: str) -> RedisLists | None:
    """The two plain Redis lists of these names; None without a cluster. They connect when they are first used."""
    if settings.redis_url is None:
        return None
    from holdfast.brokers.bullmq import RedisLists  # noqa: PLC0415 - the embedded default does without drivers

    return RedisLists(settings.redis_url.get_secret_value(), settings.queue_prefix, jobs=jobs, letters=letters)


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
    schedules: Schedules
    waiting: Waiting
    own_workloads: tuple[str, ...] = ()
    """The names of the workloads that no feature brought: those of the user's app."""
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

    @property
    def tenant_limits(self) -> TenantLimits:
        """What a tenant without limits of its own may use: as the settings of the process and of the features say."""
        limits = self.services.limits.defaults
        for each in self.features.values():
            if each.parts is not None:
                limits = limits.over(each.parts.limits)
        return limits

    def api(self) -> Any:  # noqa: ANN401 - an ASGI app
        """The HTTP API."""
        services = ApiServices(
            store=self.store,
            broker=self.broker,
            intake=self.intake,
            review=self.review,
            schedules=self.schedules,
            clock=self.ambient.clock,
            ids=self.ambient.ids,
            workloads=self.workloads,
            own_workloads=self.own_workloads,
            cancellation=self.cancellation,
            tenants=self.tenants,
            limits=self.services.limits,
            waiting=self.waiting,
        )
        token = self.settings.operator_token
        options = ApiOptions(
            operator_token=token.get_secret_value() if token else None,
            max_body_bytes=self.settings.max_body_bytes,
            docs=self.settings.api_docs,
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
        return Maintenance(
            self.store,
            self.broker,
            workloads,
            self.ambient,
            schedules=self.schedules,
            interval=interval,
            again_after=lease,
        )

    def worker(self, *, maintenance: bool = True) -> Worker:
        """The worker, with its maintenance."""
        options = ExecutionOptions(
            worker=self.ambient.ids.new(f"{socket.gethostname()}.{os.getpid()}"),
            concurrency=self.settings.worker_concurrency,
            lease=timedelta(seconds=self.settings.worker_lease_seconds),
            pipelines=_PIPELINES if self.settings.cluster else 1,
        )
        drain = timedelta(milliseconds=self.settings.worker_drain_timeout_ms)
        workloads = list(self.workloads.values())
        return Worker(
            workloads,
            self.store,
            self.broker,
            self.ambient,
            self.maintenance() if maintenance else None,
            options,
            drain=drain,
            ended=self.waiting.notify,
        )
