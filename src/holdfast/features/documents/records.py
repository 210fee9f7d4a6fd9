"""The records of this workload: collections, keys and indexed fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

from holdfast import Collection

from .contract import DocumentJob

JOBS: Final = "document_jobs"
RESULTS: Final = "document_results"
UNITS: Final = "document_units"
CACHE: Final = "document_cache"
USAGE: Final = "document_usage"
ARRIVING: Final = "document_arriving"


class DocumentStatus(StrEnum):
    """The status of a job."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    RETRYING = "RETRYING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def final(self) -> bool:
        """Whether nothing more will happen to the job."""
        return self in {DocumentStatus.COMPLETED, DocumentStatus.FAILED, DocumentStatus.CANCELLED}


class Stage(StrEnum):
    """The current step of a job, for people who watch it."""

    QUEUED = "queued"
    FETCHING = "fetching"
    LOADING = "loading"
    READING = "reading"
    WRITING = "writing"
    FINISHED = "finished"


JOBS_COLLECTION: Final = Collection(
    JOBS,
    key="job_id",
    indexes=(
        ("company_id", "accepted_at", "job_id"),
        ("company_id", "status", "accepted_at", "job_id"),
        ("given_id",),
    ),
    instants=("accepted_at", "started_at", "finished_at", "expires_at"),
    expires="expires_at",
)
"""One job and its status. ``job_id`` is the key of the job.

given_id (the tenant's own id of the job, if the key is another), company_id, job_type, input_type, status, stage,
progress (percent), unit ("page" or "chunk"), units_done, units, attempts, max_attempts, error ({error_type, code,
message, detail} or null), warnings, engine, language, metadata, filename, cached, replay_of, replayed_as,
cancel_requested, accepted_at, started_at, finished_at, expires_at.
"""

RESULTS_COLLECTION: Final = Collection(
    RESULTS,
    key="job_id",
    indexes=(("company_id",),),
    instants=("finished_at", "expires_at"),
    expires="expires_at",
)
"""The result of a job: job_id (the key), given_id (as in the job's record), company_id, status (COMPLETED, FAILED or
CANCELLED), duration_sec, output_path (null unless COMPLETED), pages (null for a recording), engine, model, language,
characters, confidence, media_seconds, units_reused, warnings (sentences on what is wrong with the file), output_bytes,
cached, error, finished_at, expires_at."""

UNITS_COLLECTION: Final = Collection(UNITS, key="unit_id", indexes=(), instants=("expires_at",), expires="expires_at")
"""Checkpoints: pages and chunks of sound that are read. ``unit_id`` is ``<work>:<index>``, where ``work`` is the id of
the file's content and of everything that decides the result: :func:`work_id`. ``result``, ``expires_at``."""

CACHE_COLLECTION: Final = Collection(CACHE, key="cache_id", indexes=(), instants=("expires_at",), expires="expires_at")
"""Finished results by content and way of reading: ``job_id`` of the job that has the result, ``expires_at``. See
:func:`cache_id`."""

USAGE_COLLECTION: Final = Collection(
    USAGE, key="usage_id", indexes=(("company_id",),), instants=("expires_at",), expires="expires_at"
)
"""The bytes of a tenant's files that will be swept in one period: ``company_id``, ``bytes``, ``expires_at``. See
:mod:`.usage`."""

ARRIVING_COLLECTION: Final = Collection(
    ARRIVING, key="upload_id", indexes=(("company_id",),), instants=("expires_at",), expires="expires_at"
)
"""Uploads that are arriving, and the bytes that are reserved for them: ``company_id``, ``bytes``, ``expires_at``."""

COLLECTIONS: Final = (
    JOBS_COLLECTION,
    RESULTS_COLLECTION,
    UNITS_COLLECTION,
    CACHE_COLLECTION,
    USAGE_COLLECTION,
    ARRIVING_COLLECTION,
)


def given_id(record: Mapping[str, Any]) -> str:
    """The id by which its sender knows the job of this record."""
    return str(record.get("given_id") or record["job_id"])


def work_id(content: str, *how: str | float | None) -> str:
    """The id of one reading: the same for the same content, read in the same way (``how``)."""
    facts = json.dumps([content, *how])
    return sha256(facts.encode()).hexdigest()[:40]


def unit_id(work: str, index: int) -> str:
    """The key of a checkpoint."""
    return f"{work}:{index:06d}"


def cache_id(job: DocumentJob, work: str) -> str:
    """The key of a cached result. ``work`` includes the tenant, so no tenant finds the result of another."""
    facts = json.dumps([job.input_type.value, work])
    return sha256(facts.encode()).hexdigest()[:40]
