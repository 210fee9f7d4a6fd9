"""The suppression list: addresses that get no more emails, after a bounce, a complaint or a decision of an operator.

The list stores keyed hashes of addresses. All tenants share one list: a missing mailbox is missing for every tenant,
and a complaint about spam hurts the sender that all tenants share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from holdfast import Delete, ErrorCode, FieldProblem, NotAcceptable, Page, RecordQuery, Slice, Upsert, isoformat
from holdfast.feature import Records

from .masking import masked_text
from .records import SUPPRESSIONS, SuppressionReason
from .texts import mask_address, normalised
from .vault import Vault

ADDRESS_PURPOSE: Final = "address"


@dataclass(frozen=True, slots=True)
class Suppression:
    """One address on the list, masked."""

    address_hash: str
    address: str
    reason: SuppressionReason
    detail: str | None
    source: str | None
    since: datetime

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Suppression:
        """The suppression of a record."""
        return cls(
            address_hash=record["addressHash"],
            address=record["address"],
            reason=SuppressionReason(record["reason"]),
            detail=record.get("detail"),
            source=record.get("source"),
            since=datetime.fromisoformat(record["since"]),
        )


def address_hash(vault: Vault, address: str) -> str:
    """The keyed hash of an address. Case does not matter: no two mailboxes differ in case only.

    Raises ValueError for an invalid address, without repeating the address.
    """
    return vault.fingerprint(normalised(address).casefold(), ADDRESS_PURPOSE)


class RecipientSuppressed(NotAcceptable):
    """An address of this email bounced or complained before, or was suppressed by an operator."""

    code = ErrorCode("RECIPIENT_SUPPRESSED", 422, "An address of this email gets no more emails.")


class Suppressions:
    """The suppression list."""

    def __init__(self, store: Records, vault: Vault) -> None:
        self._store = store
        self._vault = vault

    async def find(self, address: str) -> Suppression | None:
        """The suppression of this address; None if it is not on the list."""
        record = await self._store.get(SUPPRESSIONS, address_hash(self._vault, address))
        return None if record is None else Suppression.of(record)

    async def refuse(self, addresses: Iterable[tuple[str, str]]) -> None:
        """Raise :class:`RecipientSuppressed` if an address is on the list. ``addresses``: field and address."""
        given = list(addresses)
        found = await asyncio.gather(*(self.find(address) for _, address in given))
        problems = [
            FieldProblem(field, f"{mask_address(address)} is suppressed ({suppression.reason.value})")
            for (field, address), suppression in zip(given, found, strict=True)
            if suppression is not None
        ]
        if problems:
            raise RecipientSuppressed(problems)

    async def add(
        self,
        addresses: Iterable[str],
        reason: SuppressionReason,
        *,
        detail: str | None,
        source: str,
        now: datetime,
    ) -> int:
        """Put addresses on the list. An address on the list keeps its ``since``. Invalid addresses are ignored."""
        effects = []
        for address in addresses:
            try:
                key = address_hash(self._vault, address)
            except ValueError:
                continue
            facts = {
                "address": mask_address(normalised(address)),
                "reason": reason.value,
                "detail": None if detail is None else masked_text(detail),
                "source": source,
            }
            effects.append(Upsert(SUPPRESSIONS, key, facts, {"since": isoformat(now)}))
        if effects:
            await self._store.apply(effects)
        return len(effects)

    async def remove(self, address: str) -> bool:
        """Remove an address from the list; False if it was not there. Raises ValueError for an invalid address."""
        if await self.find(address) is None:
            return False
        await self._store.apply([Delete(SUPPRESSIONS, address_hash(self._vault, address))])
        return True

    async def list(self, page: Page, reason: SuppressionReason | None = None) -> Slice[Suppression]:
        """The list, newest first."""
        where = {} if reason is None else {"reason": reason.value}
        query = RecordQuery(collection=SUPPRESSIONS, where=where, newest_by="since")
        found = await self._store.find_records(query, page)
        return Slice([Suppression.of(each) for each in found.items], found.next)
