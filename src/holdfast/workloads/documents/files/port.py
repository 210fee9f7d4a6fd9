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

    Uploads are named by their content, so that one that comes twice is kept once. Both are forgotten some time after
    they were last of use; :meth:`sweep` does that where the storage does not do it itself.
    """

    async def open(self) -> None:
        """Make ready."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...

    async def keep(self, content: AsyncIterator[bytes], limit: int) -> Stored:
        """Keep an upload while it arrives; never all of it in memory. Raises :class:`UploadTooLarge`.

        When this returns, the file is durable under its name. When it raises or is cancelled, nothing is left behind.
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
        """Whether they are there; being asked for counts as use."""
        ...

    async def sweep(self, older_than: timedelta) -> int:
        """Forget what has not been of use for so long, and what was left by a crash. The number of files."""
        ...
