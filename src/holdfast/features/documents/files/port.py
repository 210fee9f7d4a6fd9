"""The port of the storage of files: uploads by their content, results by the job they belong to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from holdfast.contracts.files import Stored


class Files(Protocol):
    """Keeps uploads and results.

    Uploads are named by their content, so the same content is kept once. Uploads and results are removed some time
    after their last use. :meth:`sweep` removes them, unless the storage itself does.
    """

    async def open(self) -> None:
        """Open connections."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...

    async def keep(self, content: AsyncIterator[bytes], limit: int) -> Stored:
        """Keep an upload while it arrives, in pieces. Raises :class:`UploadTooLarge`.

        When this returns, the file is durable under its name. When this raises or is cancelled, no file is left.
        """
        ...

    def local_copy(self, sha256: str) -> AbstractAsyncContextManager[Path]:
        """The upload as a local file, for as long as the context lasts. Raises :class:`FileMissing`."""
        ...

    async def write(self, place: str, outputs: Mapping[str, bytes]) -> str:
        """Keep the output files of a job under ``place`` (``<job_id>/<attempt>``); all are durable when this returns.

        Returns the ``output_path``: a folder's path or an ``s3://`` address. Writing the same place again replaces it.
        """
        ...

    async def read(self, output_path: str, name: str) -> bytes:
        """One output file. Raises :class:`FileMissing`, also for an ``output_path`` that is not of this storage."""
        ...

    async def touch(self, sha256: str | None = None, output_path: str | None = None) -> bool:
        """Whether both exist. This counts as use."""
        ...

    async def sweep(self, older_than: timedelta) -> int:
        """Remove files that were not used for so long, and files that a crash left. Returns the number of files."""
        ...
