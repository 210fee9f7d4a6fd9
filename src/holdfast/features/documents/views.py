"""The shapes of the documents routes' answers. Field names on the wire are snake_case, as in rules D8 and D9."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.views import Instant

_WARNINGS: Final = "What is wrong with a file that could still be read. One sentence for each problem."


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


class _View(BaseModel):
    """The base of all answers of these routes."""

    model_config = ConfigDict(frozen=True)


class DocumentError(_View):
    """Why the file could not be read."""

    error_type: Literal["VALIDATION", "IO", "MODEL", "SYSTEM"]
    code: str = Field(examples=["PDF_ENCRYPTED"])
    message: str = Field(description="A sentence for a person.")

    @classmethod
    def of(cls, error: Mapping[str, Any] | None) -> DocumentError | None:
        """The error of a record, without the detail that is for operators."""
        if error is None:
            return None
        return cls(error_type=error["error_type"], code=error["code"], message=error["message"])


class DocumentReceipt(_View):
    """The job is recorded. It will be processed, or end with a reason. A duplicate gets the first receipt again."""

    job_id: str
    status: DocumentStatus = Field(description="The status now.")
    duplicate: bool = Field(description="Whether the same job had been accepted before.")
    cached: bool = Field(description="Whether the result of an earlier job is used.")
    queued: bool = Field(
        description="False: the job is in the ledger, but not yet in the queue. It will be queued later."
    )
    accepted_at: Instant


class DocumentView(_View):
    """One job and its status."""

    job_id: str
    job_type: str
    input_type: str
    status: DocumentStatus
    stage: str | None = Field(description="The step that is running.", examples=["reading"])
    progress: float = Field(description="Percent.")
    unit: Literal["page", "chunk"] | None = Field(description="What is counted; null until the file was opened.")
    pages_done: int | None = Field(description="Only for a PDF.")
    pages: int | None = Field(description="Only for a PDF; null until it was opened.")
    chunks_done: int | None = Field(description="Only for a recording.")
    chunks: int | None = Field(description="Only for a recording; null until it was opened.")
    attempts: int
    max_attempts: int | None
    error: DocumentError | None = Field(description="The error of the last failed attempt.")
    warnings: list[str] = Field(description=_WARNINGS)
    engine: str | None
    language: str | None
    filename: str | None = Field(description="Only for an upload.")
    metadata: dict[str, Any] | None = Field(description="Your own data, as you sent it.")
    cached: bool
    cancel_requested: bool
    replay_of: str | None = Field(description="The id of the job that this job replays.")
    replayed_as: str | None = Field(description="The id of the job that replays this job.")
    accepted_at: Instant | None
    started_at: Instant | None
    finished_at: Instant | None
    expires_at: Instant | None = Field(description="When the record is deleted; null while the job is open.")

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> DocumentView:
        """The view of a record."""
        unit = record.get("unit")
        done, units = record.get("units_done"), record.get("units")
        pages, chunks = unit == "page", unit == "chunk"
        return cls(
            job_id=record["job_id"],
            job_type=record["job_type"],
            input_type=record["input_type"],
            status=status_of(record),
            stage=record.get("stage"),
            progress=record.get("progress") or 0,
            unit=unit,
            pages_done=done if pages else None,
            pages=units if pages else None,
            chunks_done=done if chunks else None,
            chunks=units if chunks else None,
            attempts=record.get("attempts") or 0,
            max_attempts=record.get("max_attempts"),
            error=DocumentError.of(record.get("error")),
            warnings=record.get("warnings") or [],
            engine=record.get("engine"),
            language=record.get("language"),
            filename=record.get("filename"),
            metadata=record.get("metadata"),
            cached=bool(record.get("cached")),
            cancel_requested=bool(record.get("cancel_requested")),
            replay_of=record.get("replay_of"),
            replayed_as=record.get("replayed_as"),
            accepted_at=_instant(record, "accepted_at"),
            started_at=_instant(record, "started_at"),
            finished_at=_instant(record, "finished_at"),
            expires_at=_instant(record, "expires_at"),
        )


class DocumentList(_View):
    """Jobs of one tenant, newest first."""

    items: list[DocumentView]
    next: str | None = Field(description="Pass it as `cursor` for more; null on the last page.")


class DocumentResult(_View):
    """The result of a job."""

    job_id: str
    status: Literal[DocumentStatus.COMPLETED, DocumentStatus.FAILED, DocumentStatus.CANCELLED]
    duration_sec: float | None
    output_path: str | None = Field(description="The folder of the output files; null unless `COMPLETED`.")
    pages: int | None = Field(description="Only for a PDF.")
    engine: str | None
    model: str | None
    language: str | None
    characters: int | None
    confidence: float | None = Field(description="From 0 to 1; null if the engine gives none.")
    media_seconds: float | None = Field(description="The length of a recording.")
    units_reused: int | None = Field(description="Pages or chunks that an earlier attempt has read.")
    warnings: list[str] = Field(description=_WARNINGS)
    cached: bool
    error: DocumentError | None
    finished_at: Instant | None
    expires_at: Instant | None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> DocumentResult:
        """The view of a result; or of the record of a finished job that has no result."""
        return cls(**_result_fields(record))


class DocumentContent(DocumentResult):
    """The result of a job, with the content that was read."""

    content: dict[str, Any] | None = Field(
        description="`result.json`: pages with lines, or timed segments, with confidences. Null unless `COMPLETED`."
    )

    @classmethod
    def whole(cls, record: Mapping[str, Any], content: dict[str, Any] | None) -> DocumentContent:
        """The result with its content."""
        return cls(**_result_fields(record), content=content)


class CachedDocument(DocumentReceipt):
    """The same file was read in the same way before. This is the result; no job will run."""

    cached: Literal[True] = True
    result: DocumentResult


class DocumentCancel(_View):
    """The status of a job after a request to cancel it."""

    job_id: str
    status: DocumentStatus
    cancel_requested: bool = Field(description="True: the job is running, and will stop soon.")


def status_of(record: Mapping[str, Any]) -> DocumentStatus:
    """The status in a record."""
    return DocumentStatus(record["status"])


def _result_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "job_id": record["job_id"],
        "status": status_of(record),
        "duration_sec": record.get("duration_sec"),
        "output_path": record.get("output_path"),
        "pages": record.get("pages"),
        "engine": record.get("engine"),
        "model": record.get("model"),
        "language": record.get("language"),
        "characters": record.get("characters"),
        "confidence": record.get("confidence"),
        "media_seconds": record.get("media_seconds"),
        "units_reused": record.get("units_reused"),
        "warnings": record.get("warnings") or [],
        "cached": bool(record.get("cached")),
        "error": DocumentError.of(record.get("error")),
        "finished_at": _instant(record, "finished_at"),
        "expires_at": _instant(record, "expires_at"),
    }


def _instant(record: Mapping[str, Any], name: str) -> datetime | None:
    text = record.get(name)
    return None if text is None else datetime.fromisoformat(text)
