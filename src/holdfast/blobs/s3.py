"""Blobs in an S3 bucket: ``<prefix><name>``.

The bucket removes old objects itself: give it a lifecycle rule that expires objects below the prefix, and aborts
multipart uploads that were never completed. An object's age counts from its last write. So a file that is used again
and is older than a day is copied onto itself, inside the bucket.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256 as sha256_of
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
from aiobotocore.session import get_session  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

from holdfast.contracts.files import FileMissing, FilesUnavailable, FileTooLong, Stored

from . import Effects, Reader, parts_of
from .arriving import PIECE, SMALL_PIECE, arrived, in_thread, on_disk, sweep_arriving

PART: Final = 8 * 1024 * 1024
"""Bytes of an upload that are in memory and sent at a time. Larger if there would be too many parts."""

_MOST_PARTS: Final = 10_000
_MOST_COPIED: Final = 5 * 1024**3
_RENEWED_AFTER: Final = timedelta(days=1)
# A missing object. A missing bucket is not in this list: its name is a wrong setting, and the file may well exist.
_NOT_THERE: Final = frozenset({"NoSuchKey", "404", "NotFound"})
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".srt": "application/x-subrip; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".vtt": "text/vtt; charset=utf-8",
}


class S3Blobs:
    """Keeps blobs as objects. Every call is safe to repeat, so the library may repeat it.

    ``prefix`` begins the keys of all objects, and ``suffix`` ends those of blobs. ``scratch`` is a folder for temporary
    copies of files. ``place`` is the bucket's name in messages.
    """

    def __init__(  # noqa: PLR0913 - the parts of a bucket's address
        self,
        bucket: str,
        prefix: str = "",
        *,
        suffix: str = "",
        region: str | None = None,
        endpoint_url: str | None = None,
        scratch: Path | None = None,
        timeout: timedelta = timedelta(seconds=60),
        place: str = "bucket of files",
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._suffix = suffix
        self._region = region
        self._endpoint_url = endpoint_url
        self._scratch_folder = scratch
        self._timeout = timeout.total_seconds()
        self._place = place
        self._resources = AsyncExitStack()
        self._client: Any = None

    async def open(self) -> None:
        """Make the client, and the scratch folder if it is missing."""
        if self._scratch_folder is not None:
            await on_disk(self._scratch_folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        config = AioConfig(
            connect_timeout=self._timeout,
            read_timeout=self._timeout,
            retries={"total_max_attempts": 3, "mode": "standard"},
        )
        self._client = await self._resources.enter_async_context(
            get_session().create_client("s3", region_name=self._region, endpoint_url=self._endpoint_url, config=config)
        )

    async def close(self) -> None:
        """Close all connections."""
        self._client = None
        await self._resources.aclose()

    # --- blobs ------------------------------------------------------------------------------------------------

    async def put(self, name: str, content: bytes, *, until: datetime | None = None) -> Effects:
        """Write the object."""
        del until
        key = self._key(name) + self._suffix
        with self._as_unavailable():
            await self._put_typed(key, content)
        return ()

    async def hold(self, name: str, records: Reader | None = None, *, until: datetime | None = None) -> Effects:
        """Look whether there is an object of this name."""
        del records, until
        key = self._key(name) + self._suffix
        with self._as_unavailable():
            await self._opened().head_object(Bucket=self._bucket, Key=key)
        return ()

    async def get(self, name: str, records: Reader | None = None, *, limit: int | None) -> bytes:
        """Read the object."""
        del records
        key = self._key(name) + self._suffix
        with self._as_unavailable():
            answer = await self._opened().get_object(Bucket=self._bucket, Key=key)
        content = bytearray()
        async with aclosing(self._pieces(answer["Body"])) as pieces:
            async for piece in pieces:
                content += piece
                if limit is not None and len(content) > limit:
                    raise FileTooLong
        return bytes(content)

    async def delete(self, name: str) -> Effects:
        """Remove the object. In a bucket with versioning, older versions stay."""
        with suppress(FileMissing):
            key = self._key(name) + self._suffix
            with self._as_unavailable():
                await self._opened().delete_object(Bucket=self._bucket, Key=key)
        return ()

    # --- files ------------------------------------------------------------------------------------------------

    async def keep(self, content: AsyncIterator[bytes], limit: int, name: Callable[[str], str]) -> Stored:
        """Keep a file. The same content is not sent again."""
        async with arrived(self._scratch, content, limit) as file:
            stored = file.stored
            key = self._key(name(stored.sha256))
            with self._as_unavailable():
                if not await self._renewed(key):
                    await self._send(key, file.stored.size, file.read)
            return stored

    @asynccontextmanager
    async def local_copy(self, name: str, sha256: str) -> AsyncIterator[Path]:
        """A copy whose content was checked. It is removed when the context ends."""
        key = self._key(name)
        with self._as_unavailable():
            answer = await self._opened().get_object(Bucket=self._bucket, Key=key)
        size = int(answer["ContentLength"])
        async with arrived(self._scratch, self._pieces(answer["Body"]), size) as file:
            if file.stored.sha256 != sha256:
                message = "The upload in the bucket does not have the content that its name says."
                raise FilesUnavailable(message)
            yield file.path

    async def put_all(self, folder: str, contents: Mapping[str, bytes | Path]) -> None:
        """Keep files. They replace the files that were in this place."""
        top = self._key(folder) + "/"
        with self._as_unavailable():
            former = await self._keys(top)
            for name, content in contents.items():
                if isinstance(content, Path):
                    await self._send_file(top + name, content)
                else:
                    await self._put_typed(top + name, content)
            for key in former - {top + name for name in contents}:
                await self._opened().delete_object(Bucket=self._bucket, Key=key)

    @asynccontextmanager
    async def opened(self, name: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read the object in pieces."""
        key = self._key(name)
        with self._as_unavailable():
            answer = await self._opened().get_object(Bucket=self._bucket, Key=key)
        async with aclosing(self._pieces(answer["Body"], SMALL_PIECE)) as pieces:
            yield pieces

    async def touch(self, name: str) -> bool:
        """Whether there are files. Files that are older than a day get a new date."""
        key = self._key(name)
        with self._as_unavailable():
            found = await self._keys(f"{key}/") or {key}
            return all([await self._renewed(each) for each in sorted(found)])

    async def sweep(self, older_than: timedelta) -> int:
        """Clean the scratch folder after crashes. Objects are removed by the lifecycle rule."""
        return await on_disk(sweep_arriving, self._scratch, older_than)

    def address(self, name: str) -> str:
        """The ``s3://`` address."""
        return f"s3://{self._bucket}/{self._key(name)}"

    async def _send_file(self, key: str, path: Path) -> None:
        file = await on_disk(path.open, "rb")
        try:
            size = await on_disk(os.path.getsize, path)
            await self._send(key, size, partial(_read_at, file.fileno()), ContentType=_type_of(key))
        finally:
            await on_disk(file.close)

    async def _send(self, key: str, size: int, read: Callable[[int, int], bytes], **more: str) -> None:
        """Send so many bytes, in parts if there are many. ``read`` gets an offset and a size."""
        part = max(PART, -(-size // _MOST_PARTS))
        if size <= part:
            await self._put(key, await on_disk(read, 0, size), **more)
            return
        place = {"Bucket": self._bucket, "Key": key}
        begun = await self._opened().create_multipart_upload(**place, ChecksumAlgorithm="SHA256", **more)
        place["UploadId"] = begun["UploadId"]
        try:
            parts = []
            for number, offset in enumerate(range(0, size, part), start=1):
                body = await on_disk(read, offset, part)
                checksum = await in_thread(_checksum, body)
                sent = await self._opened().upload_part(
                    **place, PartNumber=number, Body=body, ChecksumAlgorithm="SHA256", ChecksumSHA256=checksum
                )
                parts.append({"PartNumber": number, "ETag": sent["ETag"], "ChecksumSHA256": checksum})
            await self._opened().complete_multipart_upload(**place, MultipartUpload={"Parts": parts})
        except BaseException:
            # The parts of an upload that is never completed cost money for ever.
            await _to_the_end(self._opened().abort_multipart_upload(**place))
            raise

    async def _put_typed(self, key: str, content: bytes) -> None:
        await self._put(key, content, ContentType=_type_of(key))

    async def _put(self, key: str, content: bytes, **more: str) -> None:
        checksum = await in_thread(_checksum, content)
        await self._opened().put_object(Bucket=self._bucket, Key=key, Body=content, ChecksumSHA256=checksum, **more)

    async def _renewed(self, key: str) -> bool:
        """Whether the object exists. An old object gets a new date."""
        place = {"Bucket": self._bucket, "Key": key}
        try:
            found = await self._opened().head_object(**place)
            old = found["LastModified"] < datetime.now(UTC) - _RENEWED_AFTER
            if old and found["ContentLength"] <= _MOST_COPIED:
                # A copy onto itself is allowed only if something changes: here the metadata.
                await self._opened().copy_object(
                    **place, CopySource=place, MetadataDirective="REPLACE", ContentType=found["ContentType"]
                )
        except ClientError as error:
            if _code(error) in _NOT_THERE:
                return False
            raise
        return True

    async def _keys(self, folder: str) -> set[str]:
        pages = self._opened().get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=folder)
        return {found["Key"] async for page in pages for found in page.get("Contents", ())}

    async def _pieces(
        self,
        stream: Any,  # noqa: ANN401 - botocore has no types
        size: int = PIECE,
    ) -> AsyncGenerator[bytes, None]:
        with self._as_unavailable():
            async with stream as body:
                while piece := await body.read(size):
                    yield piece

    def _key(self, name: str) -> str:
        parts_of(name)
        return f"{self._prefix}{name}"

    @property
    def _scratch(self) -> Path:
        if self._scratch_folder is None:
            message = "A bucket that keeps files needs a scratch folder."
            raise RuntimeError(message)
        return self._scratch_folder

    @contextmanager
    def _as_unavailable(self) -> Iterator[None]:
        """Turns the library's errors into FileMissing or FilesUnavailable, without the text that they quote."""
        try:
            yield
        except ClientError as error:
            if _code(error) in _NOT_THERE:
                raise FileMissing from None
            message = f"The {self._place} cannot be used ({_code(error) or 'no reason given'})."
            raise FilesUnavailable(message) from None
        except (BotoCoreError, aiohttp.ClientError, OSError) as error:
            message = f"The {self._place} cannot be reached ({type(error).__name__})."
            raise FilesUnavailable(message) from None

    def _opened(self) -> Any:  # noqa: ANN401 - botocore makes its clients at run time; they have no type
        if self._client is None:
            message = "S3Blobs.open() has not been called."
            raise RuntimeError(message)
        return self._client


async def _to_the_end(call: Any) -> None:  # noqa: ANN401 - a coroutine of botocore
    """Wait for a clean-up call, also during cancellation. Its own error is dropped: the first error is raised."""
    task = asyncio.ensure_future(call)
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


def _type_of(key: str) -> str:
    return _TYPES.get(Path(key).suffix, "application/octet-stream")


def _read_at(descriptor: int, offset: int, size: int) -> bytes:
    return os.pread(descriptor, size, offset)


def _checksum(content: bytes) -> str:
    return b64encode(sha256_of(content).digest()).decode()


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
