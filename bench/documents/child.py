"""Reading in the real child process, kept as a worker keeps it, with its memory and processor time looked at."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from holdfast.features.documents.child.protocol import Plan, Spec, Stage, Unit
from holdfast.features.documents.options import DocumentOptions
from holdfast.features.documents.running import ChildOptions, read_in_child

from .memory import LOOK_EVERY, Watch, cpu_of_children

_LONG: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a child read, and what it took. ``units`` are pages or stretches of sound as the worker gets them.

    ``seconds`` are from before its start until after its end; ``cpu_seconds`` are all threads'. ``peak_bytes`` is the
    most memory that it ever had at once, pages of files included; None where the system does not tell.
    """

    units: list[dict[str, Any]]
    seconds: float
    cpu_seconds: float
    peak_bytes: int | None
    duration: float | None

    @property
    def texts(self) -> list[str]:
        """Of each page, or of each stretch of sound."""
        return [each["text"] if "text" in each else _said(each) for each in self.units]

    @property
    def at_work(self) -> float:
        """Seconds that the units took, without starting the child and loading its models."""
        return float(sum(each["seconds"] for each in self.units))


def read(content: bytes, *, kind: str, language: str | None = None) -> Reading:
    """Have a file read with the settings that a worker has by default. ``kind`` is PDF or AUDIO."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        defaults = DocumentOptions(scratch=Path(folder))
        spec = Spec(
            path=str(path),
            job_type="OCR" if kind == "PDF" else "TRANSCRIPTION",
            input_type="PDF" if kind == "PDF" else "AUDIO",
            language=language,
            threads=defaults.threads,
            chunk_seconds=defaults.chunk_seconds,
        )
        return asyncio.run(_read(spec, defaults.memory))


async def _read(spec: Spec, memory: int | None) -> Reading:
    units: list[dict[str, Any]] = []
    plans: list[Plan] = []

    async def hear(message: Plan | Unit | Stage) -> None:
        if isinstance(message, Unit):
            units.append(message.result)
        elif isinstance(message, Plan):
            plans.append(message)

    used, began = cpu_of_children(), time.perf_counter()
    async with _watched() as watch:
        await read_in_child(spec, ChildOptions(memory=memory, unit_timeout=_LONG, total_timeout=_LONG), hear)
    return Reading(
        units=units,
        seconds=time.perf_counter() - began,
        cpu_seconds=cpu_of_children() - used,
        peak_bytes=watch.peak,
        duration=plans[0].duration,
    )


@contextlib.asynccontextmanager
async def _watched() -> AsyncIterator[Watch]:
    watch = Watch()

    async def look() -> None:
        while True:
            watch.look()
            await asyncio.sleep(LOOK_EVERY)

    looking = asyncio.create_task(look())
    try:
        yield watch
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


def _said(chunk: dict[str, Any]) -> str:
    return " ".join(segment["text"].strip() for segment in chunk["segments"])
