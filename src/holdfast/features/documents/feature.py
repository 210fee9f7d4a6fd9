"""The documents workload and its admission, as configured. Without its libraries there is none."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.config import Settings
from holdfast.contracts.ports import Store
from holdfast.contracts.retry import ExponentialBackoff
from holdfast.contracts.workload import Workload
from holdfast.wiring.libraries import document_lack, is_left_out

if TYPE_CHECKING:  # the core install does without the libraries of the documents extra
    from holdfast.brokers.bullmq import RedisLists
    from holdfast.webhooks.addresses import AddressPolicy

    from .admission import DocumentAdmission
    from .callbacks import DocumentCallbacks
    from .files import Files
    from .local_paths import LocalPaths
    from .options import DocumentOptions
    from .workload import Documents

_DATA_FOLDER: Final = "documents"
_MEGABYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DocumentParts:
    """The workload, the workload of the callbacks, and what both share with the admission."""

    workload: Documents
    callbacks: DocumentCallbacks | None
    files: Files
    paths: LocalPaths
    lists: RedisLists | None = None

    @property
    def workloads(self) -> list[Workload[Any]]:
        """Everything that a worker runs for documents."""
        return [self.workload] if self.callbacks is None else [self.workload, self.callbacks]


@dataclass(frozen=True, slots=True)
class DocumentSystem:
    """The parts of the documents workload that the API and the command line use."""

    workload: Documents
    admission: DocumentAdmission
    files: Files


def documents_of(settings: Settings) -> DocumentParts | None:
    """The documents workload; None without the ``documents`` extra."""
    if is_left_out(document_lack(settings)):
        return None
    from holdfast.webhooks.addresses import AddressPolicy  # noqa: PLC0415 - the libraries are there

    from .callbacks import CallbackOptions, DocumentCallbacks  # noqa: PLC0415 - likewise
    from .fetching import Fetcher, FetchOptions  # noqa: PLC0415 - likewise
    from .local_paths import LocalPaths  # noqa: PLC0415 - likewise
    from .sources import Sources  # noqa: PLC0415 - likewise
    from .workload import Documents  # noqa: PLC0415 - likewise

    options = document_options(settings)
    policy: AddressPolicy = AddressPolicy(settings.document_allowed_addresses)
    secret = settings.document_callback_secret
    callbacks = (
        None if secret is None else DocumentCallbacks(CallbackOptions(secret=secret.get_secret_value(), policy=policy))
    )
    files, paths = _files(settings, options), LocalPaths(settings.document_roots)
    fetching = FetchOptions(
        policy=policy,
        max_bytes=settings.document_max_bytes,
        timeout=timedelta(seconds=settings.document_fetch_timeout_seconds),
    )
    sources = Sources(files, paths, Fetcher(fetching), options.scratch, settings.document_max_bytes)
    lists = _lists(settings)
    return DocumentParts(Documents(options, sources, callbacks, lists), callbacks, files, paths, lists)


def document_options(settings: Settings) -> DocumentOptions:
    """How files are read, as configured."""
    from .contract import JobType  # noqa: PLC0415 - only where documents are
    from .engines import engine_keys, engine_options  # noqa: PLC0415 - likewise
    from .options import DocumentOptions  # noqa: PLC0415 - likewise

    attempts = {JobType(name): number for name, number in settings.document_attempts.items()}
    return DocumentOptions(
        scratch=_folder(settings) / "work",
        engine=settings.document_engine,
        language=settings.document_language,
        concurrency=settings.document_concurrency,
        retry=ExponentialBackoff(
            max_attempts=max(attempts.values()),
            base=timedelta(milliseconds=settings.document_retry_base_ms),
        ),
        max_attempts=attempts,
        timeout=timedelta(seconds=settings.document_timeout_seconds),
        unit_timeout=timedelta(seconds=settings.document_unit_timeout_seconds),
        memory=settings.document_memory_mb * _MEGABYTE,
        threads=settings.document_threads,
        max_bytes=settings.document_max_bytes,
        max_pages=settings.document_max_pages,
        max_seconds=settings.document_max_media_seconds,
        chunk_seconds=settings.document_chunk_seconds,
        cache=settings.document_cache,
        retention=timedelta(days=settings.document_ttl_days),
        letter_retention=timedelta(days=settings.document_dlq_ttl_days),
        left_after=timedelta(seconds=settings.worker_lease_seconds),
        engines=engine_options(settings),
        environment=engine_keys(settings),
    )


@contextlib.asynccontextmanager
async def open_documents(
    settings: Settings,
    parts: DocumentParts | None,
    store: Store,
) -> AsyncIterator[DocumentSystem | None]:
    """The workload and its admission on an open store."""
    if parts is None:
        yield None
        return
    from .admission import AdmissionOptions, DocumentAdmission  # noqa: PLC0415 - the libraries are there

    options = AdmissionOptions(
        max_upload_bytes=settings.document_max_bytes,
        local_paths=settings.document_local_path_over_http,
        callbacks=parts.callbacks is not None,
    )
    await parts.files.open()
    try:
        admission = DocumentAdmission(parts.workload, store, parts.files, parts.paths, options)
        yield DocumentSystem(parts.workload, admission, parts.files)
    finally:
        await parts.files.close()
        if parts.lists is not None:
            await parts.lists.close()


def _lists(settings: Settings) -> RedisLists | None:
    """The plain Redis lists. They connect when they are first used."""
    if not settings.document_lists or settings.redis_url is None:
        return None
    from holdfast.brokers.bullmq import RedisLists  # noqa: PLC0415 - the embedded default does without drivers

    from .workload import DEAD_LETTER_QUEUE, QUEUE  # noqa: PLC0415 - the libraries are there

    url = settings.redis_url.get_secret_value()
    return RedisLists(url, settings.queue_prefix, jobs=QUEUE, letters=DEAD_LETTER_QUEUE)


def _folder(settings: Settings) -> Path:
    return settings.document_folder or settings.holdfast_data / _DATA_FOLDER


def _files(settings: Settings, options: DocumentOptions) -> Files:
    from .files import RESULTS, UPLOADS, Files  # noqa: PLC0415

    if settings.document_storage == "folder":
        from holdfast.blobs.folder import StreamedFolderBlobs  # noqa: PLC0415

        return Files(StreamedFolderBlobs(_folder(settings), (UPLOADS, RESULTS)))
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
