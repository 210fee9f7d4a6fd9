"""HTTP to vetted addresses, or to an address that the operator trusts.

For vetted addresses, a name is resolved once for each connection, and all its addresses are vetted. The connection is
made to one of these addresses and not to the name, so the name server cannot give a second, different answer (DNS
rebinding). If one address of a name must not be reached, no connection is made at all. TLS is checked against the name.
No connection is used twice.

No proxy is used, even if the environment names one.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from ipaddress import ip_address
from typing import Final

import httpcore
import httpx

from holdfast.contracts.network_failures import network_code

from .addresses import Address, AddressBlocked, AddressPolicy

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host. Raises :class:`OSError` if the host has none."""


_SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]

_KEPT_SECONDS: Final = 5.0
"""How long a connection waits for the next request."""

# Lookups cannot be cancelled. They have their own threads, so that a lookup that hangs blocks no other work.
_LOOKUPS: Final = ThreadPoolExecutor(max_workers=8, thread_name_prefix="holdfast-lookup")


async def resolved(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, from the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(_LOOKUPS, _look_up, host, port)
    return list(dict.fromkeys(found))


def _look_up(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # a label that is too long for DNS
        raise socket.gaierror(socket.EAI_NONAME, "Not a host name") from None
    return [str(place[0]) for *_, place in found]


class VettedBackend(httpcore.AsyncNetworkBackend):
    """Makes connections to addresses that the policy allows. Raises :class:`AddressBlocked` for others."""

    def __init__(self, policy: AddressPolicy, resolve: Resolver = resolved) -> None:
        self._policy = policy
        self._resolve = resolve
        self._sockets = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[_SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that answers. ``timeout`` includes the lookup of the name."""
        try:
            async with asyncio.timeout(timeout) as limit:
                addresses = await self._vetted(host, port)
                for place, address in enumerate(addresses):
                    share = _share(limit.when(), len(addresses) - place)
                    try:
                        return await self._sockets.connect_tcp(str(address), port, share, local_address, socket_options)
                    except (httpcore.ConnectError, httpcore.ConnectTimeout):
                        if place == len(addresses) - 1:
                            raise
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        message = "The host has no address."
        raise httpcore.ConnectError(message)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        socket_options: Iterable[_SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Always refuse."""
        del path, timeout, socket_options
        message = "Sockets of this machine are not fetched from."
        raise AddressBlocked(message)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def _vetted(self, host: str, port: int) -> list[Address]:
        """The addresses of the host. Raises :class:`AddressBlocked` if one of them must not be reached."""
        try:
            addresses = [ip_address(host)]
        except ValueError:
            try:
                addresses = [ip_address(each) for each in await self._resolve(host, port)]
            except OSError as error:
                message = "The host is not known."
                raise httpcore.ConnectError(message) from error
        if not all(self._policy.allows(address) for address in addresses):
            message = f"The host {host} has an address that must not be reached."
            raise AddressBlocked(message)
        return addresses


def _share(deadline: float | None, addresses: int) -> float | None:
    """The time for one of ``addresses`` addresses, so that one that does not answer leaves time for the next."""
    if deadline is None:
        return None
    return max(deadline - asyncio.get_running_loop().time(), 0) / addresses


class Client:
    """Sends requests. It follows no redirect, unpacks no body, and keeps no cookies.

    With a policy, only addresses that it allows are used. Without a policy, at most ``connections`` connections are
    open, and they are kept for the next request.
    """

    def __init__(
        self,
        policy: AddressPolicy | None,
        connect_timeout: timedelta | None = None,
        *,
        connections: int | None = None,
        resolve: Resolver = resolved,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._backend = None if policy is None else VettedBackend(policy, resolve)
        self._timeouts = {} if connect_timeout is None else {"connect": connect_timeout.total_seconds()}
        self._connections = connections
        self._tls = tls
        self._pool: httpcore.AsyncConnectionPool | None = None

    @property
    def vets(self) -> bool:
        """Whether there is a policy. Then no connection is used twice."""
        return self._backend is not None

    async def open(self) -> None:
        """Make the pool. Requests open connections when they need them."""
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=self._tls or httpx.create_ssl_context(trust_env=False),
            max_connections=self._connections,
            max_keepalive_connections=self._connections,
            keepalive_expiry=_KEPT_SECONDS,
            network_backend=self._backend,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._pool is not None:
            await self._pool.aclose()
            self._pool = None

    @asynccontextmanager
    async def exchange(
        self,
        method: str,
        url: httpx.URL,
        headers: Mapping[str, str],
        content: bytes | None = None,
    ) -> AsyncIterator[httpcore.Response]:
        """Send a request. Inside the context, the answer has begun and its body can be read. The caller sets a timeout.

        Raises :class:`AddressBlocked`, and httpcore's errors.
        """
        if self._pool is None:
            message = "open() has not been called."
            raise RuntimeError(message)
        sent = {"host": url.netloc.decode("ascii"), "user-agent": "holdfast", **headers}
        if self.vets:
            sent["connection"] = "close"
        if url.userinfo:
            sent["authorization"] = f"Basic {b64encode(f'{url.username}:{url.password}'.encode()).decode()}"
        if content is not None:
            sent["content-length"] = str(len(content))
        async with self._pool.stream(
            method,
            httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=list(sent.items()),
            content=content,
            extensions={"timeout": self._timeouts},
        ) as response:
            yield response


def header(response: httpcore.Response, name: str) -> str | None:
    """The first header of this name (in lower case)."""
    for found, value in response.headers:
        if found.decode("latin-1").lower() == name:
            return value.decode("utf-8", "replace").strip()
    return None


def code_of(error: Exception) -> str:
    """The code of a failed exchange, for people."""
    broken_off = isinstance(error, httpcore.ReadError | httpcore.WriteError | httpcore.RemoteProtocolError)
    return network_code(error, broken_off=broken_off)
