"""Units and outputs of one attempt in temporary files, so that the memory does not grow with the document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Final

from holdfast.feature import refused

from .failures import Code, DocumentFailure

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
