"""Examples of the bodies that the documents routes accept and return, by the name of the schema or of the path."""

from __future__ import annotations

from typing import Any, Final

_JOB_ID: Final = "ocr-009"
_ACCEPTED: Final = "2026-01-25T11:02:01.000Z"
_FINISHED: Final = "2026-01-25T11:02:14.000Z"
_EXPIRES: Final = "2026-02-24T11:02:14.000Z"

_RECEIPT: Final[dict[str, Any]] = {
    "job_id": _JOB_ID,
    "status": "PENDING",
    "duplicate": False,
    "cached": False,
    "queued": True,
    "accepted_at": _ACCEPTED,
}
_JOB: Final[dict[str, Any]] = {
    "job_id": _JOB_ID,
    "job_type": "OCR",
    "input_type": "PDF",
    "status": "PROCESSING",
    "stage": "reading",
    "progress": 40,
    "unit": "page",
    "pages_done": 2,
    "pages": 5,
    "chunks_done": None,
    "chunks": None,
    "attempts": 1,
    "max_attempts": 3,
    "error": None,
    "warnings": [],
    "engine": "local",
    "language": "pt",
    "filename": "contract.pdf",
    "metadata": {"case": "2026-17"},
    "cached": False,
    "cancel_requested": False,
    "replay_of": None,
    "replayed_as": None,
    "accepted_at": _ACCEPTED,
    "started_at": "2026-01-25T11:02:01.120Z",
    "finished_at": None,
    "expires_at": None,
}
_RESULT: Final[dict[str, Any]] = {
    "job_id": _JOB_ID,
    "status": "COMPLETED",
    "duration_sec": 12.8,
    "output_path": f"/srv/holdfast/documents/results/{_JOB_ID}/1",
    "pages": 1,
    "engine": "local",
    "model": "rapidocr",
    "language": "pt",
    "characters": 31,
    "confidence": 0.98,
    "media_seconds": None,
    "units_reused": 0,
    "warnings": ["The end mark is missing: the file may have been cut off, and pages may be missing."],
    "cached": False,
    "error": None,
    "finished_at": _FINISHED,
    "expires_at": _EXPIRES,
}
_OPTIONS: Final = {"job_type": "OCR", "input_type": "PDF", "job_id": _JOB_ID, "language": "pt"}

DOCUMENT_EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "DocumentRequest": {**_OPTIONS, "url": "https://example.com/contract.pdf", "metadata": {"case": "2026-17"}},
    "DocumentForm": {"file": "%PDF-1.7 ...", **_OPTIONS, "metadata": {"case": "2026-17"}},
    "DocumentReceipt": _RECEIPT,
    "CachedDocument": {
        **_RECEIPT,
        "status": "COMPLETED",
        "cached": True,
        "result": {**_RESULT, "cached": True},
    },
    "DocumentView": _JOB,
    "DocumentList": {"items": [_JOB], "next": None},
    "DocumentContent": {
        **_RESULT,
        "content": {
            "job_id": _JOB_ID,
            "pages": [{"number": 1, "text": "Contrato de prestação de serviço", "source": "ocr", "confidence": 0.98}],
        },
    },
    "DocumentCancel": {"job_id": _JOB_ID, "status": "CANCELLED", "cancel_requested": False},
}

TEXT_EXAMPLES: Final[dict[str, str]] = {
    "text": "Contrato de prestação de serviço\n",
    "markdown": "## Page 1\n\nContrato de prestação de serviço\n",
    "srt": "1\n00:00:00,000 --> 00:00:02,400\nGood morning, everybody.\n",
    "vtt": "WEBVTT\n\n00:00:00.000 --> 00:00:02.400\nGood morning, everybody.\n",
    "events": 'retry: 2000\n\nevent: progress\ndata: {"job_id": "ocr-009", "status": "PROCESSING", ...}\n\n',
}
"""Answers that are not JSON, by the last part of their path."""
