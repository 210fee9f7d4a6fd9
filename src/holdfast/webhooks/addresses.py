"""Where a URL from outside may lead: the public internet, and the addresses that the operator has allowed.

The address of the connection decides, never a name alone. Python's ``is_global`` is not enough: it allows addresses of
clouds' own services and of NAT64, and its answer depends on the version of Python. The lists here are those of IANA's
registries of special addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final

import httpx

from holdfast.contracts.errors import ConfigurationError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NOT_PUBLIC: Final = tuple(
    IPv4Network(each)
    for each in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT; Alibaba's metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's own services, at an address that is public elsewhere
        "169.254.0.0/16",  # link-local; the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_PUBLIC_V6: Final = IPv6Network("2000::/3")  # unicast; all others are private, local, multicast or reserved
_NOT_PUBLIC_V6: Final = tuple(
    IPv6Network(each)
    for each in (
        "2001::/23",  # protocol assignments
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})

_NAME: Final = re.compile(r"(?=.{1,254}$)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")
_ENDS_IN_A_NUMBER: Final = re.compile(r"(?:^|\.)(?:[0-9]+|0[xX][0-9a-fA-F]*)\.?$")
_WEB_PORTS: Final = frozenset({80, 443})
_FREE_PORTS: Final = range(1024, 65536)  # those below are other protocols


class AddressBlocked(Exception):
    """Nothing may be fetched from this URL. The message gives the reason, and of the URL only the host."""


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Decides which addresses may be reached.

    ``allowed`` are addresses and networks (``10.1.0.0/16``) that may be reached although they are not public, for
    operators whose files are in their own network.
    """

    allowed: Sequence[str] = ()
    _networks: tuple[Network, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_networks", tuple(_network(each) for each in self.allowed))

    def allows(self, address: str | Address) -> bool:
        """Whether a connection to ``address`` may be made. A text that is no address is not allowed.

        An IPv6 address that stands for an IPv4 address is checked as that IPv4 address.
        """
        if isinstance(address, str):
            try:
                address = ip_address(address)
            except ValueError:
                return False
        return all(self._may_be_reached(each) for each in _meant_by(address))

    def _may_be_reached(self, address: Address) -> bool:
        return _public(address) or any(address in network for network in self._networks)


def web_address(url: str | httpx.URL) -> httpx.URL:
    """The parsed URL. Raises :class:`AddressBlocked` for a URL that may never be fetched.

    It must be http or https, without credentials, with a port of the web, and its host must be a name or an address in
    its usual form. The address of the host is checked later, when the connection is made.
    """
    try:
        parsed = httpx.URL(url)
        problem = _problem_with(parsed, parsed.raw_host.decode("ascii"), parsed.port)
    except (httpx.InvalidURL, UnicodeError):
        problem = "The URL cannot be read."
    if problem is not None:
        raise AddressBlocked(problem) from None
    return parsed


def _problem_with(url: httpx.URL, host: str, port: int | None) -> str | None:
    if url.scheme not in {"http", "https"}:
        return "The URL is not http or https."
    if url.userinfo:
        return "The URL holds credentials."
    if not host:
        return "The URL names no host."
    if not _usual(host):
        return "The URL's host is neither a name nor an address in its usual form."
    if port is not None and port not in _WEB_PORTS and port not in _FREE_PORTS:
        return f"Port {port} is not one of the web."
    return None


def _usual(host: str) -> bool:
    """Whether every program reads this host the same way: some read 0x7f.1 and 2130706433 as 127.0.0.1."""
    if _NAME.fullmatch(host) and not _ENDS_IN_A_NUMBER.search(host):
        return True
    try:
        return "%" not in host and bool(ip_address(host))
    except ValueError:
        return False


def _network(text: str) -> Network:
    try:
        return ip_network(text.strip())
    except ValueError:
        message = f"{text!r} is neither an address nor a network such as 10.1.0.0/16."
        raise ConfigurationError(message) from None


def _public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC)
    return address in _PUBLIC_V6 and not any(address in network for network in _NOT_PUBLIC_V6)


def _meant_by(address: Address) -> Iterator[Address]:
    """The addresses that a packet to this address may reach. All of them are checked."""
    if isinstance(address, IPv4Address):
        yield address
    elif address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    elif address.sixtofour is not None:
        yield address.sixtofour
    elif address.teredo is not None:
        yield from address.teredo
    elif address in _NAT64:
        yield _last_four_bytes(address)
    else:
        yield address
        if (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP:
            yield _last_four_bytes(address)


def _last_four_bytes(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFF_FFFF)
