"""Suppression: addresses that get no more emails, because one bounced, complained, or an operator said so.

The list knows addresses by their keyed hashes. It serves all tenants: a mailbox that does not exist exists for nobody,
and who calls our emails spam means the sender that all of them share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from holdfast.contracts.admission import FieldProblem, RecipientSuppressed
from holdfast.contracts.effects import Delete, Upsert
from holdfast.contracts.ports import Records
from holdfast.contracts.queries import Page, RecordQuery, Slice
from holdfast.contracts.times import isoformat

from .addresses import mask_address, normalised
from .masking import masked_text
from .records import SUPPRESSIONS, SuppressionReason
from .vault import Vault

ADDRESS_PURPOSE: Final = "address"


@dataclass(frozen=True, slots=True)
class Suppression:
    """One address on the list, as people may see it."""

    address_hash: str
    address: str
    reason: SuppressionReason
    detail: str | None
    source: str | None
    since: datetime

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Suppression:
        """As the store has it."""
        return cls(
            address_hash=document["addressHash"],
            address=document["address"],
            reason=SuppressionReason(document["reason"]),
            detail=document.get("detail"),
            source=document.get("source"),
            since=datetime.fromisoformat(document["since"]),
        )


def address_hash(vault: Vault, address: str) -> str:
    """The keyed hash that an address is known by. Case does not matter: mailboxes that differ in it alone do not exist.

    Raises ValueError, without the address, when it is none.
    """
    return vault.fingerprint(normalised(address).casefold(), ADDRESS_PURPOSE)


class Suppressions:
    """The list."""

    def __init__(self, store: Records, vault: Vault) -> None:
        self._store = store
        self._vault = vault

    async def find(self, address: str) -> Suppression | None:
        """Why this address gets no emails; None when it does."""
        document = await self._store.get(SUPPRESSIONS, address_hash(self._vault, address))
        return None if document is None else Suppression.of(document)

    async def refuse(self, addresses: Iterable[tuple[str, str]]) -> None:
        """Raise :class:`RecipientSuppressed` when any of these is on the list. Each comes with its field's name."""
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
        """Put addresses on the list; one that is there keeps its first time. What is no address is passed over."""
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
        """Take an address off the list; False when it was not on it. Raises ValueError when it is no address."""
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
