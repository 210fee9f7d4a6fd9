"""Canaries: people whose names, addresses and numbers nobody else has, emails to them, and a search for their traces.

A canary run posts emails through a real API process while workers are killed, puts jobs with clear numbers straight
into the queue, asks everything that answers, and then looks for what should be nowhere.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from holdfast.cli import main
from holdfast.wiring import open_system
from tests.support.counted_work import app
from tests.support.long_run import LONG_RUN
from tests.support.processes import Fleet
from tests.support.settings import load
from tests.support.smtp_server import SmtpServer
from tests.support.waiting import eventually

EMAILS, BATCH = (500, 50) if LONG_RUN else (100, 20)
REFUSED = EMAILS // 25
"""How many people the mail server refuses. It refuses the same number twice for now, and then accepts."""
DOMAIN = "canario.example"
PEPPER = "canary-pepper-Wq8sLz3vNd5tYk1hRb7m"
KEY = base64.b64encode(bytes(range(60, 92))).decode()
OPERATOR = "canary-operator-Zr8mYp3uHd6cGf1j"
TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"

LOCAL_PART = "zulmira"
SURNAME = "Quixaba"
HTML_SECRET = "segredo-do-corpo"
_DRAIN = 200.0


@dataclass(frozen=True)
class Person:
    """A canary. ``number`` is the bare CPF or CNPJ."""

    name: str
    address: str
    external_id: str
    number: str
    written: str

    @property
    def numbers(self) -> tuple[str, str]:
        return self.number, self.written


def people() -> Iterator[Person]:
    for serial in count(1):
        number = _number(serial)
        yield Person(
            name=f"Zulmira {SURNAME}{serial:04d}",
            address=f"{LOCAL_PART}.q{serial:04d}@{DOMAIN}",
            external_id=f"CUST-{serial:04d}",
            number=number,
            written=_written(number),
        )


def _number(serial: int) -> str:
    match serial % 3:
        case 0:
            return _checked(f"{serial:03d}ABC{serial:06d}"[:12], range(2, 10))  # the alphanumeric CNPJ
        case 1:
            return _checked(f"{710_000_000 + serial * 7919}", range(2, 12))  # a CPF
        case _:
            return _checked(f"{31_000_000 + serial * 7919:08d}0001", range(2, 10))  # a CNPJ


def _checked(base: str, weights: range) -> str:
    for _ in range(2):
        cycle = list(weights)
        total = sum((ord(c) - 48) * cycle[i % len(cycle)] for i, c in enumerate(reversed(base)))
        base += str((-total % 11) % 10) if total % 11 > 1 else "0"
    return base


def _written(n: str) -> str:
    if len(n) == 11:
        return f"{n[:3]}.{n[3:6]}.{n[6:9]}-{n[9:]}"
    return f"{n[:2]}.{n[2:5]}.{n[5:8]}/{n[8:12]}-{n[12:]}"


def an_email(person: Person, serial: int = 0) -> dict[str, Any]:
    return {
        "to": person.address,
        "subject": f"Boleto {serial}",
        "html": f"<p>{HTML_SECRET} {person.name} {person.written}</p>",
        "recipient": {
            "externalId": person.external_id,
            "cpfCnpj": person.written if serial % 2 else person.number,
            "nome": person.name,
        },
    }


def wrong_requests(person: Person) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Requests that must be refused, with their headers. Each has data that no answer may repeat."""
    good = an_email(person)
    for number in person.numbers:
        yield good | {"subject": f"Boleto de {number}"}, {}
        yield good | {"headers": {"X-Cliente": number}}, {}
        yield good | {"headers": {number: "x"}}, {}
        yield good | {"recipient": {"externalId": number}}, {}
        yield good | {"tags": [number]}, {}
        yield good | {"to": f"{person.address} {number}"}, {}
        yield good | {number: 1}, {}
        yield good | {"sendAt": number, "priority": number, "delay": number}, {}
        yield good, {"idempotency-key": number}
    yield good | {"to": f"{LOCAL_PART} sem arroba"}, {}
    yield good | {"cc": [f"{person.address}@"]}, {}
    yield good | {"tags": [TOKEN]}, {}
    yield good | {"replyTo": f"<{person.address}>", TOKEN: True}, {}


def a_planted_job(company: str, person: Person, **changes: Any) -> dict[str, Any]:
    """A job of a careless external producer, with personal data."""
    job = {
        "outboxId": f"00000000-0000-4000-8000-{int(person.external_id[-4:]):012d}",
        "companyId": company,
        "requestId": "req-planted",
        "to": person.address,
        "subject": f"Boleto de {person.written}",
        "htmlRef": "nothing",
        "cpfCnpj": person.number,
        "recipient": {"externalId": person.external_id, "nome": person.name, "email": person.address},
        "attempt": 1,
        "enqueuedAt": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    return job | changes


@dataclass
class Run:
    """A deployment with canaries. ``said`` is every answer and every log, by its origin."""

    fleet: Fleet
    settings: dict[str, str]
    folder: Path
    server: SmtpServer
    api_key: str
    company: str
    everybody: list[Person]
    planted: list[Person]
    said: dict[str, str] = field(default_factory=dict)
    outbox_ids: dict[str, str] = field(default_factory=dict)
    address: str = ""

    @property
    def tenant(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.api_key}"}

    def keep(self, who: str, text: str) -> None:
        self.said[who] = self.said.get(who, "") + text + "\n"

    async def post(self, client: httpx.AsyncClient, people: Sequence[Person], first: int) -> None:
        emails = [
            an_email(person, first + n) | {"idempotencyKey": f"key-{person.external_id}"}
            for n, person in enumerate(people)
        ]
        answer = await client.post("/v1/email/batch", json={"emails": emails}, headers=self.tenant)
        self.keep("API", answer.text)
        assert answer.status_code == 207, answer.text
        for person, each in zip(people, answer.json()["answers"], strict=True):
            assert each["statusCode"] == 202, each
            self.outbox_ids[person.external_id] = each["answer"]["outboxId"]

    async def command(self, *arguments: str) -> str:
        """Run ``holdfast <arguments>`` in this process, with no other environment than the run's; its output."""
        out, err = io.StringIO(), io.StringIO()
        with patch.dict(os.environ, self.settings, clear=True), redirect_stdout(out), redirect_stderr(err):
            await asyncio.to_thread(main, arguments)
        self.keep(f"holdfast {arguments[0]}", out.getvalue() + err.getvalue())
        assert "Traceback" not in err.getvalue(), err.getvalue()
        return out.getvalue()

    def traces(self, *, people: bool) -> list[bytes]:
        """The data that must be found nowhere; with ``people``, names and addresses too."""
        everybody = [*self.everybody, *self.planted]
        needles = [number for each in everybody for number in each.numbers]
        needles += [HTML_SECRET, PEPPER, KEY, OPERATOR, TOKEN, self.api_key.rpartition("_")[2]]
        if people:
            needles += [LOCAL_PART, SURNAME]
        return [each.encode() for each in needles]

    def found(self, where: Mapping[str, bytes], *, people: bool) -> list[str]:
        """The places where personal data was found, and which data."""
        needles = self.traces(people=people)
        return [f"{place}: {needle!r}" for place, content in where.items() for needle in needles if needle in content]


def environment(folder: Path, server: SmtpServer, **settings: str) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HOLDFAST_DATA": str(folder),
        "API_PORT": "0",
        "OPERATOR_TOKEN": OPERATOR,
        "WORKER_LEASE_SECONDS": "1",
        "UPKEEP_INTERVAL_MS": "100",
        "PUBLISH_GRACE_MS": "100",
        "LOG_LEVEL": "debug",
        "LOG_FORMAT": "json",
        "EMAIL_TRANSPORT": "smtp",
        "EMAIL_FROM": "mail@sender.example",
        "SMTP_HOST": server.host,
        "SMTP_PORT": str(server.port),
        "SMTP_SECURITY": "none",
        "EMAIL_RATE_MAX": "0",
        "EMAIL_BACKOFF_SECONDS": "0,0,0,0,0",
        "EMAIL_PEPPER": PEPPER,
        "EMAIL_KEYS": json.dumps({"first": KEY}),
    } | settings


async def prepare(folder: Path, server: SmtpServer, fleet: Fleet, settings: dict[str, str]) -> Run:
    """A tenant with a key, recipients, and a mail server that repeats the commands in its answers."""
    async with open_system(load(settings, folder), app) as system:
        tenant = await system.tenants.add("acme")
        _, api_key = await system.tenants.create_key(tenant.company_id)
    source = people()
    everybody = [next(source) for _ in range(EMAILS)]
    planted = [next(source) for _ in range(6)]
    for person in everybody[10::20][:REFUSED]:
        text = f"<{person.address}> {person.name} CPF {person.written} ({person.number}) unknown"
        server.rule("rcpt", f"550 5.1.1 {text}", match=person.address)
    for person in everybody[11::20][:REFUSED]:
        text = f"<{person.address}> documento {person.number} greylisted"
        server.rule("end", f"451 4.7.1 {text}", match=person.address, times=2)
    return Run(fleet, settings, folder, server, api_key, tenant.company_id, everybody, planted)


async def fly(run: Run, plant: Callable[[dict[str, Any], str], Awaitable[None]], settled: Callable[[], bool]) -> None:
    """The run: emails, wrong requests, planted jobs and killed workers, until everything has ended."""
    api = await run.fleet.start("api")
    run.address = api.address or ""
    async with httpx.AsyncClient(base_url=run.address, timeout=60) as client:
        for first in range(0, EMAILS, BATCH):
            await run.post(client, run.everybody[first : first + BATCH], first)
            if first == 2 * BATCH:
                for number, person in enumerate(run.planted):
                    job = a_planted_job(run.company, person)
                    await plant(job, job["outboxId"] if number % 2 else f"planted-{number}")
            if first in {BATCH, 4 * BATCH}:  # killed with emails in its hands
                before = len(run.server.taken)
                worker = await run.fleet.start("worker")
                await eventually(lambda before=before: len(run.server.taken) > before + 5)
                await worker.kill()
        for body, headers in [each for person in run.everybody[:3] for each in wrong_requests(person)]:
            answer = await client.post("/v1/email/send", json=body, headers=run.tenant | headers)
            run.keep("API", answer.text)
            assert 400 <= answer.status_code < 500, answer.text
        await run.fleet.start("worker")
        await eventually(lambda: asyncio.to_thread(settled), within=_DRAIN)
        await ask(run, client)


async def ask(run: Run, client: httpx.AsyncClient) -> None:
    """Read everything, over HTTP and by the command line."""
    operator = {"authorization": f"Bearer {OPERATOR}"}
    person = run.everybody[0]
    for path, headers in [
        ("/v1/email?limit=100", run.tenant),
        ("/v1/email?status=FAILED", run.tenant),
        (f"/v1/email?status={person.written}", run.tenant),
        (f"/v1/email?cursor={person.number}", run.tenant),
        (f"/v1/email/{person.written}", run.tenant),
        *((f"/v1/email/{run.outbox_ids[each.external_id]}", run.tenant) for each in run.everybody[:20]),
        *((f"/v1/jobs/email/{run.outbox_ids[each.external_id]}", operator) for each in run.everybody[:20]),
        ("/v1/dead-letters?limit=100", operator),
        ("/ready", {}),
    ]:
        answer = await client.get(path, headers=headers)
        assert answer.status_code < 500, answer.text
        run.keep("API", answer.text)
    letters = (await client.get("/v1/dead-letters?limit=100", headers=operator)).json()
    for letter in letters["items"][:10]:
        run.keep("API", (await client.get(f"/v1/dead-letters/{letter['id']}", headers=operator)).text)
    first = run.outbox_ids[run.everybody[10].external_id]
    for arguments in [
        ("dlq", "list", "--json"),
        ("dlq", "show", letters["items"][0]["id"]),
        ("events", "show", "-w", "email", first),
        ("events", "list", "-w", "email", "--json"),
        ("emails", "list", "--limit", "500", "--json"),
        ("emails", "show", first),
        ("keys", "list"),
        ("suppressions", "list"),
        ("queue", "status", "--json"),
        ("config", "show"),
        ("doctor",),
    ]:
        await run.command(*arguments)


async def stop(run: Run) -> None:
    """Stop the processes, and collect their logs."""
    for member in run.fleet.members:
        if member.alive:
            assert await member.terminate() == 0
    for member in run.fleet.members:
        run.keep(f"log of {member.log.name}", member.log.read_text())
