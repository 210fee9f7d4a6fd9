"""The dead letters of documents that the specification itself shows (D20, D21)."""

from __future__ import annotations

from typing import Any, Final

from .specification import example

EXAMPLE_4_1: Final[dict[str, Any]] = example("documents-dead-letter-missing-file")
EXAMPLE_4_2: Final[dict[str, Any]] = example("documents-dead-letter-unsupported-url")
REQUIRED: Final = ("job_id", "job_type", "input_type", "payload", "status", "error", "attempts", "failed_at")

EXAMPLES: Final = (EXAMPLE_4_1, EXAMPLE_4_2)
BARE: Final = tuple({name: example[name] for name in REQUIRED} for example in EXAMPLES)
"""The same letters with no more than what is required."""
