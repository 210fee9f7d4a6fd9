"""The feature ``documents``: files that are read, by OCR or by transcription."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from holdfast import ExponentialBackoff, Workload
from holdfast.feature import Command, Feature, Finding, Needs, NotSetUp, Parts, Schema, Services, Settings, TenantLimits

from .engines import ENGINES
from .settings import DocumentSettings

if TYPE_CHECKING:  # the core install does without the libraries of the documents extra
    from holdfast.http import FeatureRoutes, Frame

    from .admission import DocumentAdmission
    from .callbacks import DocumentCallbacks
    from .files import Files
    from .options import DocumentOptions
    from .workload import Documents

LIBRARIES: Final = ("av", "faster_whisper", "pypdfium2", "python_multipart", "rapidocr")
"""What the local engine needs. Gemini and S3 need a library more."""
DOCUMENTS_PATH: Final = "/v1/documents"

_DATA_FOLDER: Final = "documents"
_MEGABYTE: Final = 1024 * 1024


class Scope(StrEnum):
    """What a tenant's key may be used for."""

    DOCUMENTS_WRITE = "documents:write"
    DOCUMENTS_READ = "documents:read"


class DocumentsFeature(Feature[DocumentSettings]):
    """Files that are read."""

    name = "documents"
    title = "documents"
    settings = DocumentSettings
    commands = (
        Command(
            "documents",
            "holdfast.features.documents.commands.documents:documents",
            "Read a file; submit files; see their status; cancel.",
        ),
    )
    scopes: ClassVar[Mapping[str, str]] = {
        Scope.DOCUMENTS_WRITE: "submits and cancels documents",
        Scope.DOCUMENTS_READ: "shows their status and results",
    }
    paths = (DOCUMENTS_PATH,)
    intakes: ClassVar[Mapping[str, str]] = {"documents": f"Send files, with an API key, to POST {DOCUMENTS_PATH}."}

    def needs(self, settings: DocumentSettings) -> Needs:
        """What reading documents needs, with the engine and the storage that the settings choose."""
        amazon, library = settings.document_storage == "s3", ENGINES[settings.document_engine].library
        asked_by = {
            "DOCUMENT_STORAGE=s3": amazon,
            f"DOCUMENT_ENGINE={settings.document_engine}": settings.document_engine != "local",
            "DOCUMENT_LISTS=true": settings.document_lists,
            "DOCUMENT_ROOTS": bool(settings.document_roots),
            "DOCUMENT_CALLBACK_SECRET": settings.document_callback_secret is not None,
        }
        return Needs(
            (*LIBRARIES, *(("aiobotocore",) if amazon else ()), *((library,) if library else ())),
            [name for name, asks in asked_by.items() if asks],
        )

    def build(self, settings: DocumentSettings, services: Services) -> Parts:
        """The workload, its callbacks, its admission and its routes."""
        documents = DocumentService(settings, services)
        return Parts(
            workloads=documents.workloads,
            routes=documents.routes,
            resources=[documents],
            service=documents,
            usage=documents.usage.of,
            limits=TenantLimits(stored_bytes=settings.document_tenant_bytes or None),
        )

    async def check(self, settings: DocumentSettings, services: Services) -> Sequence[Finding]:
        """Whether files can be read, and results be stored."""
        from .checks import checked  # noqa: PLC0415 - only here

        return await checked(settings, services)

    def schemas(self) -> Sequence[Schema]:
        """The job, its dead letter, the callback, and what the API takes and answers."""
        from .admission import DocumentRequest  # noqa: PLC0415 - only here
        from .callbacks import CallbackJob, DocumentCallbacks  # noqa: PLC0415 - likewise
        from .contract import DocumentJob  # noqa: PLC0415 - likewise
        from .dead_letter import DocumentDeadLetter  # noqa: PLC0415 - likewise
        from .views import (  # noqa: PLC0415 - likewise
            DocumentCancel,
            DocumentContent,
            DocumentList,
            DocumentReceipt,
            DocumentView,
        )
        from .workload import Documents  # noqa: PLC0415 - likewise

        letters, callbacks = Documents.dead_letter_queue, DocumentCallbacks.queue
        return [
            Schema("documents.job", DocumentJob, f"a job of {Documents.queue}"),
            Schema("documents.request", DocumentRequest, f"what a tenant posts to {DOCUMENTS_PATH}, as JSON"),
            Schema("documents.dead-letter", DocumentDeadLetter, f"a job of {letters}", "serialization"),
            Schema("document_callbacks.job", CallbackJob, f"a job of {callbacks}; its body is the callback's"),
            Schema("http.document-receipt", DocumentReceipt, "the answer to an accepted document", "serialization"),
            Schema("http.document", DocumentView, "the status of a document", "serialization"),
            Schema("http.documents", DocumentList, "a page of documents", "serialization"),
            Schema("http.document-result", DocumentContent, "the result of a document, and its text", "serialization"),
            Schema("http.document-cancel", DocumentCancel, "the status of a cancelled document", "serialization"),
        ]


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The limits of the routes.

    ``body_bytes`` is for JSON. ``streams`` clients may watch jobs at the same time; their streams look for changes
    every ``stream_interval``, and send a comment after ``stream_keep_alive`` without a change.
    """

    body_bytes: int = 256 * 1024
    streams: int = 200
    stream_interval: timedelta = timedelta(milliseconds=300)
    stream_keep_alive: timedelta = timedelta(seconds=15)


class DocumentService:
    """The documents workload of a process, and what its routes and commands use."""

    limits = HttpLimits()

    def __init__(self, settings: DocumentSettings, services: Services) -> None:
        from holdfast.webhooks.addresses import AddressPolicy  # noqa: PLC0415 - the libraries are there

        from .callbacks import CallbackOptions, DocumentCallbacks  # noqa: PLC0415 - likewise
        from .fetching import Fetcher, FetchOptions  # noqa: PLC0415 - likewise
        from .files import Sources  # noqa: PLC0415 - likewise
        from .local_paths import LocalPaths  # noqa: PLC0415 - likewise
        from .usage import Usage  # noqa: PLC0415 - likewise
        from .workload import DEAD_LETTER_QUEUE, QUEUE, Documents  # noqa: PLC0415 - likewise

        self.settings = settings
        self.services = services
        options = document_options(settings, services.settings)
        policy = AddressPolicy(settings.document_allowed_addresses)
        secret = settings.document_callback_secret
        self.callbacks: DocumentCallbacks | None = (
            None
            if secret is None
            else DocumentCallbacks(CallbackOptions(secret=secret.get_secret_value(), policy=policy))
        )
        self.files: Files = _files(settings, services.settings, options)
        self._paths = LocalPaths(*settings.roots_by_tenant)
        fetching = FetchOptions(policy=policy, max_bytes=settings.document_max_bytes)
        sources = Sources(self.files, self._paths, Fetcher(fetching), options.scratch, settings.document_max_bytes)
        self._lists = services.lists(QUEUE, DEAD_LETTER_QUEUE) if settings.document_lists else None
        self.usage = Usage(services, default=settings.document_tenant_bytes, keep=options.files_kept)
        self.workload: Documents = Documents(options, sources, self.callbacks, self._lists, self.usage)

    @property
    def workloads(self) -> list[Workload[Any]]:
        """Everything that a worker runs for documents."""
        return [self.workload] if self.callbacks is None else [self.workload, self.callbacks]

    async def rotate_callback_secret(self, company_id: str, overlap: timedelta) -> str:
        """A new secret for the callbacks of a tenant; the former secret signs too for so long.

        Raises :class:`NotSetUp` if no callbacks are sent here.
        """
        if self.callbacks is None:
            message = "There are no callbacks here: set DOCUMENT_CALLBACK_SECRET first."
            raise NotSetUp(message)
        services = self.services
        return await self.callbacks.secrets.rotate(services.store, company_id, services.clock.now(), overlap)

    async def open(self) -> None:
        """Open the storage."""
        await self.files.open()

    async def close(self) -> None:
        """Close the storage and the plain lists."""
        await self.files.close()
        if self._lists is not None:
            await self._lists.close()

    @cached_property
    def admission(self) -> DocumentAdmission:
        """Turns requests into jobs."""
        from .admission import AdmissionOptions, DocumentAdmission  # noqa: PLC0415 - the libraries are there

        options = AdmissionOptions(
            max_upload_bytes=self.settings.document_max_bytes,
            local_paths=self.settings.document_local_path_over_http,
            callbacks=self.callbacks is not None,
        )
        return DocumentAdmission(self.workload, self.services.store, self.files, self._paths, options)

    def routes(self, frame: Frame) -> FeatureRoutes:
        """The routes of documents."""
        from .routes import document_routes  # noqa: PLC0415 - workers do without a web framework

        return document_routes(self, frame)


def document_options(settings: DocumentSettings, process: Settings) -> DocumentOptions:
    """How files are read, as configured."""
    from .contract import JobType  # noqa: PLC0415 - only where documents are
    from .engines import engine_keys, engine_options  # noqa: PLC0415 - likewise
    from .options import DocumentOptions  # noqa: PLC0415 - likewise

    attempts = {JobType(name): number for name, number in settings.document_attempts.items()}
    return DocumentOptions(
        scratch=_folder(settings, process) / "work",
        engine=settings.document_engine,
        language=settings.document_language,
        concurrency=settings.document_concurrency,
        retry=ExponentialBackoff(
            max_attempts=max(attempts.values()),
            base=timedelta(milliseconds=settings.document_retry_base_ms),
        ),
        max_attempts=attempts,
        timeout=timedelta(seconds=settings.document_timeout_seconds),
        memory=settings.document_memory_mb * _MEGABYTE,
        threads=settings.document_threads,
        max_bytes=settings.document_max_bytes,
        max_pages=settings.document_max_pages,
        max_seconds=settings.document_max_media_seconds,
        max_page_output=settings.document_max_page_output_bytes,
        max_output=settings.document_max_output_bytes,
        retention=timedelta(days=settings.document_ttl_days),
        letter_retention=timedelta(days=settings.document_dlq_ttl_days),
        left_after=timedelta(seconds=process.worker_lease_seconds),
        engines=engine_options(settings),
        environment=engine_keys(settings),
    )


def _folder(settings: DocumentSettings, process: Settings) -> Path:
    return settings.document_folder or process.holdfast_data / _DATA_FOLDER


def _files(settings: DocumentSettings, process: Settings, options: DocumentOptions) -> Files:
    from .files import RESULTS, UPLOADS, Files  # noqa: PLC0415

    if settings.document_storage == "folder":
        from holdfast.blobs.folder import StreamedFolderBlobs  # noqa: PLC0415

        return Files(StreamedFolderBlobs(_folder(settings, process), (UPLOADS, RESULTS)))
    from holdfast.blobs.s3 import S3Blobs  # noqa: PLC0415

    prefix = settings.document_prefix.strip("/")
    bucket = S3Blobs(
        settings.document_bucket or "",
        f"{prefix}/" if prefix else "",
        region=settings.document_s3_region,
        endpoint_url=settings.document_s3_endpoint_url,
        scratch=options.scratch,
    )
    return Files(bucket)
