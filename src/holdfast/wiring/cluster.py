"""The two adapters of a cluster. Their drivers are imported only for a cluster."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.config import Settings
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.tenants import TENANT_COLLECTIONS
from holdfast.contracts.workload import Workload
from holdfast.installed import cluster_lack

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
        keep_failed=settings.queue_keep_failed,
        keep_completed_in={each.queue: each.keep_completed for each in workloads if each.keep_completed is not None},
        worker_name=f"{socket.gethostname()}.{os.getpid()}",
    )
    store = MongoStore(
        settings.mongo_uri.get_secret_value(),
        settings.mongo_db_name,
        workloads,
        collections=TENANT_COLLECTIONS,
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
