"""Hearing what the engine says about itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.telemetry import attach, detach

Said = list[tuple[str, dict[str, Any]]]


@contextmanager
def hearing() -> Iterator[Said]:
    """Every event that is emitted during the body, with its fields."""
    said: Said = []

    def exporter(event: str, fields: dict[str, Any]) -> None:
        said.append((event, fields))

    attach(exporter)
    try:
        yield said
    finally:
        detach(exporter)
