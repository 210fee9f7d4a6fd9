"""What the wiring passes to the API: the engine, the admission of each workload, and the options."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from pydantic import BaseModel

from holdfast.contracts.admission import Admitted, AdmittedDocument, SignatureMeta
from holdfast.contracts.files import Stored
from holdfast.contracts.ports import Broker, Clock, Ids, Store
from holdfast.contracts.workload import Workload
from holdfast.engine.cancellation import Cancellation
from holdfast.engine.intake import Intake
from holdfast.engine.review import Review
from holdfast.engine.tenants import Tenants
from holdfast.features.courier.signatures import SourceSecret


class CourierAdmission(Protocol):
    """Turns a signed request into a courier job. The courier workload implements this protocol."""

    @property
    def workload(self) -> Workload[Any]:
        """The workload of the jobs."""
        ...

    def admit(
        self,
        body: Mapping[str, Any],
        *,
        meta: SignatureMeta,
        trace_id: str,
        received_at: datetime,
    ) -> BaseModel:
        """The job's data. Raises :class:`~holdfast.contracts.admission.InvalidContent`, which names the fields."""
        ...

    def intake_schema(self) -> dict[str, Any]:
        """The JSON Schema of the body that a courier sends."""
        ...


class EmailAdmission(Protocol):
    """Turns a tenant's request into an email job. The email workload implements this protocol."""

    @property
    def workload(self) -> Workload[Any]:
        """The workload of the jobs."""
        ...

    @property
    def request_model(self) -> type[BaseModel]:
        """The model of the body that a tenant sends."""
        ...

    async def admit(
        self,
        body: object,
        *,
        company_id: str,
        idempotency_key: str | None,
        request_id: str,
        received_at: datetime,
    ) -> Admitted:
        """The job. Raises :class:`~holdfast.contracts.admission.InvalidContent` or ``NotAcceptable``."""
        ...


class EmailFeedback(Protocol):
    """Turns notifications of the email provider into suppressions."""

    async def receive(self, body: object, now: datetime) -> int:
        """Process a notification if its signature is valid. Returns how many addresses it suppresses.

        Raises :class:`~holdfast.contracts.admission.NotificationRefused` or ``InvalidContent``.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailServices:
    """What the email routes call. The limits are for the bodies of requests, in bytes."""

    admission: EmailAdmission
    tenants: Tenants
    cancellation: Cancellation
    feedback: EmailFeedback
    max_body_bytes: int = 2 * 1024 * 1024
    max_batch_bytes: int = 8 * 1024 * 1024


class DocumentAdmission(Protocol):
    """Turns a tenant's file into a job. The documents workload implements this protocol."""

    @property
    def workload(self) -> Workload[Any]:
        """The workload of the jobs."""
        ...

    @property
    def request_model(self) -> type[BaseModel]:
        """The model of the JSON body, which says where the file is."""
        ...

    @property
    def max_upload_bytes(self) -> int:
        """The size of the largest file that is accepted."""
        ...

    async def keep(self, content: AsyncIterator[bytes]) -> Stored:
        """Store a file while it arrives. When this method or ``content`` raises, nothing is stored.

        Raises :class:`~holdfast.contracts.files.UploadTooLarge` or ``FilesUnavailable``.
        """
        ...

    async def admit(
        self,
        fields: Mapping[str, object],
        *,
        company_id: str,
        received_at: datetime,
        upload: Stored | None = None,
        filename: str | None = None,
    ) -> AdmittedDocument:
        """The job. Raises :class:`~holdfast.contracts.admission.InvalidContent` or ``NotAcceptable``."""
        ...

    async def output(self, result: Mapping[str, Any], name: str) -> bytes:
        """One of the output files of a finished job. Raises :class:`~holdfast.contracts.files.FileMissing`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentServices:
    """What the documents routes call.

    ``max_body_bytes`` is the limit for JSON. An upload is refused when no data arrives for ``upload_idle_timeout``.
    ``max_streams`` is how many clients may watch jobs at the same time. Their streams check for changes every
    ``stream_interval``, and send a comment after ``stream_keep_alive`` without a change.
    """

    admission: DocumentAdmission
    tenants: Tenants
    cancellation: Cancellation
    max_body_bytes: int = 256 * 1024
    upload_idle_timeout: timedelta = timedelta(seconds=60)
    max_streams: int = 200
    stream_interval: timedelta = timedelta(milliseconds=300)
    stream_keep_alive: timedelta = timedelta(seconds=15)


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
    courier: CourierAdmission | None = None
    email: EmailServices | None = None
    documents: DocumentServices | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The reason why ``emails`` or ``documents`` are not set up: one sentence for each missing library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """The settings of the API. Without an operator token, every request to an operator route is refused."""

    secrets: Mapping[str, Sequence[SourceSecret]] = field(default_factory=dict, repr=False)
    tolerance: timedelta = timedelta(seconds=300)
    operator_token: str | None = field(default=None, repr=False)
    max_body_bytes: int = 256 * 1024
