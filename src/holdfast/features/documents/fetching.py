"""Fetching a file by its URL, from addresses that may be reached, within caps of size and time.

Of the URL, messages and details hold only the host: paths and queries may hold secrets (I14). Errors of the HTTP
libraries are not passed on either, because they may quote the server's answer.
"""

from __future__ import annotations

import asyncio
import errno
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Final

import httpcore
import httpx

from holdfast.feature import HEAD
from holdfast.network import REFUSED, RESET, TLS_FAILED, UNKNOWN_HOST, retry_after, wait_asked_by
from holdfast.webhooks.addresses import AddressBlocked, AddressPolicy, web_address
from holdfast.webhooks.client import Client, Resolver, code_of, header, resolved

from .failures import Code, DocumentFailure

_BLOCK: Final = 1024 * 1024
_WHOLE: Final = frozenset({HTTPStatus.OK, HTTPStatus.NON_AUTHORITATIVE_INFORMATION})
_MOVED: Final = frozenset(
    {
        HTTPStatus.MOVED_PERMANENTLY,
        HTTPStatus.FOUND,
        HTTPStatus.SEE_OTHER,
        HTTPStatus.TEMPORARY_REDIRECT,
        HTTPStatus.PERMANENT_REDIRECT,
    }
)
_MEDIA_TYPE: Final = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}", re.ASCII)
_HEADERS: Final = {"accept": "*/*", "accept-encoding": "identity"}
_DETAILS: Final = {
    UNKNOWN_HOST: "the host is not known",
    REFUSED: "the connection was refused",
    RESET: "the connection was broken off",
    TLS_FAILED: "no trusted TLS connection could be made",
}


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """What may be fetched. ``timeout`` is for the whole file with redirects; ``connect_timeout`` for each connection.

    ``resolve`` and ``tls`` replace the system's DNS and its certificate authorities.
    """

    policy: AddressPolicy
    max_bytes: int
    timeout: timedelta = timedelta(minutes=5)
    connect_timeout: timedelta = timedelta(seconds=10)
    max_redirects: int = 5
    resolve: Resolver = field(default=resolved, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A fetched file. ``head`` are its first bytes; ``content_type`` is the server's header."""

    size: int
    sha256: str
    head: bytes
    content_type: str | None


class Fetcher:
    """Fetches files. Every fault of the other side raises :class:`DocumentFailure`."""

    def __init__(self, options: FetchOptions) -> None:
        self._options = options
        self._client = Client(options.policy, options.connect_timeout, resolve=options.resolve, tls=options.tls)

    async def open(self) -> None:
        """Open the client."""
        await self._client.open()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def fetch(self, url: str, to: Path, what: str = "the file") -> Fetched:
        """Fetch a file to the path ``to``, in pieces. ``what`` is its name in messages.

        When this raises or is cancelled, there is no file at ``to``.
        """
        with _as_failures(what, self._options.timeout):
            address = web_address(url)
            with _removed_on_error(to):
                async with asyncio.timeout(self._options.timeout.total_seconds()):
                    return await self._fetch(address, to)

    async def _fetch(self, url: httpx.URL, to: Path) -> Fetched:
        for _ in range(self._options.max_redirects + 1):
            async with self._client.exchange("GET", url, _HEADERS) as response:
                location = header(response, "location") if response.status in _MOVED else None
                if location is None:
                    return await self._take(response, to)
            url = _joined(url, location)
        raise _Failed(Code.DOWNLOAD_FAILED, f"more than {self._options.max_redirects} redirects")

    async def _take(self, response: httpcore.Response, to: Path) -> Fetched:
        if response.status not in _WHOLE:
            raise _refusal(response)
        encoding = (header(response, "content-encoding") or "identity").lower()
        if encoding != "identity":
            # We asked for no compression. To unpack the body all the same, we would need a cap on the unpacked size.
            raise _Failed(Code.DOWNLOAD_FAILED, "the server sent it compressed, unasked")
        declared = header(response, "content-length") or ""
        if declared.isdecimal() and int(declared) > self._options.max_bytes:
            raise self._too_large()
        size, digest, head = 0, sha256(), b""
        async for block in self._blocks(response):
            size += len(block)
            head = head or block[:HEAD]
            # The thread opens the file each time. If we are cancelled meanwhile, the thread finds no file. An open
            # descriptor could belong to another file by then.
            await asyncio.to_thread(_append, to, block)
            digest.update(block)
        return Fetched(size, digest.hexdigest(), head, _media_type(header(response, "content-type")))

    async def _blocks(self, response: httpcore.Response) -> AsyncIterator[bytes]:
        """The body in large pieces, never more than the cap."""
        block, size = bytearray(), 0
        async for chunk in response.aiter_stream():
            size += len(chunk)
            if size > self._options.max_bytes:
                raise self._too_large()
            block += chunk
            if len(block) >= _BLOCK:
                yield bytes(block)
                block.clear()
        if block:
            yield bytes(block)

    def _too_large(self) -> _Failed:
        return _Failed(Code.TOO_LARGE, f"more than {self._options.max_bytes} bytes")


class _Failed(Exception):
    """A fetch failed. ``detail`` helps to find the cause."""

    def __init__(self, code: Code, detail: str, after: timedelta | None = None) -> None:
        self.code = code
        self.detail = detail
        self.after = after
        super().__init__(detail)


@contextmanager
def _as_failures(what: str, timeout: timedelta) -> Iterator[None]:
    """Turns every error into a :class:`DocumentFailure`."""
    unable = f"Unable to download {what}"
    try:
        yield
    except AddressBlocked as error:
        raise DocumentFailure(Code.ADDRESS_BLOCKED, detail=str(error)) from None
    except _Failed as error:
        message = None if error.code in {Code.TOO_LARGE, Code.STORAGE_UNAVAILABLE} else unable
        raise DocumentFailure(error.code, message, error.detail, retry_after=error.after) from None
    except httpcore.TimeoutException:
        raise DocumentFailure(Code.DOWNLOAD_TIMEOUT, unable, "no connection in time") from None
    except TimeoutError:
        detail = f"not finished within {timeout.total_seconds():g} s"
        raise DocumentFailure(Code.DOWNLOAD_TIMEOUT, unable, detail) from None
    except (httpcore.NetworkError, httpcore.ProtocolError) as error:
        code = code_of(error)
        raise DocumentFailure(Code.DOWNLOAD_FAILED, unable, _DETAILS.get(code, code)) from None


@contextmanager
def _removed_on_error(path: Path) -> Iterator[None]:
    """Make an empty file at ``path``, and remove the file if the block raises."""
    with _storage():
        path.write_bytes(b"")
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _append(path: Path, block: bytes) -> None:
    """Append to the file. A file that was removed is not made again."""
    with _storage(), path.open("r+b") as file:
        file.seek(0, 2)
        file.write(block)


@contextmanager
def _storage() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
        raise _Failed(Code.STORAGE_UNAVAILABLE, f"the downloaded file cannot be written ({name})") from None


def _joined(url: httpx.URL, location: str) -> httpx.URL:
    try:
        return web_address(url.join(location))
    except httpx.InvalidURL:
        raise _Failed(Code.DOWNLOAD_FAILED, "redirected to a URL that cannot be read") from None


def _refusal(response: httpcore.Response) -> _Failed:
    after = None
    if wait_asked_by(response.status):
        after = retry_after(header(response, "retry-after"), datetime.now(UTC))
    return _Failed(Code.HTTP_STATUS, f"HTTP {response.status}", after)


def _media_type(content_type: str | None) -> str | None:
    """The type without parameters, in lower case; None if there is no readable type."""
    bare = (content_type or "").partition(";")[0].strip().lower()
    return bare if _MEDIA_TYPE.fullmatch(bare) else None
