"""Erasure of a person's data (LGPD, article 18), and sealing personal data with a new key.

Erased: all data that identifies the person, in ``recipients``, in ``email_outbox``, in settled jobs and their dead
letters, and in the copies of both in the queues; also HTML that only this person received, and the ``.eml`` files of
the folder transport. At the end the store's write-ahead log is emptied. Kept: that an email existed,
when it was accepted and how it ended, so that the ledger still recognises a duplicate. Also kept: the suppression of an
address, under a keyed hash, so that the person gets no more emails.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from holdfast import Delete, EntryQuery, LedgerEntry, Page, RecordQuery, Upsert, Workload, isoformat, letter_id
from holdfast.blobs import is_plain
from holdfast.blobs.arriving import sync_folder
from holdfast.feature import Broker, Store

from .admission import seal_context
from .content import Content, content_context, content_in_database
from .records import CONTENT, OUTBOX, RECIPIENTS, EmailStatus
from .suppression import address_hash
from .vault import SealBroken, Vault

SEALED: Final = ("cpfCnpjSealed", "emailSealed", "nomeSealed", "razaoSocialSealed")

_RECIPIENT_FIELDS: Final = (*SEALED, "externalId", "cpfCnpjHash", "emailHash")
_EMAIL_FIELDS: Final = ("to", "toHash", "subject", "externalId", "cpfCnpjHash", "tags", "lastErrorMessage", "htmlRef")
_PAGE: Final = 200
_CONTENT_PAGE: Final = 10
"""Fewer per page, because HTML is long."""
_EFFECTS_PER_COMMIT: Final = 100


@dataclass(frozen=True, slots=True)
class Selector:
    """The person to erase: by recipient id, by a tenant's own id of the person, or by address. One of the three."""

    recipient_id: str | None = None
    company_id: str | None = None
    external_id: str | None = None
    address: str | None = field(default=None, repr=False)


@dataclass(slots=True)
class Person:
    """The stored data about a person. ``erased``: the person was erased before."""

    recipients: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    emails: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    addresses: set[str] = field(default_factory=set)
    """Keyed hashes of the person's addresses."""
    erased: bool = False

    @property
    def waiting(self) -> list[str]:
        """Emails to the person that have not ended."""
        return [key for key, email in self.emails.items() if not _has_ended(email)]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to erase."""
        return not self.recipients and not self.emails


@dataclass(slots=True)
class Forgotten:
    """The result of an erasure. ``in_work``: emails that could not be cancelled. Erase again after they have ended."""

    recipients: int = 0
    emails: int = 0
    cancelled: int = 0
    jobs: int = 0
    contents: int = 0
    messages: int = 0
    in_work: list[str] = field(default_factory=list)
    log_emptied: bool = True
    """False: another process kept the write-ahead log in use. It may still have erased data: erase again."""

    @property
    def nothing(self) -> bool:
        """Whether there was nothing left to erase."""
        counted = (self.recipients, self.emails, self.cancelled, self.jobs, self.contents, self.messages)
        return not (any(counted) or self.in_work)


@dataclass(slots=True)
class Resealed:
    """The result of a key rotation. ``broken``: records whose key is missing, or that were changed."""

    values: int = 0
    recipients: int = 0
    contents: int = 0
    broken: list[str] = field(default_factory=list)


class Privacy:
    """Finds, erases and reseals personal data. ``content`` stores the HTML; None: the database stores it.

    ``mail_folder`` is where the folder transport writes ``.eml`` files, or wrote them before another was chosen.
    """

    def __init__(  # noqa: PLR0913 - each is a place that holds personal data
        self,
        store: Store,
        broker: Broker,
        vault: Vault,
        workload: Workload[Any],
        content: Content | None = None,
        *,
        mail_folder: Path | None = None,
    ) -> None:
        self._mail_folder = mail_folder
        self._store = store
        self._broker = broker
        self._vault = vault
        self._workload = workload
        self._content = content or content_in_database(vault)

    async def find(self, selector: Selector) -> Person:
        """All stored data about the person. Raises ValueError for an invalid address, without repeating the address."""
        person = Person()
        await self._find_recipients(selector, person)
        for record in person.recipients.values():
            if record.get("erasedAt") is not None:
                person.erased = True
            if record.get("emailHash") is not None:
                person.addresses.add(record["emailHash"])
        if selector.address is not None:
            person.addresses.add(address_hash(self._vault, selector.address))
        await self._find_emails(person)
        return person

    async def erase(
        self,
        selector: Selector,
        now: datetime,
        cancel: Callable[[str], Awaitable[bool]],
    ) -> Forgotten:
        """Erase the person's data. If it is interrupted, call it again, until nothing is left to erase."""
        done = Forgotten()
        person = await self.find(selector)
        for outbox_id in person.waiting:
            if await cancel(outbox_id):
                done.cancelled += 1
        if done.cancelled:
            person = await self.find(selector)
        done.in_work = person.waiting
        # The bodies go before the records: if this is interrupted, the records still lead to the bodies.
        about = {outbox_id for outbox_id, email in person.emails.items() if _has_ended(email)}
        done.jobs = await self._redact(person, about)
        done.messages = await asyncio.to_thread(self._erase_messages, about)
        done.contents = await self._erase_contents(person)
        effects = [*_erased_emails(person, now), *_erased_recipients(person, now, keep=bool(done.in_work))]
        done.emails = sum(effect.collection == OUTBOX for effect in effects)
        done.recipients = len(effects) - done.emails
        for start in range(0, len(effects), _EFFECTS_PER_COMMIT):
            await self._store.apply(effects[start : start + _EFFECTS_PER_COMMIT])
        done.log_emptied = await self._store.truncate_log()
        return done

    async def reseal(self) -> Resealed:
        """Seal all values of older keys with the current key. After that, the older keys may be removed.

        This includes HTML in the database: it expires, but each new email that uses it moves the expiry.
        """
        done = Resealed()
        await self._reseal_recipients(done)
        await self._reseal_contents(done)
        return done

    async def _reseal_recipients(self, done: Resealed) -> None:
        async for record in self._records(RECIPIENTS, {}):
            changed = {}
            for name in SEALED:
                try:
                    resealed = self._resealed(record, name)
                except SealBroken:
                    done.broken.append(f"{record['recipientId']}/{name}")
                    continue
                if resealed is not None:
                    changed[name] = resealed
            if changed:
                await self._store.apply([Upsert(RECIPIENTS, record["recipientId"], changed)])
                done.values += len(changed)
                done.recipients += 1

    async def _reseal_contents(self, done: Resealed) -> None:
        async for record in self._records(CONTENT, {}, _CONTENT_PAGE):
            key, sealed = record["contentKey"], record.get("sealed")
            try:
                if sealed is None or not self._vault.needs_rotation(sealed):
                    continue
                resealed = self._vault.reseal(sealed, context=content_context(key))
            except SealBroken:
                done.broken.append(f"{CONTENT}/{key}")
                continue
            # If the HTML is erased at this moment, this write creates it again. Then it must still expire.
            kept = {name: record.get(name) for name in ("companyId", "bytes", "sha256", "expiresAt")}
            await self._store.apply([Upsert(CONTENT, key, {"sealed": resealed}, kept)])
            done.contents += 1

    def _resealed(self, record: Mapping[str, Any], name: str) -> str | None:
        sealed = record.get(name)
        if sealed is None or not self._vault.needs_rotation(sealed):
            return None
        context = seal_context(record["companyId"], record["recipientId"], name)
        return self._vault.reseal(sealed, context=context)

    # --- finding ------------------------------------------------------------------------------------------

    async def _find_recipients(self, selector: Selector, person: Person) -> None:
        if selector.recipient_id is not None:
            record = await self._store.get(RECIPIENTS, selector.recipient_id)
            if record is not None:
                person.recipients[selector.recipient_id] = record
            return
        if selector.address is not None:
            where = {"emailHash": address_hash(self._vault, selector.address)}
        else:
            where = {"companyId": selector.company_id or "", "externalId": selector.external_id or ""}
        async for record in self._records(RECIPIENTS, where):
            person.recipients[record["recipientId"]] = record

    async def _find_emails(self, person: Person) -> None:
        """Find emails by recipient and by address: a tenant may use one address with another identifier."""
        for recipient_id in person.recipients:
            async for record in self._records(OUTBOX, {"recipientId": recipient_id}):
                person.emails[record["outboxId"]] = record
        for each in person.addresses:
            async for record in self._records(OUTBOX, {"toHash": each}):
                person.emails[record["outboxId"]] = record

    async def _records(
        self, collection: str, where: Mapping[str, Any], page: int = _PAGE
    ) -> AsyncIterator[Mapping[str, Any]]:
        cursor = None
        while True:
            query = RecordQuery(collection=collection, where=where)
            found = await self._store.find_records(query, Page(page, cursor))
            for record in found.items:
                yield record
            cursor = found.next
            if cursor is None:
                return

    # --- erasing ------------------------------------------------------------------------------------------

    async def _redact(self, person: Person, about_person: set[str]) -> int:
        """Empty the jobs, and add their ids to ``about_person``.

        It reads the whole ledger: a job for another person may have this person in cc or bcc.
        """
        if person.empty and not person.addresses:
            return 0
        changed = 0
        cursor = None
        while True:
            found = await self._store.find(EntryQuery(workload=self._workload.name), Page(_PAGE, cursor))
            about = [entry for entry in found.items if self._is_about(entry, person)]
            if about:
                # The queues go first: an emptied job is not found again, so its copy in a queue would stay.
                await self._erase_in_queues(about)
                about_person.update(entry.job_id for entry in about)
                bodies = {entry.job_id: _emptied(entry) for entry in about}
                changed += len(await self._store.redact(self._workload.name, bodies))
            cursor = found.next
            if cursor is None:
                return changed

    async def _erase_in_queues(self, entries: Sequence[LedgerEntry]) -> None:
        """Remove the jobs from the queues. Queues keep failed jobs and dead letters for inspection."""
        name = self._workload.name
        letters = [letter_id(name, each.key, number + 1) for each in entries for number in range(each.generation)]
        await self._broker.remove(self._workload.queue, [entry.job_id for entry in entries])
        await self._broker.remove(self._workload.dead_letter_queue, letters)

    def _is_about(self, entry: LedgerEntry, person: Person) -> bool:
        """Whether a settled job still has data about the person."""
        job = _read(entry.body)
        if not entry.status.terminal or job.get("erased") is True:
            return False
        if entry.job_id in person.emails:
            return True
        return any(self._hash(address) in person.addresses for address in _addresses(job))

    def _hash(self, address: str) -> str | None:
        try:
            return address_hash(self._vault, address)
        except ValueError:
            return None

    def _erase_messages(self, outbox_ids: Iterable[str]) -> int:
        """Delete the ``.eml`` files of these emails. Returns how many there were."""
        if self._mail_folder is None or not self._mail_folder.is_dir():
            return 0
        files = [self._mail_folder / f"{each}.eml" for each in outbox_ids if is_plain(each)]
        found = [each for each in files if each.exists()]
        for each in found:
            each.unlink(missing_ok=True)
        if found:
            sync_folder(self._mail_folder)
        return len(found)

    async def _erase_contents(self, person: Person) -> int:
        """Delete HTML that no email to another person refers to."""
        refs = {
            (email["companyId"], email["htmlRef"])
            for email in person.emails.values()
            if email.get("htmlRef") and _has_ended(email)
        }
        deleted = 0
        for company_id, ref in refs:
            others = [
                record["outboxId"]
                async for record in self._records(OUTBOX, {"companyId": company_id, "htmlRef": ref})
                if record["outboxId"] not in person.emails or not _has_ended(record)
            ]
            if others:
                continue
            effects = await self._content.delete(company_id, ref)
            if effects:
                await self._store.apply(effects)
            deleted += 1
        return deleted


def _has_ended(email: Mapping[str, Any]) -> bool:
    return EmailStatus(email.get("status", EmailStatus.PENDING)).terminal


def _erased_emails(person: Person, now: datetime) -> Iterator[Upsert | Delete]:
    """Effects that erase ended emails. A running email is left as it is: its worker has not finished writing."""
    for outbox_id, email in person.emails.items():
        if _has_ended(email) and any(email.get(name) for name in _EMAIL_FIELDS):
            yield Upsert(OUTBOX, outbox_id, {**dict.fromkeys(_EMAIL_FIELDS), "erasedAt": isoformat(now)})


def _erased_recipients(person: Person, now: datetime, *, keep: bool) -> Iterator[Upsert | Delete]:
    """Effects that erase recipients. While an email is running, its recipient is kept: the next erasure needs it."""
    if keep:
        return
    for recipient_id, record in person.recipients.items():
        if any(record.get(name) for name in _RECIPIENT_FIELDS):
            yield Upsert(RECIPIENTS, recipient_id, {**dict.fromkeys(_RECIPIENT_FIELDS), "erasedAt": isoformat(now)})


def _emptied(entry: LedgerEntry) -> str:
    return json.dumps({"erased": True, "outboxId": entry.job_id, "companyId": entry.labels.get("companyId")})


def _read(body: str) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _addresses(job: Mapping[str, Any]) -> Iterator[str]:
    """Every address in a job. The job may have any shape: an external producer may have made it."""
    for name in ("to", "replyTo", "cc", "bcc"):
        value = job.get(name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str):
                yield each
