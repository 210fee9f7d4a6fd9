"""The units of an attempt, which are its pages or chunks of sound, while the reading goes on.

Checkpoints: each unit is committed while the reading goes on, so no later attempt reads it again.

Checkpoints are records of the store, written under the job's lease. A worker that has lost the lease writes none.

The spool keeps the units and outputs of one attempt in temporary files, so that the memory does not grow with the
document.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import IO, Any, Final

from holdfast import Context, Effect, Upsert, isoformat
from holdfast.feature import refused

from .failures import Code, DocumentFailure
from .records import UNITS, unit_id

_AT_ONCE: Final = 4
_MOST_IN_ONE_COMMIT: Final = 200
_MOST_BYTES: Final = 4 * 1024 * 1024
"""Of the units in one commit, unless one unit alone has more, and of the units that wait for the next commit."""


async def units_of(context: Context, work: str) -> AsyncGenerator[dict[str, Any], None]:
    """What earlier attempts have read of this work: the units from the first on, without a gap."""
    for first in count(0, _AT_ONCE):
        keys = [unit_id(work, index) for index in range(first, first + _AT_ONCE)]
        for record in await asyncio.gather(*(context.get(UNITS, key) for key in keys)):
            if record is None:
                return
            yield record["result"]


class Checkpoints:
    """Commits units in the order of their arrival. Units that arrive during a commit go into the next commit together.

    When many bytes wait, the reading waits for the commit. So the memory does not grow with the document.

    ``commit`` writes effects under the job's lease. ``reached`` makes the effect with the job's progress; it is written
    with the units.
    """

    def __init__(
        self,
        work: str,
        commit: Callable[[Sequence[Effect]], Awaitable[None]],
        reached: Callable[[int], Effect],
        *,
        keep: timedelta,
    ) -> None:
        self._work = work
        self._commit = commit
        self._reached = reached
        self._keep = keep
        self._waiting: list[tuple[int, dict[str, Any], int]] = []
        self._waiting_bytes = 0
        self._committing: asyncio.Task[None] | None = None

    async def add(self, index: int, result: dict[str, Any], size: int) -> None:
        """Commit this unit of so many bytes soon. Raises the error of an earlier commit, such as a lost lease."""
        if self._waiting_bytes + size > _MOST_BYTES:
            await self.flush()
        self._waiting.append((index, result, size))
        self._waiting_bytes += size
        if self._committing is not None and self._committing.done():
            self._committing.result()
            self._committing = None
        if self._committing is None:
            self._committing = asyncio.get_running_loop().create_task(self._run())

    async def flush(self) -> None:
        """Return when all are committed."""
        if self._committing is not None:
            await self._committing

    async def give_up(self) -> None:
        """Cancel the commit under way, and return when it has ended."""
        if self._committing is not None:
            self._committing.cancel()
            await asyncio.gather(self._committing, return_exceptions=True)

    async def _run(self) -> None:
        while self._waiting:
            batch = self._waiting[:_MOST_IN_ONE_COMMIT]
            del self._waiting[:_MOST_IN_ONE_COMMIT]
            self._waiting_bytes -= sum(size for _, _, size in batch)
            until = isoformat(datetime.now(UTC) + self._keep)
            effects: list[Effect] = [
                Upsert(UNITS, unit_id(self._work, index), {"result": result, "expires_at": until})
                for index, result, _ in batch
            ]
            await self._commit([*effects, self._reached(batch[-1][0] + 1)])


_UNITS: Final = "units"
_OUTPUTS: Final = "outputs"


class Spool:
    """The units that are read so far, in a file of ``folder``. All methods block.

    ``limit`` is the most bytes of all units together, and of all output files together.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self.size = 0

    def add(self, unit: Mapping[str, Any]) -> int:
        """Write one unit. Returns its size in bytes. Raises :class:`DocumentFailure` over the limit."""
        line = json.dumps(unit, ensure_ascii=False).encode("utf-8", "surrogatepass")
        self.size += len(line)
        if self.size > self._limit:
            raise too_large(Cap.JOB, self._limit)
        with (self._folder / _UNITS).open("ab") as file:
            file.write(line + b"\n")
        return len(line)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All units in their order, one at a time."""
        if not self.size:
            return
        with (self._folder / _UNITS).open("rb") as file:
            for line in file:
                yield json.loads(line)

    def write_outputs(self, pieces: Iterable[tuple[str, bytes]]) -> tuple[dict[str, Path], int]:
        """Write output files piece by piece: their paths by name, and their size together.

        Raises :class:`DocumentFailure` over the limit.
        """
        folder = self._folder / _OUTPUTS
        folder.mkdir(mode=0o700)
        size = 0
        files: dict[str, IO[bytes]] = {}
        with ExitStack() as stack:
            for name, piece in pieces:
                size += len(piece)
                if size > self._limit:
                    raise too_large(Cap.JOB, self._limit)
                if name not in files:
                    files[name] = stack.enter_context((folder / name).open("xb"))
                files[name].write(piece)
        return {name: folder / name for name in files}, size


class Cap(StrEnum):
    """A limit of the output, by the name under which refusals are counted."""

    PAGE = "document_page_output_bytes"
    JOB = "document_output_bytes"
    TENANT = "tenant_stored_bytes"


_WHAT: Final = {
    Cap.PAGE: "one page, or one stretch of sound, gives more than {limit} bytes (DOCUMENT_MAX_PAGE_OUTPUT_BYTES)",
    Cap.JOB: "all pages together give more than {limit} bytes of output files (DOCUMENT_MAX_OUTPUT_BYTES)",
    Cap.TENANT: "the files of the tenant would have more than {limit} bytes (DOCUMENT_TENANT_BYTES)",
}


def too_large(cap: Cap, limit: int) -> DocumentFailure:
    """The failure of a job with too much output. Its detail tells the cap. The refusal is counted."""
    refused(cap, limit=limit)
    return DocumentFailure(Code.OUTPUT_TOO_LARGE, detail=_WHAT[cap].format(limit=limit))
