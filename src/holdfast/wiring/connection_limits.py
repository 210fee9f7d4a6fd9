"""What one sender may take of the API's sockets: connections, and time on them (I18).

One rule holds for bodies and for answers: in each ``stall`` at least ``rate * stall`` bytes must move. So a transfer
that stops is ended, a slow one too, and no transfer takes longer than its size divided by the rate, plus ``stall``. The
size of a body has a limit in each route, and so has its time, for an event of 2 KB as for a file of 500 MB.
"""

from __future__ import annotations

import resource
import socket
from collections import Counter
from dataclasses import dataclass
from typing import Final

from holdfast.config import Settings

HEADER_BYTES: Final = 32 * 1024
HEADER_COUNT: Final = 100
URL_BYTES: Final = 8 * 1024
PIPELINED: Final = 32
"""Requests of one connection that may wait for their answers."""

_MOST_CONNECTIONS: Final = 10_000
_FEWEST_CONNECTIONS: Final = 16
_OTHER_FILES: Final = 256
"""Files that the process needs for other things: the database, Redis, MongoDB, uploads."""
_MAPPED: Final = bytes(10) + b"\xff\xff"
"""How an IPv6 socket writes an IPv4 address: these twelve bytes before it."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one process. Times are in seconds, ``rate`` in bytes for each second."""

    header: float
    idle: float
    stall: float
    rate: int
    connections: int
    per_address: int

    @classmethod
    def of(cls, settings: Settings) -> ConnectionLimits:
        """The limits that the settings ask for, as far as the process may open so many files."""
        connections = most_connections()
        if settings.api_max_connections is not None:
            connections = min(connections, settings.api_max_connections)
        # Half of them: one sender leaves room for the others, and a reverse proxy, whose connections all come from one
        # address, gets along without a setting.
        per_address = settings.api_max_connections_per_address or max(1, connections // 2)
        return cls(
            header=settings.api_header_timeout_ms / 1000,
            idle=settings.api_idle_timeout_ms / 1000,
            stall=settings.api_stall_timeout_ms / 1000,
            rate=settings.api_least_rate,
            connections=connections,
            per_address=per_address,
        )

    @property
    def shortest(self) -> float:
        """The shortest of the times."""
        return min(self.header, self.idle, self.stall)


def most_connections() -> int:
    """As many connections as the file limit of this process has room for, and never more than 10,000."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(_FEWEST_CONNECTIONS, min(_MOST_CONNECTIONS, files - max(_OTHER_FILES, files // 4)))


class ConnectionCount:
    """Counts the open connections, in all and of each sender."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._senders: Counter[bytes] = Counter()
        self._all = 0

    def add(self, sender: bytes) -> str | None:
        """Count a connection. Returns the name of the limit if there is no room; then it is not counted."""
        if self._all >= self._limits.connections:
            return "connections"
        if self._senders[sender] >= self._limits.per_address:
            return "connections_per_address"
        self._senders[sender] += 1
        self._all += 1
        return None

    def remove(self, sender: bytes) -> None:
        """The connection has ended."""
        self._all -= 1
        self._senders[sender] -= 1
        if not self._senders[sender]:
            del self._senders[sender]


def sender_of(host: str) -> bytes:
    """Who counts as one sender: an IPv4 address, or an IPv6 network of 64 bits, which is what one customer gets."""
    try:
        if ":" not in host:
            return socket.inet_pton(socket.AF_INET, host)
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except OSError:
        return host.encode()
    return packed[len(_MAPPED) :] if packed.startswith(_MAPPED) else packed[:8]
