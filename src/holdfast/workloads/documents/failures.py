"""Why a document could not be read: every cause, its kind, and whether trying again can help. This table decides.

``error_type`` is seed 003's: VALIDATION (the job or its file is not what it has to be), IO (the file could not be had),
MODEL (the engine that reads it said no), SYSTEM (our own machinery). IO and MODEL may pass and are tried again, and so
is what a crash cost; what cannot pass goes to the dead letters at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from holdfast.contracts.outcomes import Reject, Retry


class ErrorType(StrEnum):
    """The high-level category of a failure (seed 003)."""

    VALIDATION = "VALIDATION"
    IO = "IO"
    MODEL = "MODEL"
    SYSTEM = "SYSTEM"


class Code(StrEnum):
    """What exactly was the matter."""

    # The job or its file is not what it has to be.
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
    PATH_NOT_ALLOWED = "PATH_NOT_ALLOWED"
    ADDRESS_BLOCKED = "ADDRESS_BLOCKED"
    ENGINE_UNAVAILABLE = "ENGINE_UNAVAILABLE"
    # The file could not be had.
    FILE_NOT_FOUND = "FILE_NOT_FOUND"
    FILE_UNREADABLE = "FILE_UNREADABLE"
    HTTP_STATUS = "HTTP_STATUS"
    DOWNLOAD_FAILED = "DOWNLOAD_FAILED"
    DOWNLOAD_TIMEOUT = "DOWNLOAD_TIMEOUT"
    STORAGE_UNAVAILABLE = "STORAGE_UNAVAILABLE"
    # The engine that reads it said no.
    MODEL_REFUSED = "MODEL_REFUSED"
    MODEL_REJECTED = "MODEL_REJECTED"
    MODEL_RATE_LIMIT = "MODEL_RATE_LIMIT"
    MODEL_UNAVAILABLE = "MODEL_UNAVAILABLE"
    MODEL_TIMEOUT = "MODEL_TIMEOUT"
    MODEL_MALFORMED = "MODEL_MALFORMED"
    MODEL_TRUNCATED = "MODEL_TRUNCATED"
    MODEL_FILES_DAMAGED = "MODEL_FILES_DAMAGED"
    # Our own machinery.
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    TIMEOUT = "TIMEOUT"
    CHILD_CRASHED = "CHILD_CRASHED"
    WORKER_LOST = "WORKER_LOST"
    UNEXPECTED = "UNEXPECTED"


@dataclass(frozen=True, slots=True)
class Kind:
    """What happens next with such a failure, and the words for it where the failure has none of its own."""

    error_type: ErrorType
    retried: bool
    words: str


_V, _I, _M, _S = ErrorType.VALIDATION, ErrorType.IO, ErrorType.MODEL, ErrorType.SYSTEM

TABLE: Final[dict[Code, Kind]] = {
    Code.VALIDATION_FAILED: Kind(_V, retried=False, words="The job does not fulfil its contract"),
    Code.IDEMPOTENCY_CONFLICT: Kind(_V, retried=False, words="Another job has this job_id"),
    Code.CONTENT_MISMATCH: Kind(_V, retried=False, words="The file is not what input_type says"),
    Code.PDF_ENCRYPTED: Kind(_V, retried=False, words="The PDF is encrypted"),
    Code.PDF_CORRUPT: Kind(_V, retried=False, words="The PDF is damaged"),
    Code.PDF_NO_PAGES: Kind(_V, retried=False, words="The PDF has no pages"),
    Code.MEDIA_CORRUPT: Kind(_V, retried=False, words="The recording is damaged"),
    Code.NO_AUDIO_TRACK: Kind(_V, retried=False, words="The file has no audio track"),
    Code.UNSUPPORTED_CODEC: Kind(_V, retried=False, words="The audio is in a codec that is not known here"),
    Code.TOO_LARGE: Kind(_V, retried=False, words="The file is too large"),
    Code.PATH_NOT_ALLOWED: Kind(_V, retried=False, words="The path is outside the folders that may be read"),
    Code.ADDRESS_BLOCKED: Kind(_V, retried=False, words="The URL leads to an address that must not be fetched"),
    Code.ENGINE_UNAVAILABLE: Kind(_V, retried=False, words="The engine is not set up here"),
    Code.FILE_NOT_FOUND: Kind(_I, retried=True, words="File not found"),
    Code.FILE_UNREADABLE: Kind(_I, retried=True, words="The file cannot be read"),
    Code.HTTP_STATUS: Kind(_I, retried=True, words="Unable to download the file"),
    Code.DOWNLOAD_FAILED: Kind(_I, retried=True, words="Unable to download the file"),
    Code.DOWNLOAD_TIMEOUT: Kind(_I, retried=True, words="Unable to download the file"),
    Code.STORAGE_UNAVAILABLE: Kind(_I, retried=True, words="The storage of files does not answer"),
    Code.MODEL_REFUSED: Kind(_M, retried=False, words="The model refused the content"),
    Code.MODEL_REJECTED: Kind(_M, retried=False, words="The model rejected the request"),
    Code.MODEL_RATE_LIMIT: Kind(_M, retried=True, words="The model's rate limit is reached"),
    Code.MODEL_UNAVAILABLE: Kind(_M, retried=True, words="The model is not available"),
    Code.MODEL_TIMEOUT: Kind(_M, retried=True, words="The model did not answer in time"),
    Code.MODEL_MALFORMED: Kind(_M, retried=True, words="The model's answer cannot be read"),
    Code.MODEL_TRUNCATED: Kind(_M, retried=False, words="The model's answer was cut short"),
    Code.MODEL_FILES_DAMAGED: Kind(_M, retried=False, words="The model's files are missing or damaged"),
    Code.OUT_OF_MEMORY: Kind(_S, retried=True, words="The work needed more memory than it may have"),
    Code.TIMEOUT: Kind(_S, retried=True, words="The work did not finish in time"),
    Code.CHILD_CRASHED: Kind(_S, retried=True, words="The process that did the work crashed"),
    Code.WORKER_LOST: Kind(_S, retried=True, words="The worker vanished"),
    Code.UNEXPECTED: Kind(_S, retried=False, words="An unexpected error"),
}


class DocumentFailure(Exception):
    """A document could not be read. ``message`` is for people; ``detail`` is for whoever mends it.

    Neither holds a secret or anything of the document's content (I14).
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
        self.message = message or TABLE[code].words
        self.detail = detail
        self.retry_after = retry_after
        super().__init__(self.message)

    @property
    def outcome(self) -> Retry | Reject:
        """What the handler returns for it. The first line of an outcome's message is the message, the rest detail."""
        told = self.message if not self.detail else f"{self.message}\n{self.detail}"
        if TABLE[self.code].retried:
            return Retry(self.code, told, self.retry_after)
        return Reject(self.code, told)


def kind_of(code: str) -> Kind:
    """The row of a code; one that the table does not have is a surprise of our own machinery."""
    try:
        return TABLE[Code(code)]
    except ValueError:
        return TABLE[Code.UNEXPECTED]


def told_apart(text: str) -> tuple[str, str | None]:
    """The message and the detail of an outcome's text."""
    message, _, detail = text.partition("\n")
    return message, detail or None
