"""Wrong keys and tokens are counted for each address and in all. Above a rate they get 429 instead of 401.

A key is always checked first, and only a wrong one is counted: somebody's wrong tries never lock out a right key, also
when all clients come through one proxy and so from one address. This is safe because a key cannot be guessed, and cheap
because a wrong key costs one hash and one read by its id, and its 429 is held back for a moment.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from holdfast.engine.sender_limits import HOLD_SECONDS, TokenBucket
from holdfast.telemetry import refused

from .asgi import Scope
from .errors import Code, Refusal

_MOST_ADDRESSES: Final = 4_096
_IN_ALL: Final = 50
"""All addresses together may send so many times as many wrong keys as one address."""
_IPV6_PREFIX: Final = 64
"""The part of an IPv6 address that somebody gets: the rest they choose as they like."""


class WrongKeys:
    """Counts wrong keys and tokens in this process. ``clock``: seconds that never go backwards."""

    def __init__(self, per_minute: int = 60, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._in_all = TokenBucket()
        self._addresses: OrderedDict[str, TokenBucket] = OrderedDict()
        """By address; the one that sent a wrong key last comes last, and the others are forgotten first."""

    async def count(self, scope: Scope) -> None:
        """Count a wrong key of this request. If there are too many, raises a refusal with 429, after a moment."""
        now, address = self._clock(), _network_of(scope)
        bucket = self._addresses.setdefault(address, TokenBucket())
        self._addresses.move_to_end(address)
        if len(self._addresses) > _MOST_ADDRESSES:
            self._addresses.popitem(last=False)
        if wait := bucket.take(now, self._per_minute / 60, self._per_minute):
            refused("wrong_keys_of_address")
        elif wait := self._in_all.take(now, self._per_minute * _IN_ALL / 60, self._per_minute * _IN_ALL):
            refused("wrong_keys_in_all")
        if wait:
            await asyncio.sleep(HOLD_SECONDS)
            raise Refusal(Code.TOO_MANY_WRONG_KEYS, headers={"retry-after": str(math.ceil(wait))})


def _network_of(scope: Scope) -> str:
    """The client's address; for IPv6 its network. A client without an address came through a socket of this machine."""
    client = scope.get("client")
    if not client:
        return ""
    try:
        address = ip_address(client[0])
    except ValueError:
        return str(client[0])[:64]
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((int(address), _IPV6_PREFIX), strict=False))
