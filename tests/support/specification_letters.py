"""The dead letters of documents that the specification itself shows (sections 4.1 and 4.2), literally."""

from __future__ import annotations

import json
from typing import Any, Final

EXAMPLE_4_1: Final[dict[str, Any]] = json.loads("""
{
"job_id": "ocr-009",
"job_type": "OCR",
"input_type": "PDF",
"payload": {
"local_path": "samples/missing.pdf"
},
"status": "FAILED",
"error": "File not found: samples/missing.pdf",
"error_type": "IO",
"attempts": 3,
"max_attempts": 3,
"failed_at": "2026-01-25T11:02:14Z",
"schema_version": "v1"
}
""")
EXAMPLE_4_2: Final[dict[str, Any]] = json.loads("""
{
"job_id": "tr-017",
"job_type": "TRANSCRIPTION",
"input_type": "VIDEO",
"payload": {
"url": "<https://example.com/private>"
},
"status": "FAILED",
"error": "Unable to download audio",
"error_type": "IO",
"attempts": 2,
"max_attempts": 2,
"failed_at": "2026-01-25T11:10:47Z",
"schema_version": "v1"
}
""")
REQUIRED: Final = ("job_id", "job_type", "input_type", "payload", "status", "error", "attempts", "failed_at")
"""Section 3."""

EXAMPLES: Final = (EXAMPLE_4_1, EXAMPLE_4_2)
BARE: Final = tuple({name: example[name] for name in REQUIRED} for example in EXAMPLES)
"""The same letters with no more than what is required."""
