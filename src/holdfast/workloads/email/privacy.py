"""Forgetting a person (LGPD, article 18), and sealing personal data under a new key.

What is forgotten: everything that names the person or leads to them, in ``recipients``, in ``email_outbox``, in settled
jobs and their dead letters, in the queues' copies of them, and HTML that only they were sent. What stays: that an email
existed, when it was accepted and how it ended, so that the ledger still knows a duplicate; and, under a keyed hash,
that the address gets no emails, so that nobody writes to them again.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from holdfast.contracts.dead_letters import letter_id
from holdfast.contracts.effects import Delete, Upsert
from holdfast.contracts.ledger import LedgerEntry
from holdfast.contracts.ports import Broker, Store
from holdfast.contracts.queries import EntryQuery, Page, RecordQuery
from holdfast.contracts.times import isoformat
from holdfast.contracts.workload import Workload

from .admission import seal_context
from .content import Content
from .content_database import content_context
from .contract import OutboxStatus
from .records import CONTENT, OUTBOX, RECIPIENTS, content_key
from .suppression import address_hash
from .vault import SealBroken, Vault

SEALED: Final = ("cpfCnpjSealed", "emailSealed", "nomeSealed", "razaoSocialSealed")

_OF_A_RECIPIENT: Final = (*SEALED, "externalId", "cpfCnpjHash", "emailHash")
_OF_AN_EMAIL: Final = ("to", "toHash", "subject", "externalId", "cpfCnpjHash", "tags", "lastErrorMessage", "htmlRef")
_PAGE: Final = 200
_CONTENT_PAGE: Final = 10
"""HTML is long."""
_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class Selector:
    """Whom to forget: by recipient id, by a tenant's own id for them, or by address. One of the three."""

    recipient_id: str | None = None
    company_id: str | None = None
    external_id: str | None = None
    address: str | None = field(default=None, repr=False)


@dataclass(slots=True)
class Person:
    """What is kept about somebody. ``erased`` says that they were forgotten before."""

    recipients: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    emails: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    addresses: set[str] = field(default_factory=set)
    """Keyed hashes of their addresses."""
    erased: bool = False

    @property
    def waiting(self) -> list[str]:
        """Emails to them that have not ended."""
        return [key for key, email in self.emails.items() if not _has_ended(email)]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to forget."""
        return not self.recipients and not self.emails


@dataclass(slots=True)
class Forgotten:
    """What was done. ``in_work`` are emails that could not be cancelled: they end by themselves; then ask again."""

    recipients: int = 0
    emails: int = 0
    cancelled: int = 0
    jobs: int = 0
    contents: int = 0
    in_work: list[str] = field(default_factory=list)

    @property
    def nothing(self) -> bool:
        """Whether there was nothing left to forget."""
        return not (self.recipients or self.emails or self.cancelled or self.jobs or self.contents or self.in_work)


@dataclass(slots=True)
class Resealed:
    """What a rotation of keys did. ``broken`` are records whose key is not known any more, or that were changed."""

    values: int = 0
    recipients: int = 0
    contents: int = 0
    broken: list[str] = field(default_factory=list)


class Privacy:
    """Looks up, forgets and reseals personal data. ``content`` is where HTML is kept; None: in the database."""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        vault: Vault,
        workload: Workload[Any],
        content: Content | None = None,
    ) -> None:
        self._store = store
        self._broker = broker
        self._vault = vault
        self._workload = workload
        self._content = content

    async def find(self, selector: Selector) -> Person:
        """Everything that is kept about the person. Raises ValueError, without it, for an address that is none."""
        person = Person()
        await self._find_recipients(selector, person)
        for document in person.recipients.values():
            if document.get("erasedAt") is not None:
                person.erased = True
            if document.get("emailHash") is not None:
                person.addresses.add(document["emailHash"])
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
        """Forget the person. It may be cut short and asked again at any time, until nothing is left to forget."""
        done = Forgotten()
        person = await self.find(selector)
        for outbox_id in person.waiting:
            if await cancel(outbox_id):
                done.cancelled += 1
        if done.cancelled:
            person = await self.find(selector)
        done.in_work = person.waiting
        # The bodies before the records: should this be cut short, the records still lead to the bodies.
        done.jobs = await self._redact(person)
        done.contents = await self._forget_contents(person)
        effects = [*_forget_emails(person, now), *_forget_recipients(person, now, keep=bool(done.in_work))]
        done.emails = sum(effect.collection == OUTBOX for effect in effects)
        done.recipients = len(effects) - done.emails
        for start in range(0, len(effects), _AT_ONCE):
            await self._store.apply(effects[start : start + _AT_ONCE])
        return done

    async def reseal(self) -> Resealed:
        """Seal under the current key whatever an older one sealed. Then the older keys may be taken away.

        That goes for HTML in the database too: it expires, but each new email that uses it puts that off.
        """
        done = Resealed()
        await self._reseal_recipients(done)
        await self._reseal_contents(done)
        return done

    async def _reseal_recipients(self, done: Resealed) -> None:
        async for document in self._documents(RECIPIENTS, {}):
            changed = {}
            for name in SEALED:
                try:
                    resealed = self._resealed(document, name)
                except SealBroken:
                    done.broken.append(f"{document['recipientId']}/{name}")
                    continue
                if resealed is not None:
                    changed[name] = resealed
            if changed:
                await self._store.apply([Upsert(RECIPIENTS, document["recipientId"], changed)])
                done.values += len(changed)
                done.recipients += 1

    async def _reseal_contents(self, done: Resealed) -> None:
        async for document in self._documents(CONTENT, {}, _CONTENT_PAGE):
            key, sealed = document["contentKey"], document.get("sealed")
            try:
                if sealed is None or not self._vault.needs_rotation(sealed):
                    continue
                resealed = self._vault.reseal(sealed, context=content_context(key))
            except SealBroken:
                done.broken.append(f"{CONTENT}/{key}")
                continue
            # Should it be forgotten at this moment, what is written here must still expire.
            kept = {name: document.get(name) for name in ("companyId", "bytes", "sha256", "expiresAt")}
            await self._store.apply([Upsert(CONTENT, key, {"sealed": resealed}, kept)])
            done.contents += 1

    def _resealed(self, document: Mapping[str, Any], name: str) -> str | None:
        sealed = document.get(name)
        if sealed is None or not self._vault.needs_rotation(sealed):
            return None
        context = seal_context(document["companyId"], document["recipientId"], name)
        return self._vault.reseal(sealed, context=context)

    # --- finding ------------------------------------------------------------------------------------------

    async def _find_recipients(self, selector: Selector, person: Person) -> None:
        if selector.recipient_id is not None:
            document = await self._store.get(RECIPIENTS, selector.recipient_id)
            if document is not None:
                person.recipients[selector.recipient_id] = document
            return
        if selector.address is not None:
            where = {"emailHash": address_hash(self._vault, selector.address)}
        else:
            where = {"companyId": selector.company_id or "", "externalId": selector.external_id or ""}
        async for document in self._documents(RECIPIENTS, where):
            person.recipients[document["recipientId"]] = document

    async def _find_emails(self, person: Person) -> None:
        """By the recipient, and by the address: it may have been used under another identifier of the same tenants."""
        for recipient_id in person.recipients:
            async for document in self._documents(OUTBOX, {"recipientId": recipient_id}):
                person.emails[document["outboxId"]] = document
        for each in person.addresses:
            async for document in self._documents(OUTBOX, {"toHash": each}):
                person.emails[document["outboxId"]] = document

    async def _documents(
        self, collection: str, where: Mapping[str, Any], page: int = _PAGE
    ) -> AsyncIterator[Mapping[str, Any]]:
        cursor = None
        while True:
            query = RecordQuery(collection=collection, where=where)
            found = await self._store.find_records(query, Page(page, cursor))
            for document in found.items:
                yield document
            cursor = found.next
            if cursor is None:
                return

    # --- forgetting ---------------------------------------------------------------------------------------

    async def _redact(self, person: Person) -> int:
        """Empty the jobs. All of the ledger is read: a copy to the person stands in jobs that are for others."""
        if person.empty and not person.addresses:
            return 0
        changed = 0
        cursor = None
        while True:
            found = await self._store.find(EntryQuery(workload=self._workload.name), Page(_PAGE, cursor))
            about = [entry for entry in found.items if self._is_about(entry, person)]
            if about:
                # The queues first: once a job is emptied, nobody would look for it there again.
                await self._forget_in_queues(about)
                bodies = {entry.job_id: _emptied(entry) for entry in about}
                changed += len(await self._store.redact(self._workload.name, bodies))
            cursor = found.next
            if cursor is None:
                return changed

    async def _forget_in_queues(self, entries: Sequence[LedgerEntry]) -> None:
        """Queues keep failed jobs, and dead letters, for people to look at."""
        name = self._workload.name
        letters = [letter_id(name, each.key, number + 1) for each in entries for number in range(each.generation)]
        await self._broker.remove(self._workload.queue, [entry.job_id for entry in entries])
        await self._broker.remove(self._workload.dead_letter_queue, letters)

    def _is_about(self, entry: LedgerEntry, person: Person) -> bool:
        """Whether a settled job still tells of the person."""
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

    async def _forget_contents(self, person: Person) -> int:
        """HTML that no email to anybody else refers to."""
        refs = {
            (email["companyId"], email["htmlRef"])
            for email in person.emails.values()
            if email.get("htmlRef") and _has_ended(email)
        }
        forgotten = 0
        for company_id, ref in refs:
            others = [
                document["outboxId"]
                async for document in self._documents(OUTBOX, {"companyId": company_id, "htmlRef": ref})
                if document["outboxId"] not in person.emails or not _has_ended(document)
            ]
            if others:
                continue
            if self._content is not None:
                await self._content.delete(company_id, ref)
            else:
                await self._store.apply([Delete(CONTENT, content_key(company_id, ref))])
            forgotten += 1
        return forgotten


def _has_ended(email: Mapping[str, Any]) -> bool:
    return OutboxStatus(email.get("status", OutboxStatus.PENDING)).terminal


def _forget_emails(person: Person, now: datetime) -> Iterator[Upsert | Delete]:
    """What still says something about the person. An email in work keeps it: its worker has yet to write."""
    for outbox_id, email in person.emails.items():
        if _has_ended(email) and any(email.get(name) for name in _OF_AN_EMAIL):
            yield Upsert(OUTBOX, outbox_id, {**dict.fromkeys(_OF_AN_EMAIL), "erasedAt": isoformat(now)})


def _forget_recipients(person: Person, now: datetime, *, keep: bool) -> Iterator[Upsert | Delete]:
    """While an email is in work its recipient is kept, so that asking again finds the email."""
    if keep:
        return
    for recipient_id, document in person.recipients.items():
        if any(document.get(name) for name in _OF_A_RECIPIENT):
            yield Upsert(RECIPIENTS, recipient_id, {**dict.fromkeys(_OF_A_RECIPIENT), "erasedAt": isoformat(now)})


def _emptied(entry: LedgerEntry) -> str:
    return json.dumps({"erased": True, "outboxId": entry.job_id, "companyId": entry.labels.get("companyId")})


def _read(body: str) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _addresses(job: Mapping[str, Any]) -> Iterator[str]:
    """Every address in a job, whatever somebody put into the queue."""
    for name in ("to", "replyTo", "cc", "bcc"):
        value = job.get(name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str):
                yield each
