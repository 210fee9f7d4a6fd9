"""Mail as ``.eml`` files in a folder, which any mail program opens. The default of the embedded deployment."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
from pathlib import Path
from typing import Final

from holdfast.blobs import is_plain
from holdfast.blobs.arriving import sync_folder, write_durably

from .port import Accepted, OutgoingMessage, Refused, TryLater

DISK_FULL: Final = "FOLDER_FULL"
NO_RIGHTS: Final = "FOLDER_NO_RIGHTS"
NOT_WRITABLE: Final = "FOLDER_NOT_WRITABLE"
BAD_NAME: Final = "FOLDER_BAD_NAME"

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class FolderTransport:
    """Writes ``<outboxId>.eml``. A file is complete or does not exist, and it survives a power loss.

    Writing a file again changes nothing, so no outcome is ever unknown here. Only our user may read the files.
    """

    name = "folder"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def open(self) -> None:
        """Nothing to do: the first message creates the folder."""

    async def close(self) -> None:
        """Nothing to close."""

    async def send(self, outgoing: OutgoingMessage) -> Accepted:
        """Write the file, unless it exists."""
        if not is_plain(outgoing.outbox_id):
            message = "The outboxId cannot be a file name."
            raise Refused(BAD_NAME, message)
        file_name = f"{outgoing.outbox_id}.eml"
        try:
            await asyncio.to_thread(self._write, file_name, outgoing.raw)
        except OSError as error:
            raise _later(error) from None
        return Accepted(file_name)

    async def check(self) -> None:
        """Check that a file can be created in the folder and removed."""
        try:
            await asyncio.to_thread(self._probe)
        except OSError as error:
            raise _later(error) from None

    def _write(self, file_name: str, raw: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = self._folder / file_name
        if not target.exists():
            unfinished = self._unfinished()
            try:
                write_durably(os.open(unfinished, _CREATE, 0o600), raw)
                unfinished.replace(target)
            finally:
                unfinished.unlink(missing_ok=True)
        # Also for a file that exists: the attempt that wrote it may have failed before this step.
        sync_folder(self._folder)

    def _probe(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = self._unfinished()
        try:
            write_durably(os.open(probe, _CREATE, 0o600), b"")
        finally:
            probe.unlink(missing_ok=True)

    def _unfinished(self) -> Path:
        # The name starts with a dot: no outboxId does, and mail programs ignore such files.
        return self._folder / f".{secrets.token_hex(8)}.tmp"


def _later(error: OSError) -> TryLater:
    if error.errno in _FULL:
        return TryLater(DISK_FULL, "There is no room in the mail folder.")
    if error.errno in _FORBIDDEN:
        return TryLater(NO_RIGHTS, "We have no right to write into the mail folder.")
    return TryLater(
        NOT_WRITABLE, f"The mail folder cannot be written ({errno.errorcode.get(error.errno or 0, 'EIO')})."
    )
