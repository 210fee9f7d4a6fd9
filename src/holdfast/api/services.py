"""What the API is given: the engine behind it, the doors of its workloads, and its options."""

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

from .verify import SourceSecret


class CourierAdmission(Protocol):
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


class EmailAdmission(Protocol):
    """How a tenant's request becomes an email job. The email workload brings it; the API only knows this much."""

    @property
    def workload(self) -> Workload[Any]:
        """The workload that the jobs are for."""
        ...

    @property
    def request_model(self) -> type[BaseModel]:
        """The shape of the document that a tenant sends."""
        ...

    async def admit(
        self,
        document: object,
        *,
        company_id: str,
        idempotency_key: str | None,
        request_id: str,
        received_at: datetime,
    ) -> Admitted:
        """The job. Raises :class:`~holdfast.contracts.admission.InvalidContent` or ``NotAcceptable``."""
        ...


class EmailFeedback(Protocol):
    """How the provider's notifications become suppressions."""

    async def receive(self, document: object, now: datetime) -> int:
        """Believe a notification, if its signature can be; the number of addresses that get no more emails.

        Raises :class:`~holdfast.contracts.admission.NotificationRefused` or ``InvalidContent``.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailServices:
    """What the routes of the email workload call. The limits are for the bodies of requests, in bytes."""

    admission: EmailAdmission
    tenants: Tenants
    cancellation: Cancellation
    feedback: EmailFeedback
    max_body_bytes: int = 2 * 1024 * 1024
    max_batch_bytes: int = 8 * 1024 * 1024


class DocumentAdmission(Protocol):
    """How a tenant's file becomes a job. The documents workload brings it; the API only knows this much."""

    @property
    def workload(self) -> Workload[Any]:
        """The workload that the jobs are for."""
        ...

    @property
    def request_model(self) -> type[BaseModel]:
        """The shape of the document that a tenant sends for a file that is somewhere else."""
        ...

    @property
    def max_upload_bytes(self) -> int:
        """The largest file that is kept."""
        ...

    async def keep(self, content: AsyncIterator[bytes]) -> Stored:
        """Keep a file while it arrives; all of it, or nothing when this or ``content`` raises.

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

    async def ask_to_stop(self, job_id: str) -> None:
        """Tell the worker that reads this job's file that nobody wants it any more. The job must exist."""
        ...

    async def output(self, result: Mapping[str, Any], name: str) -> bytes:
        """One of the files that a finished job has left. Raises :class:`~holdfast.contracts.files.FileMissing`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentServices:
    """What the routes of the documents workload call.

    ``max_body_bytes`` is for JSON; a sender of a file may be silent for ``upload_patience``. ``max_streams`` is how
    many clients may watch jobs at a time; they hear what changed after ``stream_pace`` at the latest, and that the
    stream is alive after ``stream_silence``.
    """

    admission: DocumentAdmission
    tenants: Tenants
    cancellation: Cancellation
    max_body_bytes: int = 256 * 1024
    upload_patience: timedelta = timedelta(seconds=60)
    max_streams: int = 200
    stream_pace: timedelta = timedelta(milliseconds=300)
    stream_silence: timedelta = timedelta(seconds=15)


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
    """Why ``emails`` or ``documents`` are not here, a sentence each, where a library is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """What an operator decides about the API. Without an operator token, no operator route opens to anyone."""

    secrets: Mapping[str, Sequence[SourceSecret]] = field(default_factory=dict, repr=False)
    tolerance: timedelta = timedelta(seconds=300)
    operator_token: str | None = field(default=None, repr=False)
    max_body_bytes: int = 256 * 1024
