"""Why a document could not be read: every cause, its kind, and whether trying again can help. This table decides.

``error_type`` has four values (D14): VALIDATION (the job or its file is wrong), IO (the file could not be fetched or
opened), MODEL (the engine failed or refused), SYSTEM (our own programs failed). A failure that may pass is tried again,
and so is a crash. A failure that cannot pass goes to the dead letters at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from holdfast import Reject, Retry


class ErrorType(StrEnum):
    """The category of a failure (D14)."""

    VALIDATION = "VALIDATION"
    IO = "IO"
    MODEL = "MODEL"
    SYSTEM = "SYSTEM"


class Code(StrEnum):
    """The exact cause of a failure."""

    # The job or its file is wrong.
    VALIDATION_FAILED = "VALIDATION_FAILED"
    IDEMPOTENCY_CONFLICT = "IDEMPOTENCY_CONFLICT"
    CONTENT_MISMATCH = "CONTENT_MISMATCH"
    PDF_ENCRYPTED = "PDF_ENCRYPTED"
    PDF_CORRUPT = "PDF_CORRUPT"
    PDF_NO_PAGES = "PDF_NO_PAGES"
    MEDIA_CORRUPT = "MEDIA_CORRUPT"
    NO_AUDIO_TRACK = "NO_AUDIO_TRACK"
    UNSUPPORTED_CODEC = "UNSUPPORTED_CODEC"
    TOO_LARGE = "TOO_LARGE"
    OUTPUT_TOO_LARGE = "OUTPUT_TOO_LARGE"
    PATH_NOT_ALLOWED = "PATH_NOT_ALLOWED"
    ADDRESS_BLOCKED = "ADDRESS_BLOCKED"
    ENGINE_UNAVAILABLE = "ENGINE_UNAVAILABLE"
    # The file could not be fetched or opened.
    FILE_NOT_FOUND = "FILE_NOT_FOUND"
    FILE_UNREADABLE = "FILE_UNREADABLE"
    HTTP_STATUS = "HTTP_STATUS"
    DOWNLOAD_FAILED = "DOWNLOAD_FAILED"
    DOWNLOAD_TIMEOUT = "DOWNLOAD_TIMEOUT"
    STORAGE_UNAVAILABLE = "STORAGE_UNAVAILABLE"
    # The engine failed or refused.
    MODEL_REFUSED = "MODEL_REFUSED"
    MODEL_REJECTED = "MODEL_REJECTED"
    MODEL_RATE_LIMIT = "MODEL_RATE_LIMIT"
    MODEL_UNAVAILABLE = "MODEL_UNAVAILABLE"
    MODEL_TIMEOUT = "MODEL_TIMEOUT"
    MODEL_MALFORMED = "MODEL_MALFORMED"
    MODEL_TRUNCATED = "MODEL_TRUNCATED"
    MODEL_FILES_DAMAGED = "MODEL_FILES_DAMAGED"
    # Our own programs failed.
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    TIMEOUT = "TIMEOUT"
    CHILD_CRASHED = "CHILD_CRASHED"
    WORKER_LOST = "WORKER_LOST"
    UNEXPECTED = "UNEXPECTED"


@dataclass(frozen=True, slots=True)
class Kind:
    """The category of a failure, whether it is tried again, and its message unless the failure has its own."""

    error_type: ErrorType
    retried: bool
    message: str


_V, _I, _M, _S = ErrorType.VALIDATION, ErrorType.IO, ErrorType.MODEL, ErrorType.SYSTEM

TABLE: Final[dict[Code, Kind]] = {
    Code.VALIDATION_FAILED: Kind(_V, retried=False, message="The job does not fulfil its contract"),
    Code.IDEMPOTENCY_CONFLICT: Kind(_V, retried=False, message="Another job has this job_id"),
    Code.CONTENT_MISMATCH: Kind(_V, retried=False, message="The file is not what input_type says"),
    Code.PDF_ENCRYPTED: Kind(_V, retried=False, message="The PDF is encrypted"),
    Code.PDF_CORRUPT: Kind(_V, retried=False, message="The PDF is damaged"),
    Code.PDF_NO_PAGES: Kind(_V, retried=False, message="The PDF has no pages"),
    Code.MEDIA_CORRUPT: Kind(_V, retried=False, message="The recording is damaged"),
    Code.NO_AUDIO_TRACK: Kind(_V, retried=False, message="The file has no audio track"),
    Code.UNSUPPORTED_CODEC: Kind(_V, retried=False, message="The audio is in a codec that is not known here"),
    Code.TOO_LARGE: Kind(_V, retried=False, message="The file is too large"),
    Code.OUTPUT_TOO_LARGE: Kind(_V, retried=False, message="The file has more text than a result may have"),
    Code.PATH_NOT_ALLOWED: Kind(_V, retried=False, message="The path is outside the folders that may be read"),
    Code.ADDRESS_BLOCKED: Kind(_V, retried=False, message="The URL leads to an address that must not be fetched"),
    Code.ENGINE_UNAVAILABLE: Kind(_V, retried=False, message="The engine is not set up here"),
    Code.FILE_NOT_FOUND: Kind(_I, retried=True, message="File not found"),
    Code.FILE_UNREADABLE: Kind(_I, retried=True, message="The file cannot be read"),
    Code.HTTP_STATUS: Kind(_I, retried=True, message="Unable to download the file"),
    Code.DOWNLOAD_FAILED: Kind(_I, retried=True, message="Unable to download the file"),
    Code.DOWNLOAD_TIMEOUT: Kind(_I, retried=True, message="Unable to download the file"),
    Code.STORAGE_UNAVAILABLE: Kind(_I, retried=True, message="The storage of files does not answer"),
    Code.MODEL_REFUSED: Kind(_M, retried=False, message="The model refused the content"),
    Code.MODEL_REJECTED: Kind(_M, retried=False, message="The model rejected the request"),
    Code.MODEL_RATE_LIMIT: Kind(_M, retried=True, message="The model's rate limit is reached"),
    Code.MODEL_UNAVAILABLE: Kind(_M, retried=True, message="The model is not available"),
    Code.MODEL_TIMEOUT: Kind(_M, retried=True, message="The model did not answer in time"),
    Code.MODEL_MALFORMED: Kind(_M, retried=True, message="The model's answer cannot be read"),
    Code.MODEL_TRUNCATED: Kind(_M, retried=False, message="The model's answer was cut short"),
    Code.MODEL_FILES_DAMAGED: Kind(_M, retried=False, message="The model's files are missing or damaged"),
    Code.OUT_OF_MEMORY: Kind(_S, retried=True, message="The work needed more memory than it may have"),
    Code.TIMEOUT: Kind(_S, retried=True, message="The work did not finish in time"),
    Code.CHILD_CRASHED: Kind(_S, retried=True, message="The process that did the work crashed"),
    Code.WORKER_LOST: Kind(_S, retried=True, message="The worker vanished"),
    Code.UNEXPECTED: Kind(_S, retried=False, message="An unexpected error"),
}


class DocumentFailure(Exception):
    """A document could not be read. ``message`` is for people; ``detail`` helps to find the cause.

    Neither holds a secret or any content of the document (I14).
    """

    def __init__(
        self,
        code: Code,
        message: str | None = None,
        detail: str | None = None,
        *,
        retry_after: timedelta | None = None,
    ) -> None:
        self.code = code
        self.message = message or TABLE[code].message
        self.detail = detail
        self.retry_after = retry_after
        super().__init__(self.message)

    @property
    def outcome(self) -> Retry | Reject:
        """The handler's outcome. Its text has the message in the first line and the detail in the other lines."""
        text = self.message if not self.detail else f"{self.message}\n{self.detail}"
        if TABLE[self.code].retried:
            return Retry(self.code, text, self.retry_after)
        return Reject(self.code, text)


def kind_of(code: str) -> Kind:
    """The row of a code. A code that the table does not have counts as UNEXPECTED."""
    try:
        return TABLE[Code(code)]
    except ValueError:
        return TABLE[Code.UNEXPECTED]


def message_and_detail(text: str) -> tuple[str, str | None]:
    """The message and the detail of an outcome's text."""
    message, _, detail = text.partition("\n")
    return message, detail or None
