"""How many bytes of files each tenant has here, and the quota.

A job's upload counts when the job is accepted, and its output files when they are complete, each in the transaction of
that step. The sums are records of one tenant and one period, and a period is over when its files are old enough to be
swept. So there are about sixty records to add up for a tenant, and nothing to subtract. A file that two jobs use counts
for both.

Uploads that are still arriving count, too: each has a record until its job is accepted or refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final
from weakref import WeakValueDictionary

from holdfast import (
    Delete,
    Effect,
    ErrorCode,
    FieldProblem,
    NotAcceptable,
    Page,
    RecordQuery,
    StoreUnavailable,
    Upsert,
    isoformat,
)
from holdfast.feature import Principal, Services, refused

from .records import ARRIVING, USAGE
from .units import Cap, too_large

_DAY: Final = timedelta(days=1)
_PERIODS: Final = 60
_ABANDONED_AFTER: Final = timedelta(hours=1)
"""After a crash, an upload that was arriving counts for so long. An upload that takes longer is counted again when it
grows."""
_PAGE: Final = 200


class QuotaExceeded(NotAcceptable):
    """The tenant's files and this one would be more than the tenant's quota."""

    code: ClassVar[ErrorCode] = ErrorCode("QUOTA_EXCEEDED", 413, "There is no room left for your files.")

    def __init__(self, used: int, allowed: int) -> None:
        super().__init__([FieldProblem("file", f"has no room: {used} of {allowed} bytes are in use")])


class Usage:
    """The bytes of files of each tenant.

    ``default`` is the quota of a tenant that has no limit of its own; 0: no quota. ``keep`` is how long files are kept
    after their last use.
    """

    def __init__(self, services: Services, *, default: int, keep: timedelta) -> None:
        self._services = services
        self._default = default
        self._keep = keep
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def of(self, company_id: str) -> dict[str, int]:
        """What a tenant uses, by name."""
        return {"stored_bytes": await self._stored(company_id)}

    def counted(self, company_id: str | None, size: int) -> list[Effect]:
        """The effects that count files of so many bytes. Commit them with the job, so that they count once."""
        if company_id is None or not size:
            return []
        period = max(_DAY, self._keep / _PERIODS)
        number = int((datetime.now(UTC) + self._keep).timestamp() // period.total_seconds()) + 1
        end = datetime.fromtimestamp(number * period.total_seconds(), UTC)
        fields = {"company_id": company_id, "expires_at": isoformat(end)}
        return [Upsert(USAGE, f"{company_id}:{isoformat(end)}", fields, add={"bytes": size})]

    async def require_room_for_output(self, company_id: str | None, size: int) -> None:
        """Raise a :class:`DocumentFailure` if these output files would be more than the tenant has room for."""
        tenant = None if company_id is None else await self._services.tenants.get(company_id)
        if tenant is None:
            return
        allowed = self._allowed(tenant.limits.stored_bytes)
        if allowed and await self._stored(tenant.company_id) + size > allowed:
            raise too_large(Cap.TENANT, allowed)

    async def require_room(self, who: Principal) -> None:
        """Raise :class:`QuotaExceeded` if the tenant's quota is used up."""
        allowed = self._allowed(who.limits.stored_bytes)
        if allowed and (used := await self._stored(who.company_id)) >= allowed:
            raise _exceeded(used, allowed)

    @asynccontextmanager
    async def arriving(self, who: Principal, upload_id: str) -> AsyncIterator[Arrival]:
        """Count an upload while it arrives, and until its job is accepted or refused."""
        arrival = Arrival(self, who, upload_id)
        try:
            yield arrival
        finally:
            await arrival.end()

    async def reserve(self, who: Principal, upload_id: str, size: int, wanted: int) -> int:
        """Reserve ``wanted`` bytes for an upload, or what is left, but at least ``size``. Returns the bytes.

        The record is written before the sum is made. So uploads that look for room at the same time may refuse each
        other, and never get more than there is. Within a process, they look one after the other.
        """
        allowed = self._allowed(who.limits.stored_bytes)
        if not allowed:
            return wanted
        lock = self._locks.setdefault(who.company_id, asyncio.Lock())
        async with lock:
            await self._write(who, upload_id, size)
            used = await self._stored(who.company_id) - size
            if used + size > allowed:
                # Once more: a file may have been counted twice.
                used = await self._stored(who.company_id) - size
            if used + size > allowed:
                raise _exceeded(used, allowed)
            granted = max(size, min(wanted, allowed - used))
            if granted > size:
                await self._write(who, upload_id, granted)
            return granted

    async def release(self, who: Principal, upload_id: str) -> None:
        """The upload does not count any more."""
        if self._allowed(who.limits.stored_bytes):
            await self._services.store.apply([Delete(ARRIVING, upload_id)])

    async def _write(self, who: Principal, upload_id: str, size: int) -> None:
        until = isoformat(datetime.now(UTC) + _ABANDONED_AFTER)
        fields = {"company_id": who.company_id, "bytes": size, "expires_at": until}
        await self._services.store.apply([Upsert(ARRIVING, upload_id, fields)])

    async def _stored(self, company_id: str) -> int:
        now, used = isoformat(datetime.now(UTC)), 0
        # In this order: an upload that is accepted between the two reads counts twice, and never not at all.
        for collection in (ARRIVING, USAGE):
            query, cursor = RecordQuery(collection=collection, where={"company_id": company_id}), None
            while True:
                found = await self._services.store.find_records(query, Page(_PAGE, cursor))
                used += sum(each["bytes"] for each in found.items if each["expires_at"] > now)
                if found.next is None:
                    break
                cursor = found.next
        return used

    def _allowed(self, own: int | None) -> int:
        return self._default if own is None else own


class Arrival:
    """One upload while it arrives. ``left``: its file stays, because a new job needs it, or may need it."""

    def __init__(self, usage: Usage, who: Principal, upload_id: str) -> None:
        self.left = False
        self._usage = usage
        self._who = who
        self._upload_id = upload_id
        self._begun = False
        self._reserved = 0

    async def begin(self, declared: int | None) -> None:
        """Look for room for the declared number of bytes, or for one byte if none is declared.

        Raises :class:`QuotaExceeded`.
        """
        self._begun = True
        self._reserved = await self._usage.reserve(self._who, self._upload_id, declared or 1, declared or 1)

    async def watch(self, content: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """The same content. Raises :class:`QuotaExceeded` as soon as there is no room for more."""
        size = 0
        async for piece in content:
            size += len(piece)
            if size > self._reserved:
                # Twice as much each time, so that a long upload needs few commits.
                self._reserved = await self._usage.reserve(self._who, self._upload_id, size, 2 * size)
            yield piece

    def accepted(self, size: int) -> list[Effect]:
        """The effects for the job's own transaction: from then on, the file counts as stored."""
        return [*self._usage.counted(self._who.company_id, size), Delete(ARRIVING, self._upload_id)]

    async def end(self) -> None:
        """Release what is reserved, unless the file stays."""
        if self._begun and not self.left:
            # If the store is away, the record expires by itself.
            with suppress(StoreUnavailable):
                await self._usage.release(self._who, self._upload_id)


def _exceeded(used: int, allowed: int) -> QuotaExceeded:
    refused(Cap.TENANT, limit=allowed)
    return QuotaExceeded(used, allowed)
