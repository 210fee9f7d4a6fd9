"""What each sender may use, so that no sender takes the service from the others (I18).

A sender is a tenant or a source of courier events. Requests per second, pending requests and streams are counted in
this process, without a round trip: with several API processes, each of them grants the whole limit. Waiting jobs are
counted in the ledger, about once a second for each sender; what this process accepts in between is added.

A token bucket is a rate with a burst, for what one process counts by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.contracts.ports import Clock, Ledger
from holdfast.contracts.tenants import (
    Sender,
    TenantLimits,
    TooFast,
    TooManyPending,
    TooManyStreams,
    TooManyWaiting,
)
from holdfast.telemetry import refused


class TokenBucket:
    """Holds ``burst`` tokens at most, and gets ``rate`` new tokens each second. It begins full.

    The rate and the burst are given with each call, so that a change of a limit counts at once.
    """

    __slots__ = ("_at", "_tokens")

    def __init__(self) -> None:
        self._tokens = math.inf
        self._at = 0.0

    def take(self, now: float, rate: float, burst: float) -> float:
        """Take a token and return 0; or, if there is none, return the seconds until there is one.

        ``now`` is in seconds that never go backwards.
        """
        self._tokens = min(burst, self._tokens + (now - self._at) * rate)
        self._at = now
        if self._tokens < 1:
            return (1 - self._tokens) / rate
        self._tokens -= 1
        return 0.0

    def charge(self, tokens: int) -> None:
        """Take more tokens after :meth:`take`. This may leave a debt, and later calls wait until it is paid."""
        self._tokens -= tokens


_BURST_SECONDS: Final = 2
"""A sender that was silent may send this many seconds' worth of requests at once."""
HOLD_SECONDS: Final = 0.25
"""How long a refusal for too many requests is held back. A refusal costs processor time too, though less than a job:
a client that does not wait by itself must not keep the process busy with refusals. Waiting costs nothing."""
_COUNT_EVERY: Final = 1.0
_COUNTING_SHARE: Final = 50
"""A count that takes long is repeated less often: counting takes 1/50 of the time at most."""
_EVERYTHING: Final = 2**31 - 1
_STREAM: Final = 25
WAIT: Final = 1
"""So many parts make a stream. A wait for the end of a job is one part: all waits share one poll of the ledger."""
_RETRY_LATER: Final = 5
"""Seconds. Jobs and streams end one by one: a sender with too many of them need not ask each second."""


def prefix_of(owner: str) -> str:
    """How all fairness keys of this owner begin, whatever the priority of the job."""
    return f"{owner}/"


@dataclass(slots=True)
class _Used:
    """What one sender uses of this process, and the last count of its waiting jobs.

    ``limits`` are made of the sender's ``own`` limits and the defaults, once for each change of its own.
    """

    own: TenantLimits | None = None
    limits: TenantLimits = field(default_factory=TenantLimits)
    requests: TokenBucket = field(default_factory=TokenBucket)
    pending: int = 0
    streams: int = 0
    """In parts: see ``_STREAM``."""
    waiting: int = 0
    count_again_at: float = -math.inf
    counting: asyncio.Task[None] | None = None


class SenderLimits:
    """The limits of all senders. ``defaults`` are for senders without a limit of their own; None there: no limit.

    Only senders with a right key are remembered, so the operators decide how many there are.
    """

    def __init__(self, ledger: Ledger, clock: Clock, defaults: TenantLimits) -> None:
        self.defaults = defaults
        self._ledger = ledger
        self._clock = clock
        self._senders: defaultdict[str, _Used] = defaultdict(_Used)

    def of(self, sender: Sender) -> TenantLimits:
        """The limits of this sender: its own, and the defaults for the others."""
        used = self._senders[sender.name]
        if used.own is not sender.limits:
            used.own, used.limits = sender.limits, sender.limits.over(self.defaults)
        return used.limits

    async def count_request(self, sender: Sender) -> None:
        """Count a request. Raises :class:`TooFast` after a moment; then it is not counted."""
        rate = self.of(sender).requests_per_second
        if rate is None:
            return
        wait = self._senders[sender.name].requests.take(self._clock.monotonic(), rate, rate * _BURST_SECONDS)
        if wait:
            refused("sender_requests", sender=sender.name)
            await asyncio.sleep(HOLD_SECONDS)
            raise TooFast(math.ceil(wait))

    def count_more(self, sender: Sender, requests: int) -> None:
        """Count more requests for a request that was counted as one: it has many jobs.

        It passes, and the sender waits longer until its next request passes.
        """
        if self.of(sender).requests_per_second is not None:
            self._senders[sender.name].requests.charge(requests)

    @contextlib.contextmanager
    def pending(self, sender: Sender) -> Iterator[None]:
        """Count one request that waits for a commit. Raises :class:`TooManyPending`."""
        self._check_pending(sender)
        used = self._senders[sender.name]
        used.pending += 1
        try:
            yield
        finally:
            used.pending -= 1

    def _check_pending(self, sender: Sender, ahead: int = 0) -> None:
        most = self.of(sender).pending
        if most is not None and self._senders[sender.name].pending + ahead >= most:
            refused("sender_pending", sender=sender.name)
            raise TooManyPending

    @contextlib.contextmanager
    def stream(self, sender: Sender, share: int = _STREAM) -> Iterator[None]:
        """Count one open stream, or a ``share`` of one. Raises :class:`TooManyStreams`."""
        used, most = self._senders[sender.name], self.of(sender).streams
        if most is not None and used.streams + share > most * _STREAM:
            refused("sender_streams", sender=sender.name)
            raise TooManyStreams(_RETRY_LATER)
        used.streams += share
        try:
            yield
        finally:
            used.streams -= share

    async def count_job(self, sender: Sender) -> None:
        """Count a job that is about to be recorded. Raises :class:`SenderLimitReached`."""
        await self.check_jobs(sender)
        self._senders[sender.name].waiting += 1

    async def check_jobs(self, sender: Sender, ahead: int = 0) -> None:
        """Raise :class:`SenderLimitReached` if the sender may not record another job now. Nothing is counted.

        ``ahead`` is the number of jobs of the same request that are recorded before it.
        """
        self._check_pending(sender, ahead)
        most = self.of(sender).waiting_jobs
        if sender.owner is None or most is None:
            return
        used = self._senders[sender.name]
        if self._clock.monotonic() >= used.count_again_at:
            if used.counting is None:
                used.counting = asyncio.create_task(self._count(used, sender.owner, most))
                used.counting.add_done_callback(_retrieve)
            # One count for all requests that came meanwhile: a slow store must not make them wait one after another.
            await asyncio.shield(used.counting)
        if used.waiting + ahead >= most:
            refused("sender_waiting_jobs", sender=sender.name)
            raise TooManyWaiting(_RETRY_LATER)

    async def count_unsettled(self, owner: str) -> int:
        """How many jobs of this owner are not settled, however many there are: for people."""
        return await self._ledger.count_unsettled(prefix_of(owner), _EVERYTHING)

    async def _count(self, used: _Used, owner: str, most: int) -> None:
        began = self._clock.monotonic()
        try:
            # Requests that wait for a commit may not be in the ledger yet.
            used.waiting = await self._ledger.count_unsettled(prefix_of(owner), most) + used.pending
            ended = self._clock.monotonic()
            used.count_again_at = ended + max(_COUNT_EVERY, (ended - began) * _COUNTING_SHARE)
        finally:
            used.counting = None


def _retrieve(counting: asyncio.Task[None]) -> None:
    """Retrieve the error of a count whose requests were all cancelled: asyncio would report it as forgotten."""
    if not counting.cancelled():
        counting.exception()
