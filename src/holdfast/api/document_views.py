"""The shapes of the documents routes' answers. Field names on the wire are seed 003's (snake_case)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from .views import Instant

_WARNINGS: Final = "What is wrong with a file that was read all the same: a sentence each."


class DocumentStatus(StrEnum):
    """Where a job stands."""

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


class _Shown(BaseModel):
    """Something that these routes show."""

    model_config = ConfigDict(frozen=True)


class DocumentError(_Shown):
    """Why the file could not be read."""

    error_type: Literal["VALIDATION", "IO", "MODEL", "SYSTEM"]
    code: str = Field(examples=["PDF_ENCRYPTED"])
    message: str = Field(description="A sentence for a person.")

    @classmethod
    def of(cls, error: Mapping[str, Any] | None) -> DocumentError | None:
        """As the records have it, without the detail that is for operators."""
        if error is None:
            return None
        return cls(error_type=error["error_type"], code=error["code"], message=error["message"])


class DocumentReceipt(_Shown):
    """The job is recorded and will be worked, or end with a reason. A duplicate gets the first receipt again."""

    job_id: str
    status: DocumentStatus = Field(description="Where it stands now.")
    duplicate: bool = Field(description="Whether the same job had been accepted before.")
    cached: bool = Field(description="Whether the result of an earlier job is the answer.")
    queued: bool = Field(description="False: the ledger has it and the queue not yet; it will be queued later.")
    accepted_at: Instant


class DocumentView(_Shown):
    """One job and where it stands."""

    job_id: str
    job_type: str
    input_type: str
    status: DocumentStatus
    stage: str | None = Field(description="What is being done.", examples=["reading"])
    progress: float = Field(description="Percent.")
    unit: Literal["page", "chunk"] | None = Field(description="What is counted; null until that is known.")
    pages_done: int | None = Field(description="Of a PDF.")
    pages: int | None = Field(description="Of a PDF; null until it was opened.")
    chunks_done: int | None = Field(description="Of a recording.")
    chunks: int | None = Field(description="Of a recording; null until it was opened.")
    attempts: int
    max_attempts: int | None
    error: DocumentError | None = Field(description="Of the last attempt that failed.")
    warnings: list[str] = Field(description=_WARNINGS)
    engine: str | None
    language: str | None
    filename: str | None = Field(description="Of an upload.")
    metadata: dict[str, Any] | None = Field(description="Yours, as you sent it.")
    cached: bool
    cancel_requested: bool
    replay_of: str | None = Field(description="The job that this one was made from.")
    replayed_as: str | None = Field(description="The job that was made from this one.")
    accepted_at: Instant | None
    started_at: Instant | None
    finished_at: Instant | None
    expires_at: Instant | None = Field(description="When the record itself is deleted; null while the job is open.")

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> DocumentView:
        """As the records have it."""
        unit = document.get("unit")
        done, units = document.get("units_done"), document.get("units")
        pages, chunks = unit == "page", unit == "chunk"
        return cls(
            job_id=document["job_id"],
            job_type=document["job_type"],
            input_type=document["input_type"],
            status=status_of(document),
            stage=document.get("stage"),
            progress=document.get("progress") or 0,
            unit=unit,
            pages_done=done if pages else None,
            pages=units if pages else None,
            chunks_done=done if chunks else None,
            chunks=units if chunks else None,
            attempts=document.get("attempts") or 0,
            max_attempts=document.get("max_attempts"),
            error=DocumentError.of(document.get("error")),
            warnings=document.get("warnings") or [],
            engine=document.get("engine"),
            language=document.get("language"),
            filename=document.get("filename"),
            metadata=document.get("metadata"),
            cached=bool(document.get("cached")),
            cancel_requested=bool(document.get("cancel_requested")),
            replay_of=document.get("replay_of"),
            replayed_as=document.get("replayed_as"),
            accepted_at=_instant(document, "accepted_at"),
            started_at=_instant(document, "started_at"),
            finished_at=_instant(document, "finished_at"),
            expires_at=_instant(document, "expires_at"),
        )


class DocumentList(_Shown):
    """Jobs of one tenant, newest first."""

    items: list[DocumentView]
    next: str | None = Field(description="Pass it as `cursor` for more; null on the last page.")


class DocumentResult(_Shown):
    """What became of a job."""

    job_id: str
    status: Literal[DocumentStatus.COMPLETED, DocumentStatus.FAILED, DocumentStatus.CANCELLED]
    duration_sec: float | None
    output_path: str | None = Field(description="Where the files are kept; null unless `COMPLETED`.")
    pages: int | None = Field(description="Of a PDF.")
    engine: str | None
    model: str | None
    language: str | None
    characters: int | None
    confidence: float | None = Field(description="From 0 to 1, where the engine tells it.")
    media_seconds: float | None = Field(description="Length of a recording.")
    units_reused: int | None = Field(description="Pages or chunks that an earlier attempt had read.")
    warnings: list[str] = Field(description=_WARNINGS)
    cached: bool
    error: DocumentError | None
    finished_at: Instant | None
    expires_at: Instant | None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> DocumentResult:
        """As the results have it; or of a finished job that left none, as its record has it."""
        return cls(**_result_facts(document))


class DocumentContent(DocumentResult):
    """What became of a job, and what was read."""

    content: dict[str, Any] | None = Field(
        description="`result.json`: pages with lines, or timed segments, with confidences. Null unless `COMPLETED`."
    )

    @classmethod
    def whole(cls, document: Mapping[str, Any], content: dict[str, Any] | None) -> DocumentContent:
        """The result with its content."""
        return cls(**_result_facts(document), content=content)


class CachedDocument(DocumentReceipt):
    """The same file was read in the same way before: here is the result, and nothing more will happen."""

    cached: Literal[True] = True
    result: DocumentResult


class DocumentCancel(_Shown):
    """Where a job stands that is not wanted any more."""

    job_id: str
    status: DocumentStatus
    cancel_requested: bool = Field(description="True: it is in work, and will stop soon.")


def status_of(document: Mapping[str, Any]) -> DocumentStatus:
    """Where the job stands."""
    return DocumentStatus(document["status"])


def _result_facts(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "job_id": document["job_id"],
        "status": status_of(document),
        "duration_sec": document.get("duration_sec"),
        "output_path": document.get("output_path"),
        "pages": document.get("pages"),
        "engine": document.get("engine"),
        "model": document.get("model"),
        "language": document.get("language"),
        "characters": document.get("characters"),
        "confidence": document.get("confidence"),
        "media_seconds": document.get("media_seconds"),
        "units_reused": document.get("units_reused"),
        "warnings": document.get("warnings") or [],
        "cached": bool(document.get("cached")),
        "error": DocumentError.of(document.get("error")),
        "finished_at": _instant(document, "finished_at"),
        "expires_at": _instant(document, "expires_at"),
    }


def _instant(document: Mapping[str, Any], name: str) -> datetime | None:
    text = document.get(name)
    return None if text is None else datetime.fromisoformat(text)
