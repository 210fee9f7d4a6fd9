"""Fetching the certificates that sign SNS messages."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import timedelta
from http import HTTPStatus
from typing import Final

import httpx

from .sns import CertificateUnavailable

_LARGEST: Final = 64 * 1024
_KEPT: Final = 8
_PEM: Final = b"-----BEGIN CERTIFICATE-----"


class HttpCertificates:
    """Certificates by HTTP, remembered. It fetches what it is told to: vet the address first.

    No redirects are followed, nothing of the environment is used, and an answer is limited in size and time.
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=10)) -> None:
        self._timeout = timeout.total_seconds()
        self._known: OrderedDict[str, bytes] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()

    async def fetch(self, url: str) -> bytes:
        """The bytes at the address, at most 64 KiB. Raises :class:`CertificateUnavailable`."""
        async with self._one_at_a_time:
            if url not in self._known:
                self._known[url] = await self._get(url)
            self._known.move_to_end(url)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
            return self._known[url]

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
                    if len(content) > _LARGEST:
                        break
        except (TimeoutError, httpx.HTTPError) as error:
            message = f"The certificate of SNS cannot be fetched ({type(error).__name__})."
            raise CertificateUnavailable(message) from None
        if response.status_code != HTTPStatus.OK or len(content) > _LARGEST or _PEM not in content:
            message = f"There is no certificate where that of SNS should be (status {response.status_code})."
            raise CertificateUnavailable(message)
        return bytes(content)
