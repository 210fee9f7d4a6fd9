"""Files in an S3 bucket: ``<prefix>/uploads/<first two>/<sha256>`` and ``<prefix>/results/<job_id>/<attempt>/<name>``.

The bucket removes old objects itself: give it a lifecycle rule that expires objects below the prefix, and aborts
multipart uploads that were never completed. An object's age counts from its last write. So an object that is used again
and is older than a day is copied onto itself, inside the bucket.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256 as sha256_of
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
from aiobotocore.session import get_session  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

from holdfast.contracts.files import FileMissing, FilesUnavailable, Stored

from .arriving import PIECE, Arriving, arrived, in_thread, on_disk, sweep_arriving
from .names import RESULTS, is_plain, place_in, require_outputs, upload_name

PART: Final = 8 * 1024 * 1024
"""Bytes of an upload that are in memory and sent at a time. Larger if there would be too many parts."""

_MOST_PARTS: Final = 10_000
_MOST_COPIED: Final = 5 * 1024**3
_RENEWED_AFTER: Final = timedelta(days=1)
# A missing object. A missing bucket is not in this list: its name is a wrong setting, and the file may well exist.
_NOT_THERE: Final = frozenset({"NoSuchKey", "404", "NotFound"})
_TYPES: Final = {
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".srt": "application/x-subrip; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".vtt": "text/vtt; charset=utf-8",
}


class S3Files:
    """Keeps files as objects. ``scratch`` is a folder for temporary copies."""

    def __init__(  # noqa: PLR0913 - the parts of a bucket's address
        self,
        bucket: str,
        prefix: str = "",
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        scratch: Path,
        timeout: timedelta = timedelta(seconds=60),
    ) -> None:
        self._bucket = bucket
        self._top = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._home = f"s3://{bucket}/{self._top}{RESULTS}"
        self._region = region
        self._endpoint_url = endpoint_url
        self._scratch = scratch
        self._timeout = timeout.total_seconds()
        self._resources = AsyncExitStack()
        self._client: Any = None

    async def open(self) -> None:
        """Make the client, and the scratch folder if it is missing."""
        await on_disk(self._scratch.mkdir, mode=0o700, parents=True, exist_ok=True)
        config = AioConfig(
            connect_timeout=self._timeout,
            read_timeout=self._timeout,
            # Every call is safe to repeat, so the library may repeat it.
            retries={"total_max_attempts": 3, "mode": "standard"},
        )
        self._client = await self._resources.enter_async_context(
            get_session().create_client("s3", region_name=self._region, endpoint_url=self._endpoint_url, config=config)
        )

    async def close(self) -> None:
        """Close all connections."""
        self._client = None
        await self._resources.aclose()

    async def keep(self, content: AsyncIterator[bytes], limit: int) -> Stored:
        """Keep an upload. The same content is not sent again; it counts as used now."""
        async with arrived(self._scratch, content, limit) as file:
            stored = file.stored
            key = self._key(upload_name(stored.sha256))
            with _as_unavailable():
                if not await self._renewed(key):
                    await self._send(key, file)
            return stored

    @asynccontextmanager
    async def local_copy(self, sha256: str) -> AsyncIterator[Path]:
        """A copy whose content was checked. It is removed when the context ends."""
        key = self._key(upload_name(sha256))
        with _as_unavailable():
            answer = await self._opened().get_object(Bucket=self._bucket, Key=key)
        size = int(answer["ContentLength"])
        async with arrived(self._scratch, _pieces(answer["Body"]), size) as file:
            if file.stored.sha256 != sha256:
                message = "The upload in the bucket does not have the content that its name says."
                raise FilesUnavailable(message)
            yield file.path

    async def write(self, place: str, outputs: Mapping[str, bytes]) -> str:
        """Keep output files. They replace the files that were in this place."""
        require_outputs(place, list(outputs))
        folder = self._key(f"{RESULTS}/{place}/")
        with _as_unavailable():
            former = await self._keys(folder)
            for name, content in outputs.items():
                kind = _TYPES.get(Path(name).suffix, "application/octet-stream")
                await self._put(folder + name, content, ContentType=kind)
            for key in former - {folder + name for name in outputs}:
                await self._opened().delete_object(Bucket=self._bucket, Key=key)
        return f"{self._home}/{place}"

    async def read(self, output_path: str, name: str) -> bytes:
        """One output file."""
        folder = self._output(output_path)
        if not is_plain(name):
            raise FileMissing
        with _as_unavailable():
            answer = await self._opened().get_object(Bucket=self._bucket, Key=folder + name)
        return b"".join([piece async for piece in _pieces(answer["Body"])])

    async def touch(self, sha256: str | None = None, output_path: str | None = None) -> bool:
        """Whether both exist. Objects that are older than a day get a new date."""
        try:
            uploads = [self._key(upload_name(sha256))] if sha256 is not None else []
            folder = self._output(output_path) if output_path is not None else None
        except FileMissing:
            return False
        with _as_unavailable():
            outputs = await self._keys(folder) if folder is not None else set()
            there = [await self._renewed(key) for key in [*uploads, *sorted(outputs)]]
        return all(there) and (folder is None or bool(outputs))

    async def sweep(self, older_than: timedelta) -> int:
        """Clean the scratch folder after crashes. Objects are removed by the lifecycle rule."""
        return await on_disk(sweep_arriving, self._scratch, older_than)

    async def _send(self, key: str, file: Arriving) -> None:
        size = file.stored.size
        part = max(PART, -(-size // _MOST_PARTS))
        if size <= part:
            await self._put(key, await on_disk(file.read, 0, size))
            return
        place = {"Bucket": self._bucket, "Key": key}
        begun = await self._opened().create_multipart_upload(**place, ChecksumAlgorithm="SHA256")
        place["UploadId"] = begun["UploadId"]
        try:
            parts = []
            for number, offset in enumerate(range(0, size, part), start=1):
                body = await on_disk(file.read, offset, part)
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

    def _key(self, name: str) -> str:
        return f"{self._top}{name}"

    def _output(self, output_path: str) -> str:
        return self._key(f"{RESULTS}/{place_in(output_path, self._home)}/")

    def _opened(self) -> Any:  # noqa: ANN401 - botocore makes its clients at run time; they have no type
        if self._client is None:
            message = "S3Files.open() has not been called."
            raise RuntimeError(message)
        return self._client


async def _pieces(stream: Any) -> AsyncIterator[bytes]:  # noqa: ANN401 - botocore has no types
    with _as_unavailable():
        async with stream as body:
            while piece := await body.read(PIECE):
                yield piece


async def _to_the_end(call: Any) -> None:  # noqa: ANN401 - a coroutine of botocore
    """Wait for a clean-up call, also during cancellation. Its own error is dropped: the first error is raised."""
    task = asyncio.ensure_future(call)
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


def _checksum(content: bytes) -> str:
    return b64encode(sha256_of(content).digest()).decode()


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


@contextmanager
def _as_unavailable() -> Iterator[None]:
    """Turns the library's errors into FileMissing or FilesUnavailable, without the text that they quote."""
    try:
        yield
    except ClientError as error:
        if _code(error) in _NOT_THERE:
            raise FileMissing from None
        message = f"The bucket of files cannot be used ({_code(error) or 'no reason given'})."
        raise FilesUnavailable(message) from None
    except (BotoCoreError, aiohttp.ClientError, OSError) as error:
        message = f"The bucket of files cannot be reached ({type(error).__name__})."
        raise FilesUnavailable(message) from None
