"""The suppression list: addresses that get no more emails, after a bounce, a complaint or a decision of an operator.

The list stores keyed hashes of addresses. A bounce or a complaint counts for the tenant whose email caused it, and for
no other: a refusal must not tell a tenant who the recipients of another tenant are. An operator may suppress an address
for all tenants. So do entries of older versions, which do not say whose email it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from holdfast import Delete, ErrorCode, FieldProblem, NotAcceptable, Page, RecordQuery, Slice, Upsert, isoformat
from holdfast.feature import Records

from .masking import masked_text
from .records import LOG, OUTBOX, SUPPRESSIONS, SuppressionReason
from .texts import mask_address, normalised
from .vault import Vault

ADDRESS_PURPOSE: Final = "address"
_MOST_TENANTS: Final = 1_000
"""How many records are read to find the tenants of an address."""


@dataclass(frozen=True, slots=True)
class Suppression:
    """One address on the list, masked."""

    address_hash: str
    address: str
    reason: SuppressionReason
    detail: str | None
    source: str | None
    since: datetime
    company_id: str | None = None
    """The tenant that it counts for; None: for all tenants."""

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
            company_id=record.get("companyId"),
        )


def address_hash(vault: Vault, address: str) -> str:
    """The keyed hash of an address. Case does not matter: no two mailboxes differ in case only.

    Raises ValueError for an invalid address, without repeating the address.
    """
    return vault.fingerprint(normalised(address).casefold(), ADDRESS_PURPOSE)


def suppression_keys(vault: Vault, address: str, company_id: str) -> tuple[str, str]:
    """The keys of an address on the list: for all tenants, and for this tenant."""
    hashed = address_hash(vault, address)
    return hashed, _key(hashed, company_id)


def _key(hashed: str, company_id: str | None) -> str:
    return hashed if company_id is None else f"{hashed}/{company_id}"


class RecipientSuppressed(NotAcceptable):
    """An address of this email bounced or complained before, or was suppressed by an operator."""

    code = ErrorCode("RECIPIENT_SUPPRESSED", 422, "An address of this email gets no more emails.")


class Suppressions:
    """The suppression list."""

    def __init__(self, store: Records, vault: Vault) -> None:
        self._store = store
        self._vault = vault

    async def find(self, address: str, company_id: str) -> Suppression | None:
        """The suppression of this address for this tenant; None if there is none."""
        keys = suppression_keys(self._vault, address, company_id)
        found = await asyncio.gather(*(self._store.get(SUPPRESSIONS, key) for key in keys))
        return next((Suppression.of(each) for each in found if each is not None), None)

    async def find_all(self, address: str) -> list[Suppression]:
        """All suppressions of this address. Raises ValueError for an invalid address."""
        hashed = address_hash(self._vault, address)
        for_all = await self._store.get(SUPPRESSIONS, hashed)
        query = RecordQuery(collection=SUPPRESSIONS, where={"hash": hashed})
        own = await self._store.find_records(query, Page(_MOST_TENANTS))
        return [Suppression.of(each) for each in (*([] if for_all is None else [for_all]), *own.items)]

    async def tenants_of(self, address: str, outbox_id: str | None, message_id: str | None) -> set[str]:
        """The tenants whose email a notification is about. Empty if nothing here knows the email.

        Our id of the email decides, then the id that the provider gave it. Without both, all tenants that have sent to
        the address count.
        """
        if outbox_id is not None and (email := await self._store.get(OUTBOX, outbox_id)) is not None:
            return {email["companyId"]}
        wheres = [(LOG, {"sesMessageId": message_id})] if message_id else []
        with suppress(ValueError):
            wheres.append((OUTBOX, {"toHash": address_hash(self._vault, address)}))
        for collection, where in wheres:
            found = await self._store.find_records(RecordQuery(collection=collection, where=where), Page(_MOST_TENANTS))
            if tenants := {each["companyId"] for each in found.items if each.get("companyId")}:
                return tenants
        return set()

    async def refuse(self, addresses: Iterable[tuple[str, str]], company_id: str) -> None:
        """Raise :class:`RecipientSuppressed` if the tenant may not write to one. ``addresses``: field and address."""
        given = list(addresses)
        found = await asyncio.gather(*(self.find(address, company_id) for _, address in given))
        problems = [
            FieldProblem(field, f"{mask_address(address)} is suppressed ({suppression.reason.value})")
            for (field, address), suppression in zip(given, found, strict=True)
            if suppression is not None
        ]
        if problems:
            raise RecipientSuppressed(problems)

    async def add(  # noqa: PLR0913 - the fields of the record
        self,
        addresses: Iterable[str],
        reason: SuppressionReason,
        *,
        detail: str | None,
        source: str,
        now: datetime,
        tenants: Collection[str] = (),
    ) -> int:
        """Put addresses on the list, for these tenants or for all. Returns the number of valid addresses.

        An address on the list keeps its ``since``. Invalid addresses are ignored.
        """
        effects = []
        valid = 0
        for address in addresses:
            try:
                hashed = address_hash(self._vault, address)
            except ValueError:
                continue
            valid += 1
            facts = {
                "address": mask_address(normalised(address)),
                "reason": reason.value,
                "detail": None if detail is None else masked_text(detail),
                "source": source,
            }
            owners: list[str | None] = [*sorted(tenants)] or [None]
            for company_id in owners:
                own = {} if company_id is None else {"hash": hashed, "companyId": company_id}
                effects.append(Upsert(SUPPRESSIONS, _key(hashed, company_id), facts | own, {"since": isoformat(now)}))
        if effects:
            await self._store.apply(effects)
        return valid

    async def remove(self, address: str) -> bool:
        """Remove an address for all tenants; False if it was not there. Raises ValueError for an invalid address."""
        found = await self.find_all(address)
        if found:
            await self._store.apply([Delete(SUPPRESSIONS, each.address_hash) for each in found])
        return bool(found)

    async def list(self, page: Page, reason: SuppressionReason | None = None) -> Slice[Suppression]:
        """The list, newest first."""
        where = {} if reason is None else {"reason": reason.value}
        query = RecordQuery(collection=SUPPRESSIONS, where=where, newest_by="since")
        found = await self._store.find_records(query, page)
        return Slice([Suppression.of(each) for each in found.items], found.next)
