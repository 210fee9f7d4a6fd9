"""The parts of one process, put together."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple

from holdfast.api.services import ApiOptions, ApiServices, DocumentServices, EmailServices
from holdfast.config import Settings
from holdfast.contracts.ports import Ambient, Broker, Store
from holdfast.contracts.retry import ExponentialBackoff
from holdfast.contracts.workload import App, Workload
from holdfast.engine.cancellation import Cancellation
from holdfast.engine.execution import ExecutionOptions
from holdfast.engine.intake import Intake
from holdfast.engine.maintenance import Maintenance
from holdfast.engine.review import Review
from holdfast.engine.tenants import Tenants
from holdfast.features.courier import Courier, CourierAdmission, CourierOptions
from holdfast.features.courier.signatures import SourceSecret
from holdfast.features.documents.feature import DocumentParts, DocumentSystem, documents_of
from holdfast.features.email.feature import EmailParts, EmailSystem, email_of
from holdfast.worker import Worker

from .cluster import Cluster
from .libraries import lacks, require_libraries

_LESS_OFTEN: Final = 3
_PIPELINES: Final = 2
"""While one batch is sent to a server of the cluster, the other batch is worked."""


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
    cancellation: Cancellation
    tenants: Tenants
    email: EmailSystem | None = None
    documents: DocumentSystem | None = None
    cluster: Cluster | None = None
    """The servers that ``store`` and ``broker`` talk to; None when both are one SQLite file."""

    def api(self) -> Any:  # noqa: ANN401 - an ASGI app
        """The HTTP API."""
        settings = self.settings
        services = ApiServices(
            store=self.store,
            broker=self.broker,
            intake=self.intake,
            review=self.review,
            clock=self.ambient.clock,
            ids=self.ambient.ids,
            workloads=self.workloads,
            courier=None if self.courier is None else CourierAdmission(self.courier),
            email=self._email_services(),
            documents=self._document_services(),
            left_out={each.part: f"{each.message} Install it: {each.remedy}" for each in lacks(settings)},
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
        from holdfast.api.app import create_app  # noqa: PLC0415 - workers and commands do without a web framework

        return create_app(services, options)

    def _email_services(self) -> EmailServices | None:
        if self.email is None:
            return None
        return EmailServices(
            admission=self.email.admission,
            tenants=self.tenants,
            cancellation=self.cancellation,
            feedback=self.email.feedback,
            # JSON may write a character of two bytes in six.
            max_body_bytes=3 * self.settings.email_max_html_bytes + self.settings.max_body_bytes,
            max_batch_bytes=self.settings.email_max_batch_bytes,
        )

    def _document_services(self) -> DocumentServices | None:
        if self.documents is None:
            return None
        return DocumentServices(
            admission=self.documents.admission,
            tenants=self.tenants,
            cancellation=self.cancellation,
        )

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


class Workloads(NamedTuple):
    """The workloads of a process: the shipped ones, and the user's own."""

    courier: Courier
    email: EmailParts | None
    documents: DocumentParts | None
    everything: tuple[Workload[Any], ...]


def workloads_of(settings: Settings, app: App | None) -> Workloads:
    """All workloads as configured. Checked as one app: the user's names and queues must differ from ours.

    Raises :class:`ConfigurationError` if a setting needs a library that is not installed.
    """
    require_libraries(settings)
    courier, email, documents = courier_of(settings), email_of(settings), documents_of(settings)
    ours: list[Workload[Any]] = [courier] if email is None else [courier, email.workload]
    if documents is not None:
        ours += documents.workloads
    return Workloads(courier, email, documents, App([*ours, *(app.workloads if app else ())]).workloads)


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
