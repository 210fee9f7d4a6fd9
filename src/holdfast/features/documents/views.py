"""The shapes of the documents routes' answers. Field names on the wire are snake_case, as in rules D8 and D9."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import ConfigDict, Field

from holdfast.views import Instant, View

from .records import DocumentStatus, given_id

_WARNINGS: Final = "What is wrong with a file that could still be read. One sentence for each problem."
_WARNING: Final = "The end mark is missing: the file may have been cut off, and pages may be missing."
_JOB_ID: Final = "ocr-009"


class _View(View):
    """The base of all answers of these routes."""

    model_config = ConfigDict(alias_generator=None)


class DocumentError(_View):
    """Why the file could not be read."""

    error_type: Literal["VALIDATION", "IO", "MODEL", "SYSTEM"]
    code: str = Field(examples=["PDF_ENCRYPTED"])
    message: str = Field(description="A sentence for a person.", examples=["The PDF is encrypted."])

    @classmethod
    def of(cls, error: Mapping[str, Any] | None) -> DocumentError | None:
        """The error of a record, without the detail that is for operators."""
        return None if error is None else cls.picked(error)


class DocumentReceipt(_View):
    """The job is recorded. It will be processed, or end with a reason. A duplicate gets the first receipt again."""

    job_id: str = Field(examples=[_JOB_ID])
    status: DocumentStatus = Field(description="The status now.", examples=["PENDING"])
    duplicate: bool = Field(description="Whether the same job had been accepted before.")
    cached: bool = Field(description="Whether the result of an earlier job is used.")
    queued: bool = Field(
        description="False: the job is in the ledger, but not yet in the queue. It will be queued later.",
        examples=[True],
    )
    accepted_at: Instant


class DocumentView(_View):
    """One job and its status."""

    job_id: str = Field(examples=[_JOB_ID])
    job_type: str = Field(examples=["OCR"])
    input_type: str = Field(examples=["PDF"])
    status: DocumentStatus = Field(examples=["PROCESSING"])
    stage: str | None = Field(description="The step that is running.", examples=["reading"])
    progress: float = Field(description="Percent.", examples=[40])
    unit: Literal["page", "chunk"] | None = Field(
        description="What is counted; null until the file was opened.", examples=["page"]
    )
    pages_done: int | None = Field(description="Only for a PDF.", examples=[2])
    pages: int | None = Field(description="Only for a PDF; null until it was opened.", examples=[5])
    chunks_done: int | None = Field(description="Only for a recording.")
    chunks: int | None = Field(description="Only for a recording; null until it was opened.")
    attempts: int
    max_attempts: int | None = Field(examples=[3])
    error: DocumentError | None = Field(description="The error of the last failed attempt.", examples=[None])
    warnings: list[str] = Field(description=_WARNINGS)
    engine: str | None = Field(examples=["local"])
    language: str | None = Field(examples=["pt"])
    filename: str | None = Field(description="Only for an upload.", examples=["contract.pdf"])
    metadata: dict[str, Any] | None = Field(
        description="Your own data, as you sent it.", examples=[{"case": "2026-17"}]
    )
    cached: bool
    cancel_requested: bool
    replay_of: str | None = Field(description="The id of the job that this job replays.")
    replayed_as: str | None = Field(description="The id of the job that replays this job.")
    accepted_at: Instant | None = Field(examples=["2026-01-25T11:02:01.000Z"])
    started_at: Instant | None = Field(examples=["2026-01-25T11:02:01.120Z"])
    finished_at: Instant | None
    expires_at: Instant | None = Field(description="When the record is deleted; null while the job is open.")

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> DocumentView:
        """The view of a record."""
        done, units = record.get("units_done"), record.get("units")
        pages, chunks = record.get("unit") == "page", record.get("unit") == "chunk"
        return cls.picked(
            record,
            job_id=given_id(record),
            progress=record.get("progress") or 0,
            pages_done=done if pages else None,
            pages=units if pages else None,
            chunks_done=done if chunks else None,
            chunks=units if chunks else None,
            attempts=record.get("attempts") or 0,
            error=DocumentError.of(record.get("error")),
            warnings=record.get("warnings") or [],
            cached=bool(record.get("cached")),
            cancel_requested=bool(record.get("cancel_requested")),
        )


class DocumentList(_View):
    """Jobs of one tenant, newest first."""

    items: list[DocumentView]
    next: str | None = Field(description="Pass it as `cursor` for more; null on the last page.")


class DocumentResult(_View):
    """The result of a job."""

    job_id: str = Field(examples=[_JOB_ID])
    status: Literal[DocumentStatus.COMPLETED, DocumentStatus.FAILED, DocumentStatus.CANCELLED]
    duration_sec: float | None = Field(examples=[12.8])
    output_path: str | None = Field(
        description="The folder of the output files; null unless `COMPLETED`.",
        examples=[f"/srv/holdfast/documents/results/{_JOB_ID}/1"],
    )
    pages: int | None = Field(description="Only for a PDF.", examples=[1])
    engine: str | None = Field(examples=["local"])
    model: str | None = Field(examples=["rapidocr"])
    language: str | None = Field(examples=["pt"])
    characters: int | None = Field(examples=[31])
    confidence: float | None = Field(description="From 0 to 1; null if the engine gives none.", examples=[0.98])
    media_seconds: float | None = Field(description="The length of a recording.")
    units_reused: int | None = Field(description="Pages or chunks that an earlier attempt has read.", examples=[0])
    warnings: list[str] = Field(description=_WARNINGS, examples=[[_WARNING]])
    cached: bool
    error: DocumentError | None = Field(examples=[None])
    finished_at: Instant | None = Field(examples=["2026-01-25T11:02:14.000Z"])
    expires_at: Instant | None = Field(examples=["2026-02-24T11:02:14.000Z"])

    @classmethod
    def of(cls, record: Mapping[str, Any], **more: Any) -> Self:  # noqa: ANN401 - the values of fields
        """The view of a result; or of the record of a finished job that has no result."""
        return cls.picked(
            record,
            job_id=given_id(record),
            warnings=record.get("warnings") or [],
            cached=bool(record.get("cached")),
            error=DocumentError.of(record.get("error")),
            **more,
        )


class DocumentContent(DocumentResult):
    """The result of a job, with the content that was read."""

    content: dict[str, Any] | None = Field(
        description="`result.json`: pages with lines, or timed segments, with confidences. Null unless `COMPLETED`.",
        examples=[{"job_id": _JOB_ID, "pages": [{"number": 1, "text": "Contrato de prestação de serviço"}]}],
    )


class CachedDocument(DocumentReceipt):
    """The same file was read in the same way before. This is the result; no job will run."""

    status: DocumentStatus = Field(description="The status now.", examples=["COMPLETED"])
    cached: Literal[True] = True
    result: DocumentResult


class DocumentCancel(_View):
    """The status of a job after a request to cancel it."""

    job_id: str = Field(examples=[_JOB_ID])
    status: DocumentStatus = Field(examples=["CANCELLED"])
    cancel_requested: bool = Field(description="True: the job is running, and will stop soon.")


def status_of(record: Mapping[str, Any]) -> DocumentStatus:
    """The status in a record."""
    return DocumentStatus(record["status"])
