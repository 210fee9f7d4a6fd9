"""Emails for a running gateway: a tenant who posts, a mail server that outlives every worker, and a checker.

Three witnesses who know nothing of each other are asked: what the tenant was told, what the store holds at the end, and
what the mail server took.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.wiring import open_system
from tests.support.settings import load

from .counted_work import app
from .processes import ROOT, START_SECONDS
from .raw_http import NoAnswer, NotSent, request
from .running_cluster import ClusterGateway
from .running_gateway import DRAIN_SECONDS, EmbeddedGateway, RunningGateway
from .smtp_server import taken_in

POINTS: Final = (
    "worker.taken",
    "worker.claimed",
    "worker.proceeding",
    "worker.proceeded",
    "email.before_send",
    "email.sent",
    "worker.handled",
    "worker.settled",
    "worker.acknowledged",
)
"""Every place where a worker can die with an email in its hands."""

UNKNOWN: Final = "SEND_OUTCOME_UNKNOWN"
WORKER_LOST: Final = "WORKER_LOST"

_QUEUE: Final = "email:send"
_LETTERS: Final = "email:send:dlq"
_WANTED: Final = {"processed": "SENT", "dead_lettered": "FAILED", "expired": "EXPIRED"}


def mail_settings(port: int) -> dict[str, str]:
    """Settings of gateways that send to the mail server on this port, with short waits."""
    return {
        "EMAIL_TRANSPORT": "smtp",
        "EMAIL_FROM": "mail@sender.example",
        "SMTP_HOST": "127.0.0.1",
        "SMTP_PORT": str(port),
        "SMTP_SECURITY": "none",
        "EMAIL_BACKOFF_SECONDS": "0,0,0,0,0",
        # A limit, so that permits are acquired. It is high: the permits of killed workers rest for a while.
        "EMAIL_RATE_MAX": "1000",
        "EMAIL_PEPPER": base64.b64encode(bytes(range(32))).decode(),
        "EMAIL_KEYS": json.dumps({"first": base64.b64encode(bytes(range(40, 72))).decode()}),
    }


@contextlib.asynccontextmanager
async def mail_server(folder: Path) -> AsyncIterator[tuple[int, Path]]:
    """The mail server in a process of its own: its port, and the log of what it took."""
    port_file, log = folder / "smtp-port", folder / "smtp-taken"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.smtp_server", "--port-file", port_file, "--log", log), cwd=ROOT
    )
    try:
        async with asyncio.timeout(START_SECONDS):
            while not port_file.exists():
                assert process.returncode is None, "the mail server ended"
                await asyncio.sleep(0.02)
        yield int(port_file.read_text()), log
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


# --- the tenant -----------------------------------------------------------------------------------------------------


@dataclass
class Tenant:
    """Posts emails, alone and in batches, and asks again when it was left without an answer.

    ``receipts`` is what it was told: the outbox id for each of its keys.
    """

    api_key: str
    chance: random.Random
    addresses: Callable[[], list[str]]
    receipts: dict[str, str] = field(default_factory=dict)
    _serial: int = 0
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(self._post_on())

    def stop(self) -> None:
        self._stop.set()

    async def post(self, count: int = 1) -> list[str]:
        """Post so many new emails in one request, until it is answered; their outbox ids."""
        return await self._ask([self._new() for _ in range(count)])

    async def _post_on(self) -> None:
        while not self._stop.is_set():
            ids = await self._ask([self._new() for _ in range(self.chance.choice((1, 1, 1, 12)))])
            assert len(set(ids)) == len(ids)
            if self.chance.random() < 0.2:  # the same once more: nothing new may come of it
                key = self.chance.choice(list(self.receipts))
                assert await self._ask([key]) == [self.receipts[key]]
            await asyncio.sleep(self.chance.uniform(0, 0.4))

    def _new(self) -> str:
        self._serial += 1
        return f"key-{self._serial:06d}"

    async def _ask(self, keys: Sequence[str]) -> list[str]:
        while True:
            if (found := await self._once(keys)) is not None:
                self.receipts |= dict(zip(keys, found, strict=True))
                return found
            await asyncio.sleep(0.05)

    async def _once(self, keys: Sequence[str]) -> list[str] | None:
        headers = {"authorization": f"Bearer {self.api_key}"}
        document: dict[str, Any] = _email(keys[0])
        path = "/v1/email/send"
        if len(keys) == 1:
            headers["idempotency-key"] = keys[0]
        else:
            path = "/v1/email/batch"
            document = {"emails": [_email(key) | {"idempotencyKey": key} for key in keys]}
        try:
            body = json.dumps(document).encode()
            answer = await request(self.chance.choice(self.addresses()), "POST", path, headers, body)
        except (NotSent, NoAnswer, IndexError):
            return None
        if len(keys) == 1:
            assert answer.status in {202, 503}, answer
            return [answer.document["outboxId"]] if answer.status == 202 else None
        assert answer.status == 207, answer
        answers = answer.document["answers"]
        if any(each["statusCode"] != 202 for each in answers):
            return None
        return [each["answer"]["outboxId"] for each in answers]


def _email(key: str) -> dict[str, Any]:
    return {
        "to": f"{key}@example.com",
        "subject": f"Boleto {key}",
        "html": f"<p>{key}</p>",
        "recipient": {"externalId": key},
    }


# --- what is left at the end ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MailTruth:
    """What the store and the queues hold. Emails are named by their outbox ids."""

    entries: Mapping[str, str]
    outbox: Mapping[str, str]
    log: Mapping[str, str]
    letters: Sequence[tuple[str, str]]
    """Email and reason."""
    waiting: int
    """Jobs that the queue would still hand out."""
    told: int
    """Dead letters in their queue."""

    @property
    def settled(self) -> bool:
        return self.waiting == 0 and self.told == len(self.letters) and set(self.entries.values()) <= set(_WANTED)

    @property
    def sent(self) -> list[str]:
        return [each for each, status in self.outbox.items() if status == "SENT"]

    @property
    def unknown(self) -> list[str]:
        return [each for each, reason in self.letters if reason == UNKNOWN]


def mail_truth(gateway: RunningGateway) -> MailTruth:
    """Read past Holdfast's own code."""
    return _of_cluster(gateway) if isinstance(gateway, ClusterGateway) else _of_file(gateway)


def _of_file(gateway: EmbeddedGateway) -> MailTruth:
    return MailTruth(
        entries=dict(gateway.query("SELECT key, status FROM ledger_entries WHERE workload = 'email'")),
        outbox=dict(gateway.query("SELECT outboxId, body ->> '$.status' FROM email_outbox")),
        log=dict(gateway.query("SELECT outboxId, body ->> '$.status' FROM email_log")),
        letters=gateway.query("SELECT key, reason_code FROM dead_letters WHERE workload = 'email'"),
        waiting=gateway.query("SELECT count(*) FROM queue_jobs WHERE queue = ?", _QUEUE)[0][0],
        told=gateway.query("SELECT count(*) FROM queue_jobs WHERE queue = ?", _LETTERS)[0][0],
    )


def _of_cluster(gateway: ClusterGateway) -> MailTruth:
    database, redis = gateway.database, gateway.looking

    def held(queue: str) -> int:
        lists = sum(redis.llen(f"bull:{queue}:{part}") for part in ("wait", "paused", "active"))
        return lists + sum(redis.zcard(f"bull:{queue}:{part}") for part in ("delayed", "prioritized"))

    letters = database["email_dead_letters"].find()
    return MailTruth(
        entries={each["idempotencyKey"]: each["status"] for each in database["email_jobs"].find()},
        outbox={each["outboxId"]: each["status"] for each in database["email_outbox"].find()},
        log={each["outboxId"]: each["status"] for each in database["email_log"].find()},
        letters=[(each["idempotencyKey"], each["terminalReasonCode"]) for each in letters],
        waiting=held(_QUEUE),
        told=held(_LETTERS),
    )


def violations(receipts: Mapping[str, str], truth: MailTruth, messages: Counter[str]) -> Iterator[str]:
    """Whatever must never be. ``messages`` counts what the mail server took, by outbox id."""
    for outbox_id in receipts.values():
        if outbox_id not in truth.entries:
            yield f"{outbox_id} was acknowledged and is gone"
    for outbox_id in truth.entries:
        yield from _of_fate(outbox_id, truth, messages[outbox_id])
    for outbox_id, times in messages.items():
        if times > 1:
            yield f"{outbox_id} reached the mail server {times} times"
        if outbox_id not in truth.entries:
            yield f"the mail server has {outbox_id}, which nobody posted"
    if len(dict(truth.letters)) != len(truth.letters):
        yield "an email has two dead letters"
    if not len(truth.sent) <= messages.total() <= len(truth.sent) + len(truth.unknown):
        yield f"{len(truth.sent)} SENT, {len(truth.unknown)} unknown, {messages.total()} messages"


def _of_fate(outbox_id: str, truth: MailTruth, messages: int) -> Iterator[str]:
    """One email has one end, and every record agrees about it."""
    status, letter = truth.entries[outbox_id], dict(truth.letters).get(outbox_id)
    outbox, log = truth.outbox.get(outbox_id), truth.log.get(outbox_id)
    if outbox != _WANTED.get(status):
        yield f"{outbox_id} is {status}, and its outbox says {outbox}"
    if (status == "processed") != (log == "SENT"):
        yield f"{outbox_id} is {status}, and its log says {log}"
    if (status == "dead_lettered") != (letter is not None) or letter not in {None, UNKNOWN, WORKER_LOST}:
        yield f"{outbox_id} is {status}, and has {letter} for a dead letter"
    if status == "processed" and not messages:
        yield f"{outbox_id} is SENT, and the mail server never saw it"
    if status != "processed" and letter != UNKNOWN and messages:
        yield f"{outbox_id} is {status} ({letter}), and the mail server has it"


# --- the traffic ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EmailTraffic:
    """A tenant at a running gateway, and what became of its emails."""

    gateway: RunningGateway
    tenant: Tenant
    messages: Callable[[], Counter[str]]
    """What the mail server has taken so far, by outbox id."""

    @contextlib.asynccontextmanager
    async def under_load(self, *, emails: int) -> AsyncIterator[None]:
        """A tenant at work, until it was told of so many emails at least."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.tenant.run())
            try:
                yield
                await self.until(lambda: len(self.tenant.receipts) >= emails, f"{emails} emails")
            finally:
                self.tenant.stop()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        clock = asyncio.get_running_loop().time
        end = clock() + DRAIN_SECONDS
        while not await asyncio.to_thread(condition):
            assert clock() < end, f"{what}: not so after {DRAIN_SECONDS} s; logs in {self.gateway.folder}"
            await asyncio.sleep(0.1)

    async def ended(self) -> MailTruth:
        """Everything settled, every process stopped in good order."""
        try:
            await self.until(lambda: mail_truth(self.gateway).settled, "drained")
        except AssertionError as error:
            truth = mail_truth(self.gateway)
            found = (
                f"{Counter(truth.entries.values())}, {truth.waiting} jobs, {truth.told} of {len(truth.letters)} letters"
            )
            message = f"{error}: {found}"
            raise AssertionError(message) from None
        living = [member for member in self.gateway.fleet.members if member.alive]
        assert {await member.terminate() for member in living} == {0}
        return await asyncio.to_thread(mail_truth, self.gateway)

    def violations(self, truth: MailTruth) -> list[str]:
        return list(violations(self.tenant.receipts, truth, self.messages()))


def outbox_ids(messages: Sequence[str]) -> Counter[str]:
    """How often each email is among these Message-IDs."""
    return Counter(each.strip("<>").partition("@")[0] for each in messages)


def messages_in(log: Path) -> Counter[str]:
    """What the mail server of another process took."""
    return outbox_ids([each["messageId"] for each in taken_in(log)])


async def with_tenant(gateway: RunningGateway, messages: Callable[[], Counter[str]]) -> EmailTraffic:
    """A tenant of the gateway. ``messages`` tells what the mail server has taken so far."""
    async with open_system(load(gateway.fleet.environment, gateway.folder), app) as system:
        company = await system.tenants.add("acme")
        _, api_key = await system.tenants.create_key(company.company_id)
    return EmailTraffic(gateway, Tenant(api_key, gateway.chance, lambda: gateway.fleet.addresses), messages)
