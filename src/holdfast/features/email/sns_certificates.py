"""Fetching the certificates that sign SNS messages."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import timedelta
from http import HTTPStatus
from typing import Final

import httpx

from .sns import CertificateUnavailable

_MAX_BYTES: Final = 64 * 1024
_CACHE_SIZE: Final = 8
_PEM: Final = b"-----BEGIN CERTIFICATE-----"


class HttpCertificates:
    """Fetches certificates by HTTP and caches them. It does not check the URL: the caller must.

    It follows no redirects and uses no proxy settings of the environment. Answers are limited in size and time.
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=10)) -> None:
        self._timeout = timeout.total_seconds()
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._lock = asyncio.Lock()

    async def fetch(self, url: str) -> bytes:
        """The bytes at the URL, at most 64 KiB. Raises :class:`CertificateUnavailable`."""
        async with self._lock:
            if url not in self._cache:
                self._cache[url] = await self._get(url)
            self._cache.move_to_end(url)
            while len(self._cache) > _CACHE_SIZE:
                self._cache.popitem(last=False)
            return self._cache[url]

    async def _get(self, url: str) -> bytes:
        try:
            async with (
                asyncio.timeout(self._timeout),
                httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=self._timeout) as client,
                client.stream("GET", url, headers={"accept-encoding": "identity"}) as response,
            ):
                content = bytearray()
                async for piece in response.aiter_raw():
                    content += piece
                    if len(content) > _MAX_BYTES:
                        break
        except (TimeoutError, httpx.HTTPError) as error:
            message = f"The certificate of SNS cannot be fetched ({type(error).__name__})."
            raise CertificateUnavailable(message) from None
        if response.status_code != HTTPStatus.OK or len(content) > _MAX_BYTES or _PEM not in content:
            message = f"There is no certificate at the URL of SNS (status {response.status_code})."
            raise CertificateUnavailable(message)
        return bytes(content)
