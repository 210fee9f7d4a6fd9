"""The rules and examples of emails, on both deployments: a real mail server takes what is sent."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from typing import Any

import httpx
import pytest

from holdfast.contracts.effects import Upsert
from holdfast.contracts.times import isoformat
from holdfast.contracts.transitions import Complete
from holdfast.features.email import contract
from holdfast.features.email.records import CONTENT, content_key
from tests.specification.places import CLUSTER, Place
from tests.support.hearing import hearing
from tests.support.settings import Settings
from tests.support.smtp_server import SmtpServer
from tests.support.specification import example
from tests.support.waiting import eventually

JOB, OPTIONS, DEFAULTS = example("email-job"), example("email-options"), example("email-defaults")
QUEUE, DEAD = "email:send", "email:send:dlq"
OUTBOX, LOG, RECIPIENTS, LETTERS = "email_outbox", "email_log", "recipients", "email_dead_letters"
HTML = "<p>Olá, João! Seu boleto.</p>"
CPF, CPF_DIGITS = "529.982.247-25", "52998224725"
LONG_SUBJECT = " ".join(["boleto"] * 20) + " disponível"
RESULT = {"sesMessageId", "status", "processedAt", "durationMs", "attempt"}


@pytest.fixture
def mail_server():
    with SmtpServer() as server:
        yield server


@pytest.fixture
async def open_office(open_place, mail_server):
    """Opens a place that sends to ``mail_server``; the HTML of the example is there."""

    async def open_one(**changes: Any) -> Place:
        settings = {
            "email_transport": "smtp",
            "smtp_host": mail_server.host,
            "smtp_port": mail_server.port,
            "smtp_security": "none",
            "email_from": "Holdfast <mail@sender.example>",
            "email_pepper": "a pepper for the specification 0123456789",
            "email_keys": json.dumps({"first": base64.b64encode(bytes(range(100, 132))).decode()}),
        }
        place = await open_place(**settings | changes)
        company, ref = JOB["companyId"], JOB["htmlRef"]
        html = Upsert(CONTENT, content_key(company, ref), {"companyId": company, "html": HTML})
        await place.gateway.system.store.apply([html])
        return place

    return open_one


def now() -> str:
    return isoformat(datetime.now(UTC))


def a_job(**changes: Any) -> dict[str, Any]:
    """The example's job, enqueued just now, under an id of its own. A change to None takes the field out."""
    job = JOB | {"outboxId": str(uuid.uuid4()), "enqueuedAt": now()} | changes
    return {name: value for name, value in job.items() if value is not None}


def recipient(**changes: Any) -> dict[str, Any]:
    """The example's recipient, changed. A change to None takes the field out."""
    return {name: value for name, value in (JOB["recipient"] | changes).items() if value is not None}


async def add(place: Place, job: dict[str, Any]) -> str:
    """``queue.add('email:send', job, {jobId, ttl, priority: 5, removeOnComplete: true, removeOnFail: false})``."""
    return await place.add(QUEUE, DEFAULTS["QUEUE_NAME"], job, **OPTIONS | {"jobId": job["outboxId"]})


async def record(place: Place, collection: str, outbox_id: str) -> dict[str, Any] | None:
    found = [each for each in await place.records(collection) if each["outboxId"] == outbox_id]
    return found[0] if found else None


async def until(place: Place, outbox_id: str, status: str) -> dict[str, Any]:
    """The record of the outbox, once it is in this state."""

    async def reached() -> dict[str, Any] | None:
        found = await record(place, OUTBOX, outbox_id)
        return found if found is not None and found["status"] == status else None

    return await eventually(reached)


async def letters(place: Place, count: int) -> list[dict[str, Any]]:
    """What the dead-letter queue holds, once it is so many."""

    async def enough() -> list[dict[str, Any]] | None:
        found = await place.waiting(DEAD)
        return [each["data"] for each in found] if len(found) == count else None

    return await eventually(enough)


def instant(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


class Results:
    """What the jobs returned: to Node, to the embedded queue, or to the ledger, whose commit acknowledges there."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._seen: list[Any] = []
        if place.deployment != CLUSTER:
            broker = place.gateway.system.broker
            settle = broker.settle

            async def settling(acknowledgements):
                self._seen.extend(json.loads(each.handling.result) for each in acknowledgements)
                await settle(acknowledgements)

            broker.settle = settling
            store = place.gateway.system.store
            settle_ledger = store.settle

            async def settling_ledger(settlements):
                answers = await settle_ledger(settlements)
                self._seen.extend(
                    json.loads(json.dumps(each.transition.result))
                    for each in settlements
                    if isinstance(each.transition, Complete)
                )
                return answers

            store.settle = settling_ledger

    async def of(self, job: dict[str, Any]) -> Any:
        """Add the job; what it returns when a worker has run it."""
        await add(self._place, job)
        if self._place.deployment == CLUSTER:
            queue = self._place.queue(QUEUE)
            waiting = await queue.waiting_for(job["outboxId"])
            await asyncio.sleep(0)  # the question is sent
            await queue.counts()  # and has been read
            async with self._place.gateway.running():
                return (await waiting)["resolved"]
        count = len(self._seen)
        async with self._place.gateway.running():
            await eventually(lambda: len(self._seen) > count)
        return self._seen[-1]


async def test_the_example_is_sent_once(open_office, statement, mail_server, deployment):  # noqa: PLR0915 - one whole job
    place = await open_office()
    job = JOB | {"enqueuedAt": now()}
    outbox_id, results = job["outboxId"], Results(place)
    with hearing() as said:
        first = await results.of(job)
    with statement("E1 E2 E3 E10", "the example, added as the specification shows it, is sent"):
        assert [each.message_id for each in mail_server.taken] == [f"<{outbox_id}@sender.example>"]
    with statement("E50", "the result has the five fields"):
        assert set(first) == RESULT
    with statement("E50", "the result says SENT, and the first attempt"):
        assert (first["status"], first["attempt"]) == ("SENT", 1)
        assert isinstance(first["sesMessageId"], str)
        assert isinstance(first["durationMs"], int)
        assert datetime.fromisoformat(first["processedAt"]).tzinfo is not None
    (message,) = mail_server.taken
    parsed = message_from_bytes(message.raw, policy=policy.default)
    with statement("E48", "the message goes to the address of the example"):
        assert (message.recipients, parsed["To"]) == (("cliente@example.com",), "cliente@example.com")
    with statement("E48", "the message has the example's subject"):
        assert parsed["Subject"] == JOB["subject"]
    with statement("E4 E5 E46", "the message has the HTML that the reference names"):
        assert parsed.get_body(("html",)).get_content().strip() == HTML
    lines = [fields for event, fields in said if event == "Processing email job"]
    with statement("E43", "one log line, Processing email job, names the job"):
        ((told),) = lines
        assert (told["jobId"], told["outboxId"]) == (outbox_id, outbox_id)
    with statement("E41 E43", "the log line masks both addresses"):
        assert (told["to"], told["recipient"]["email"]) == ("c***@e***.com", "c***@e***.com")
    with statement("E42 E43", "the log line shows eight characters of the hash"):
        assert told["recipient"]["cpfCnpjHash"] == JOB["recipient"]["cpfCnpjHash"][:8] + "..."
    with statement("E35 E41", "nothing in the log shows the address, the name or the hash"):
        shown = repr(said)
        clear = ("cliente@", "João", JOB["recipient"]["cpfCnpjHash"])
        assert [each for each in clear if each in shown] == []
    log = await record(place, LOG, outbox_id)
    with statement("E49", "email_log has the example's ids"):
        assert (log["id"], log["companyId"]) == (outbox_id, JOB["companyId"])
    with statement("E49", "email_log says SENT, with the id and the duration of the result"):
        assert {name: log[name] for name in ("status", "sesMessageId", "durationMs")} == {
            name: first[name] for name in ("status", "sesMessageId", "durationMs")
        }
    with statement("E49", "email_log has recipientId, null where the producer gave none"):
        assert log["recipientId"] is None
    outbox = await record(place, OUTBOX, outbox_id)
    with statement("E56", "email_outbox has the email, as SENT"):
        assert (outbox["status"], outbox["attempt"], outbox["requestId"]) == ("SENT", 1, JOB["requestId"])
    with statement("E29", "a completed job is gone from the queue"):
        assert await place.waiting(QUEUE) == []
        assert deployment != CLUSTER or await place.queue(QUEUE).state(outbox_id) == "unknown"

    again = await results.of(job)
    with statement("E34", "the same job again returns ALREADY_SENT and the sesMessageId, and no more"):
        assert again == {"status": "ALREADY_SENT", "sesMessageId": first["sesMessageId"]}
    with statement("E7 E33 E34", "the same job again sends nothing"):
        assert len(mail_server.taken) == 1


async def test_every_field_of_the_contract_reaches_the_message(open_office, statement, mail_server):
    place = await open_office()
    job = a_job(
        cc=[f"cc{number}@example.com" for number in range(5)],
        bcc=[f"bcc{number}@example.com" for number in range(5)],
        replyTo="loja@example.com",
        headers={"X-Campaign": "boleto"},
        tags=["boleto", "2025", "a", "b", "c"],
        subject=LONG_SUBJECT,
        recipient=recipient(recipientId=str(uuid.uuid4()), razaoSocial="Silva Comércio Ltda."),
    )
    await add(place, job)
    async with place.gateway.running():
        await until(place, job["outboxId"], "SENT")
    (message,) = mail_server.taken
    parsed = message_from_bytes(message.raw, policy=policy.default)
    with statement("E15 E48", "five addresses in cc get the message, and are named in it"):
        assert set(job["cc"]) < set(message.recipients)
        assert [each.addr_spec for each in parsed["Cc"].addresses] == job["cc"]
    with statement("E16 E48", "five addresses in bcc get the message, and are not named in it"):
        assert set(job["bcc"]) < set(message.recipients)
        assert b"bcc0@" not in message.raw
    with statement("E19 E48", "replyTo is in the message"):
        assert parsed["Reply-To"] == "loja@example.com"
    with statement("E20", "a header of the sender's own is in the message"):
        assert parsed["X-Campaign"] == "boleto"
    with statement("E17", "a subject may have 150 characters"):
        assert len(LONG_SUBJECT) == 150
        # Python keeps the space that a folded line begins with; RFC 5322 has it belong to the colon.
        assert parsed["Subject"].lstrip() == LONG_SUBJECT
    outbox = await record(place, OUTBOX, job["outboxId"])
    with statement("E21", "five tags are kept with the email"):
        assert outbox["tags"] == job["tags"]
    with statement("E22 E49", "the recipientId of the job is in outbox and log"):
        log = await record(place, LOG, job["outboxId"])
        assert outbox["recipientId"] == log["recipientId"] == job["recipient"]["recipientId"]


# --- what breaks the contract -----------------------------------------------------------------------------------------

LONG_ADDRESS = "a" * 64 + "@" + ".".join(["b" * 60] * 3) + ".example"
BROKEN: dict[str, tuple[str, str, dict[str, Any]]] = {
    "outboxId that is no UUID": ("E11", "outboxId", {"outboxId": "17"}),
    "companyId that is no UUID": ("E12", "companyId", {"companyId": "acme"}),
    "no requestId": ("E13", "requestId", {"requestId": None}),
    "to that is no address": ("E14", "to", {"to": "cliente"}),
    "to of more than 254 characters": ("E14", "to", {"to": LONG_ADDRESS}),
    "six addresses in cc": ("E15", "cc", {"cc": [f"c{number}@example.com" for number in range(6)]}),
    "six addresses in bcc": ("E16", "bcc", {"bcc": [f"c{number}@example.com" for number in range(6)]}),
    "an empty subject": ("E17", "subject", {"subject": ""}),
    "a subject of 151 characters": ("E17", "subject", {"subject": "x" * 151}),
    "a subject with a line break": ("E17", "subject", {"subject": "Seu\nboleto"}),
    "an empty htmlRef": ("E18", "htmlRef", {"htmlRef": ""}),
    "replyTo that is no address": ("E19", "replyTo", {"replyTo": "loja"}),
    "six tags": ("E21", "tags", {"tags": list("abcdef")}),
    "no recipient": ("E22", "recipient", {"recipient": None}),
    "recipientId that is no UUID": ("E22", "recipientId", {"recipient": recipient(recipientId="7")}),
    "recipient.email that is not to": ("E23", "recipient.email", {"recipient": recipient(email="x@example.com")}),
    "no identifier of the recipient": (
        "E24",
        "recipient",
        {"recipient": recipient(externalId=None, cpfCnpjHash=None)},
    ),
    "attempt 0": ("E25", "attempt", {"attempt": 0}),
    "attempt 6": ("E25", "attempt", {"attempt": 6}),
    "enqueuedAt that is no instant": ("E26", "enqueuedAt", {"enqueuedAt": "yesterday"}),
    "a hash of another length": ("E36", "cpfCnpjHash", {"recipient": recipient(cpfCnpjHash="a3c7b8d9")}),
    "a clear CPF in the subject": ("E35 E39", "subject", {"subject": f"Boleto de {CPF}"}),
    "a clear cpfCnpj": ("E35 E39", "cpfCnpj", {"cpfCnpj": CPF}),
    "a token in a tag": ("E39", "tags", {"tags": ["Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"]}),
    "a card number in the subject": ("E39", "subject", {"subject": "Cartão 4111 1111 1111 1111"}),
    "the HTML itself": ("E4", "html", {"html": HTML}),
}


async def test_the_worker_validates_every_rule(open_office, statement, mail_server, deployment):
    place = await open_office()
    # A job that is refused is found by its request, whatever else is wrong with it.
    jobs = {what: a_job(**{"requestId": f"req-{number}"} | change) for number, (what, (_, _, change)) in _numbered()}
    for job in jobs.values():
        await place.add(QUEUE, QUEUE, job, **OPTIONS | {"jobId": f"job-{uuid.uuid4()}"})
    async with place.gateway.running():
        told = await letters(place, len(jobs))
    by_request = {each["payload"].get("requestId"): each for each in told}
    for what, (cited, field, _) in BROKEN.items():
        with statement(f"{cited} E45 E53", f"a job with {what} is a dead letter that names {field}"):
            letter = by_request[jobs[what].get("requestId")]
            assert (letter["lastFailureCode"], letter["failedAttempts"]) == ("VALIDATION_FAILED", 1)
            assert field in letter["lastFailureReason"]
    with statement("E35 E39 E41", "no dead letter repeats a clear number, a token or an address"):
        shown = json.dumps(told, ensure_ascii=False)
        assert [each for each in (CPF, CPF_DIGITS, "eyJhbGci", "4111 1111", "cliente@", "João") if each in shown] == []
    with statement("E45", "nothing of that is sent"):
        assert mail_server.taken == []
    if deployment == CLUSTER:
        with statement("E29", "failed jobs stay in the queue"):
            assert len(await place.queue(QUEUE).call("getFailed")) == len(BROKEN)


def _numbered():
    return enumerate(BROKEN.items())


# --- over HTTP --------------------------------------------------------------------------------------------------------

REQUEST = {
    "to": JOB["to"],
    "subject": JOB["subject"],
    "html": HTML,
    "recipient": {"externalId": "CUST-12345", "cpfCnpj": CPF, "nome": "João da Silva"},
}


Send = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
def a_tenant():
    """Makes a tenant of a place; what it gives posts the request above, with changes."""

    async def make(place: Place) -> Send:
        company = (await place.gateway.system.tenants.add("acme")).company_id
        _, key = await place.gateway.system.tenants.create_key(company)
        headers = {"authorization": f"Bearer {key}", "x-request-id": JOB["requestId"]}
        transport = httpx.ASGITransport(place.gateway.system.api())

        async def send(**changes: Any) -> httpx.Response:
            async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
                return await client.post("/v1/email/send", json=REQUEST | changes, headers=headers)

        return send

    return make


async def test_an_email_over_http(open_office, a_tenant, statement, mail_server, deployment):  # noqa: PLR0915 - one whole job
    place = await open_office()
    send = await a_tenant(place)
    with statement("E44", "the API refuses what breaks a rule, and queues nothing"):
        assert (await send(to="cliente")).status_code in {400, 422}
        assert await place.waiting(QUEUE) == []
    receipt = (await send()).json()
    outbox_id = receipt["outboxId"]
    (job,) = await place.waiting(QUEUE)
    data = job["data"]
    with statement("E1 E3 E44", "an accepted email is in email:send, under the name email:send"):
        assert job["name"] == "email:send"
    with statement("E6 E11", "the job's id is the outboxId, a UUID"):
        assert job["id"] == data["outboxId"] == outbox_id == str(uuid.UUID(outbox_id))
    with statement("E10", "the job has the fields of the example; the recipient has an id too"):
        assert set(data) == set(JOB)
        assert set(data["recipient"]) == {*JOB["recipient"], "recipientId"}
    with statement("E10 E13", "the job repeats what the request says"):
        assert {name: data[name] for name in ("to", "subject", "requestId", "attempt")} == {
            name: JOB[name] for name in ("to", "subject", "requestId", "attempt")
        }
        assert data["recipient"]["email"] == data["to"]
    with statement("E4", "the job has no HTML"):
        assert HTML not in json.dumps(job, ensure_ascii=False)
    with statement("E36", "cpfCnpjHash has 64 hexadecimal characters"):
        assert re.fullmatch(r"[0-9a-f]{64}", data["recipient"]["cpfCnpjHash"])
    with statement("E35", "the clear number is in no job"):
        assert [each for each in (CPF, CPF_DIGITS) if each in json.dumps(job)] == []
    with statement("E26", "enqueuedAt is an instant"):
        assert datetime.fromisoformat(data["enqueuedAt"]).tzinfo is not None
    with statement("E56", "email_outbox has the email before a worker does"):
        assert (await until(place, outbox_id, "ENQUEUED"))["companyId"] == data["companyId"]
    (known,) = await place.records(RECIPIENTS)
    with statement("E47", "the recipient is recorded for the tenant"):
        assert (known["companyId"], known["externalId"]) == (data["companyId"], "CUST-12345")
        assert known["recipientId"] == data["recipient"]["recipientId"]
    with statement("E37", "personal data in the recipient's record is encrypted"):
        shown = repr(known)
        assert [each for each in (CPF, CPF_DIGITS, "cliente@", "João") if each in shown] == []
        assert {"cpfCnpjSealed", "emailSealed", "nomeSealed"} <= set(known)
    entry = await place.gateway.system.store.entry("email", outbox_id)
    with statement("E8", "the job may live for 24 hours"):
        ttl = entry.deadline - entry.first_seen_at
        assert abs(ttl - timedelta(milliseconds=DEFAULTS["DEFAULT_TTL"])) < timedelta(seconds=5)
    if deployment == CLUSTER:
        with statement("E6 E27", "Node sees the jobId and priority 5 in the options"):
            opts = (await place.queue(QUEUE).job(outbox_id))["opts"]
            assert (opts["jobId"], opts["priority"]) == (outbox_id, DEFAULTS["DEFAULT_PRIORITY"])
    with statement("E7 E33", "the same request again is the same email"):
        again = (await send()).json()
        assert (again["outboxId"], again["duplicate"]) == (outbox_id, True)
        assert len(await place.waiting(QUEUE)) == 1
    with statement("E33", "a second job of the same jobId is not added"):
        await add(place, data)
        assert len(await place.waiting(QUEUE)) == 1
    with statement("E27", "priority is 1 to 10"):
        assert [(await send(priority=each)).status_code for each in (0, 11)] == [400, 400]
    later = (await send(subject="Mais tarde", delay=3_600_000)).json()["outboxId"]
    async with place.gateway.running():
        await until(place, outbox_id, "SENT")
        with statement("E28", "an email with a delay is not sent yet"):
            assert (await until(place, later, "ENQUEUED"))["attempt"] == 0
            assert len(mail_server.taken) == 1
    with statement("E38 E46 E48", "the worker reads the HTML from the database and sends it"):
        parsed = message_from_bytes(mail_server.taken[0].raw, policy=policy.default)
        assert parsed.get_body(("html",)).get_content().strip() == HTML
    with statement("E47", "a second email to the same recipient makes no second record"):
        assert len(await place.records(RECIPIENTS)) == 1


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_failures_of_the_mail_server(open_office, statement, mail_server):
    place = await open_office(email_backoff_seconds=(0, 0, 0, 0, 0))
    mail_server.rule("rcpt", "550 5.1.1 No such user", match="nobody@")
    mail_server.rule("rcpt", "451 4.3.0 Not now", match="never@")
    mail_server.rule("rcpt", "451 4.3.0 Not now", match="later@", times=1)
    jobs = {
        who: a_job(to=f"{who}@example.com", recipient=recipient(email=f"{who}@example.com"))
        for who in ("nobody", "never", "later")
    }
    for job in jobs.values():
        await add(place, job)
    async with place.gateway.running():
        later = await until(place, jobs["later"]["outboxId"], "SENT")
        told = {each["outboxId"]: each for each in await letters(place, 2)}
    with statement("E32 E54", "a temporary error is retried, and the email is sent then"):
        assert later["attempt"] == 2
        assert [each.recipients for each in mail_server.taken] == [("later@example.com",)]
    nobody, never = told[jobs["nobody"]["outboxId"]], told[jobs["never"]["outboxId"]]
    with statement("E53", "a permanent error is a dead letter after one attempt"):
        assert (nobody["failedAttempts"], nobody["lastFailureCode"]) == (1, "SMTP_550")
    with statement("E54 E55", "a temporary error that stays is a dead letter after five attempts"):
        assert never["failedAttempts"] == len(never["attemptHistory"]) == DEFAULTS["MAX_ATTEMPTS"]
    with statement("E25", "the attempts are numbered 1 to 5"):
        assert [each["attempt"] for each in never["attemptHistory"]] == [1, 2, 3, 4, 5]
    with statement("E55 E56", "the outbox says FAILED"):
        assert (await record(place, OUTBOX, jobs["never"]["outboxId"]))["status"] == "FAILED"
    with statement("E31", "dead letters are kept for 7 days"):
        for each in await place.records(LETTERS):
            assert instant(each["expiresAt"]) - instant(each["createdAt"]) == timedelta(days=7)
    with statement("E41", "a dead letter masks the address"):
        assert (never["payload"]["to"], never["payload"]["recipient"]["email"]) == ("n***@e***.com", "n***@e***.com")


async def test_an_email_expires(open_office, a_tenant, statement, mail_server):
    place = await open_office(email_ttl_ms=1_000)
    send = await a_tenant(place)
    outbox_id = (await send()).json()["outboxId"]
    maintenance = place.gateway.system.maintenance()

    async def expired() -> bool:
        await maintenance.round()
        return (await record(place, OUTBOX, outbox_id))["status"] == "EXPIRED"

    with statement("E9", "an email whose time is over is EXPIRED in email_outbox, without a worker"):
        await eventually(expired)
    with statement("E9", "an expired email is not sent"):
        async with place.gateway.running():
            await eventually(lambda: _is_empty(place))
        assert mail_server.connections == 0


async def _is_empty(place: Place) -> bool:
    return await place.waiting(QUEUE) == []


# --- defaults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        pytest.param("QUEUE_NAME", contract.QUEUE_NAME, marks=pytest.mark.rule("E1", "E30")),
        pytest.param("DEFAULT_TTL", contract.DEFAULT_TTL, marks=pytest.mark.rule("E8", "E30")),
        pytest.param("DEFAULT_PRIORITY", contract.DEFAULT_PRIORITY, marks=pytest.mark.rule("E27", "E30")),
        pytest.param("MAX_ATTEMPTS", contract.MAX_ATTEMPTS, marks=pytest.mark.rule("E25", "E30")),
        pytest.param("BACKOFF_DELAYS", list(contract.BACKOFF_DELAYS), marks=pytest.mark.rule("E30", "E54")),
        pytest.param("DLQ_TTL", contract.DLQ_TTL, marks=pytest.mark.rule("E30", "E31")),
    ],
)
def test_the_default(name, ours):
    assert ours == DEFAULTS[name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("email_queue", DEFAULTS["QUEUE_NAME"], marks=pytest.mark.rule("E1")),
        pytest.param("email_ttl_ms", DEFAULTS["DEFAULT_TTL"], marks=pytest.mark.rule("E8")),
        pytest.param("email_backoff_seconds", tuple(DEFAULTS["BACKOFF_DELAYS"]), marks=pytest.mark.rule("E54")),
        pytest.param("email_dlq_ttl_ms", DEFAULTS["DLQ_TTL"], marks=pytest.mark.rule("E31")),
        pytest.param("email_concurrency", 10, marks=pytest.mark.rule("E51")),
        pytest.param("email_rate_max", 100, marks=pytest.mark.rule("E52")),
        pytest.param("email_rate_duration_ms", 1_000, marks=pytest.mark.rule("E52")),
    ],
)
def test_the_default_of_a_setting(name, value):
    assert getattr(Settings(), name) == value


@pytest.mark.rule("E40")
def test_redis_may_be_reached_over_tls():
    url = "rediss://redis.example:6379/0"
    settings = Settings(redis_url=url, mongo_uri="mongodb://mongo.example/?replicaSet=rs0")

    assert settings.redis_url.get_secret_value() == url


async def test_the_delays_between_the_attempts(open_office, statement):
    place = await open_office()
    retry = place.gateway.system.workloads["email"].retry
    for attempt, seconds in enumerate(DEFAULTS["BACKOFF_DELAYS"][:4], start=1):
        with statement("E54", f"after attempt {attempt} the email waits for {seconds} s"):
            assert retry.delay(attempt, place.gateway.system.ambient.random) == timedelta(seconds=seconds)
    with statement("E30 E55", "an email has five attempts"):
        assert retry.max_attempts == DEFAULTS["MAX_ATTEMPTS"]
