"""Emails between us and Node: its producers put ``email:send`` jobs into our queue, and its readers look at ours."""

from __future__ import annotations

import base64
import json
import uuid
from datetime import UTC, datetime, timedelta

import httpx
import pytest
import redis.asyncio

from holdfast.brokers.bullmq import BullmqBroker
from holdfast.contracts.effects import Upsert
from holdfast.contracts.ledger import Status
from holdfast.contracts.queries import LetterQuery
from holdfast.contracts.queues import Acknowledgement, Failed, Finished, QueueJob
from holdfast.features.email.contract import QUEUE_NAME, EmailDeadLetter
from holdfast.features.email.queues import OTHER_JOB_ID
from holdfast.features.email.records import CONTENT, LOG, OUTBOX, content_key
from tests.support.letters import whole_letters
from tests.support.smtp_server import SmtpServer
from tests.support.valkey_server import ON_ONE_SERVER
from tests.support.waiting import eventually

pytestmark = ON_ONE_SERVER

CPF = "529.982.247-25"
CPF_DIGITS = "52998224725"
SPECIFIED_OPTIONS = {"ttl": 86_400_000, "removeOnComplete": True, "removeOnFail": False}
HOUR = timedelta(hours=1)


@pytest.fixture
def mail_server():
    with SmtpServer() as server:
        yield server


@pytest.fixture
def mailing(open_gateway_with, mail_server):
    """Opens a gateway that sends emails, with settings of the test's own."""

    async def open_one(**changes):
        settings = {
            "email_transport": "smtp",
            "smtp_host": mail_server.host,
            "smtp_port": mail_server.port,
            "smtp_security": "none",
            "email_from": "Holdfast <mail@sender.example>",
            "email_pepper": "a pepper for the interop tests 0123456789",
            "email_keys": json.dumps({"first": base64.b64encode(bytes(range(100, 132))).decode()}),
        }
        return await open_gateway_with(**settings | changes)

    return open_one


@pytest.fixture
async def gateway(mailing):
    return await mailing()


@pytest.fixture
async def company(gateway) -> str:
    company_id = (await gateway.tenants.add("acme")).company_id
    html = Upsert(CONTENT, content_key(company_id, "boleto"), {"companyId": company_id, "html": "<p>Olá</p>"})
    await gateway.store.apply([html])
    return company_id


@pytest.fixture
def send(open_queue):
    """``new Queue('send', {prefix: 'bull:email'})``."""
    return open_queue("send", inside="email")


@pytest.fixture
def dead(open_queue):
    """``new Queue('dlq', {prefix: 'bull:email:send'})``."""
    return open_queue("dlq", inside="email:send")


def a_job(company: str, **changes):
    """The data of rule E10, as a producer in Node would write it."""
    job = {
        "outboxId": str(uuid.uuid4()),
        "companyId": company,
        "requestId": "req-node",
        "to": "cliente@example.com",
        "subject": "Seu boleto está disponível",
        "htmlRef": "boleto",
        "recipient": {"externalId": "CUST-12345", "nome": "João da Silva", "email": "cliente@example.com"},
        "attempt": 1,
        "enqueuedAt": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    return job | changes


async def add(queue, job, **options) -> str:
    return await queue.add(QUEUE_NAME, job, **SPECIFIED_OPTIONS | {"jobId": job["outboxId"]} | options)


async def posted(gateway, key, document) -> dict:
    """The receipt for an email that a tenant hands in over HTTP."""
    transport = httpx.ASGITransport(gateway.system.api())
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        answer = await client.post("/v1/email/send", json=document, headers={"authorization": f"Bearer {key}"})
    assert answer.status_code == 202, answer.text
    return answer.json()


async def status_of(gateway, outbox_id) -> str | None:
    return (await gateway.store.get(OUTBOX, outbox_id) or {}).get("status")


async def letters_of(gateway):
    return await whole_letters(gateway.store, LetterQuery(workload="email"))


async def test_emails_that_node_adds_are_sent_once_each_and_removed_from_the_queue(send, gateway, company, mail_server):
    jobs = [a_job(company) for _ in range(10)]
    ids = [each["outboxId"] for each in jobs]
    async with gateway.running():
        assert [await add(send, each, priority=number % 10 + 1) for number, each in enumerate(jobs)] == ids
        for each in ids:
            await eventually(lambda each=each: _is(gateway, each, "SENT"))
        for each in jobs:
            await add(send, each)  # once more, as a producer that is not sure does
        await eventually(lambda: _is_empty(send))

    assert sorted(each.message_id for each in mail_server.taken) == sorted(f"<{each}@sender.example>" for each in ids)
    assert [await send.state(each) for each in ids] == ["unknown"] * 10
    for each in ids:
        document = await gateway.store.get(OUTBOX, each)
        assert (document["companyId"], document["to"], document["attempt"]) == (company, "c***@e***.com", 1)
        assert (await gateway.store.get(LOG, each))["status"] == "SENT"


async def test_a_producer_in_node_that_waits_gets_the_result_of_the_specification(send, gateway, company):
    job = a_job(company)
    async with gateway.running():
        await add(send, job, removeOnComplete=False, delay=300)
        outcome = await (await send.waiting_for(job["outboxId"]))

    result = outcome["resolved"]
    assert set(result) == {"sesMessageId", "status", "processedAt", "durationMs", "attempt"}
    assert (result["status"], result["attempt"]) == ("SENT", 1)


@pytest.mark.parametrize("remove", [False, True])
async def test_an_email_that_nodes_worker_sent_is_not_sent_by_ours(send, gateway, mail_server, remove):
    company_id = (await gateway.tenants.add("acme")).company_id
    _, key = await gateway.tenants.create_key(company_id)
    document = {"to": "a@example.com", "subject": "Oi", "html": "<p>Oi</p>", "recipient": {"externalId": "C-1"}}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gateway.system.api()), base_url="http://test") as client:
        answer = await client.post("/v1/email/send", json=document, headers={"authorization": f"Bearer {key}"})
    outbox_id = answer.json()["outboxId"]
    result = {"sesMessageId": "0100018c-node", "status": "SENT", "durationMs": 12, "attempt": 1}
    worker = await send.work(result=result, **({"removeOnComplete": {"count": 0}} if remove else {}))
    await worker.has_run(1)
    await eventually(lambda: _is_empty(send))
    await worker.rest()

    await gateway.system.maintenance().round()
    async with gateway.running():
        await send.add("email:send", (await gateway.store.entry("email", outbox_id)).body, jobId=outbox_id)
        await eventually(lambda: _is_empty(send))

    assert mail_server.taken == []
    entry = await gateway.store.entry("email", outbox_id)
    assert (entry.status, entry.note, entry.result) == ("processed", "worked_elsewhere", result)
    outbox, log = [await gateway.store.get(each, outbox_id) for each in (OUTBOX, LOG)]
    assert (outbox["status"], outbox["sesMessageId"], outbox["attempt"]) == ("SENT", "0100018c-node", 1)
    assert (log["status"], log["sesMessageId"], log["transport"]) == ("SENT", "0100018c-node", "elsewhere")


async def test_a_producer_in_node_that_adds_a_job_again_gets_already_sent(send, gateway, company, mail_server):
    job = a_job(company)
    outcomes = []
    async with gateway.running():
        for options in ({"removeOnComplete": True}, {"removeOnComplete": True}, {"removeOnComplete": False}):
            await add(send, job, **options, delay=300)
            outcomes.append((await (await send.waiting_for(job["outboxId"])))["resolved"])

    again = {"status": "ALREADY_SENT", "sesMessageId": outcomes[0]["sesMessageId"]}
    assert [each["status"] for each in outcomes] == ["SENT", "ALREADY_SENT", "ALREADY_SENT"]
    assert outcomes[1:] == [again, again]
    assert (await send.job(job["outboxId"]))["returnvalue"] == again
    assert len(mail_server.taken) == 1


async def test_node_sees_what_the_api_accepted_with_its_priority_and_without_html(send, gateway):
    company_id = (await gateway.tenants.add("acme")).company_id
    _, key = await gateway.tenants.create_key(company_id)
    document = {
        "to": "cliente@example.com",
        "subject": "Seu boleto está disponível",
        "html": "<p>Olá, segredo</p>",
        "recipient": {"externalId": "CUST-1", "cpfCnpj": CPF},
        "priority": 3,
    }
    outbox_id = (await posted(gateway, key, document))["outboxId"]

    job = await eventually(lambda: send.job(outbox_id))

    assert (job["state"], job["id"], job["data"]["outboxId"]) == ("prioritized", outbox_id, outbox_id)
    assert job["name"] == "email:send"
    assert (job["opts"]["priority"], job["opts"]["jobId"]) == (3, outbox_id)
    assert len(job["data"]["recipient"]["cpfCnpjHash"]) == 64
    text = json.dumps(job, ensure_ascii=False)
    assert [each for each in (CPF, CPF_DIGITS, "segredo") if each in text] == []


async def test_a_job_of_node_is_sent_whatever_its_name_is(send, gateway, company, mail_server):
    job = a_job(company)
    async with gateway.running():
        await send.add("boleto", job, **SPECIFIED_OPTIONS | {"jobId": job["outboxId"]})
        await eventually(lambda: _is(gateway, job["outboxId"], "SENT"))

    assert len(mail_server.taken) == 1


BROKEN = {
    "a CPF in the subject": {"subject": f"Boleto de {CPF}"},
    "a bare CPF in a tag": {"tags": [CPF_DIGITS]},
    "a CPF in a header": {"headers": {"X-Cliente": CPF}},
    "a CPF under a name of its own": {"cpfCnpj": CPF},
    "a CPF as a number": {"documento": int(CPF_DIGITS)},
    "no address": {"to": f"cliente {CPF}"},
}


async def test_a_job_of_node_that_is_to_live_for_longer_than_a_day_breaks_the_contract(send, gateway, company):
    good, bad = a_job(company), a_job(company)
    async with gateway.running():
        await add(send, bad, ttl=86_400_001)
        outcome = await (await send.waiting_for(bad["outboxId"]))
        await add(send, good, ttl=86_400_000)
        await eventually(lambda: _is(gateway, good["outboxId"], "SENT"))

    assert "opts.ttl: must be at most 86400000 milliseconds" in outcome["rejected"]


@pytest.mark.parametrize(
    "options", [{"jobId": "boleto-7"}, {"jobId": None}], ids=["a name of its own", "a counted one"]
)
async def test_a_job_of_node_under_another_id_is_sent_once_with_a_warning(send, gateway, company, mail_server, options):
    job = a_job(company)
    given = {name: value for name, value in (SPECIFIED_OPTIONS | options).items() if value is not None}
    async with gateway.running():
        for _ in range(2):
            await send.add(QUEUE_NAME, job, **given)
            await eventually(lambda: _is(gateway, job["outboxId"], "SENT"))
            await eventually(lambda: _is_empty(send))

    entry = await gateway.store.entry("email", job["outboxId"])
    assert (entry.job_id, entry.status, entry.warnings) == (job["outboxId"], Status.PROCESSED, (OTHER_JOB_ID,))
    assert len(mail_server.taken) == 1
    assert await letters_of(gateway) == []


async def test_jobs_of_node_that_break_the_contract_become_masked_dead_letters(
    send, dead, gateway, company, redis_place, mail_server
):
    async with gateway.running():
        for each in BROKEN.values():
            job = a_job(company, **each)
            await add(send, job)
            outcome = await (await send.waiting_for(job["outboxId"]))
            assert "VALIDATION_FAILED" in outcome["rejected"]
        await eventually(lambda: _holds(dead, len(BROKEN)))

    told = [job["data"] for job in await dead.call("getWaiting")]
    for each in told:
        EmailDeadLetter.model_validate_json(json.dumps(each))
    assert {each["lastFailureCode"] for each in told} == {"VALIDATION_FAILED"}
    assert len(await send.call("getFailed")) == len(BROKEN)
    assert mail_server.taken == []
    kept = await everything_in(redis_place)
    assert "c***@e***.com" in kept
    assert [each for each in (CPF, CPF_DIGITS, "cliente@example.com", "João") if each in kept] == []
    stored = repr(await letters_of(gateway))
    assert [each for each in (CPF, CPF_DIGITS, "cliente@example.com", "João") if each in stored] == []


async def test_the_same_broken_job_again_leaves_no_clear_copy_either(send, gateway, company, redis_place):
    """The second one is known and not dead-lettered again; a producer that wants to keep it keeps the masked one."""
    job = a_job(company, subject=f"Boleto de {CPF}")
    async with gateway.running():
        for job_id in ("first", "second"):
            await add(send, job, jobId=job_id, removeOnComplete=False)
            await (await send.waiting_for(job_id))

    assert (await send.state("first"), await send.state("second")) == ("failed", "completed")
    assert len(await letters_of(gateway)) == 1
    kept = await everything_in(redis_place)
    assert [each for each in (CPF, "cliente@example.com") if each in kept] == []


# --- another name for the queue ---------------------------------------------------------------------------------------


async def test_a_queue_without_a_colon_is_opened_by_its_name_and_so_are_its_dead_letters(mailing, open_queue, company):
    other = await mailing(email_queue="email-send")
    queue, dead = open_queue("email-send"), open_queue("email-send-dlq")
    good, bad = a_job(company), a_job(company, to="nobody")
    async with other.running():
        for each in (good, bad):
            await add(queue, each)
        await eventually(lambda: _is(other, good["outboxId"], "SENT"))
        await eventually(lambda: _holds(dead, 1))


async def test_emails_move_to_a_queue_of_another_name_and_each_is_sent_once(
    mailing, gateway, company, send, open_queue, mail_server
):
    """As docs/operations/email.md says: a worker stays with the old queue until it is empty."""
    new = await mailing(email_queue="email-send", publish_grace_ms=0)
    _, key = await gateway.tenants.create_key(company)
    document = {"to": "cliente@example.com", "subject": "Boleto", "html": "<p>Olá</p>"}
    accepted = [
        (await posted(gateway, key, document | {"recipient": {"externalId": f"CUST-{number}"}}))["outboxId"]
        for number in range(3)
    ]
    foreign = a_job(company)
    await add(send, foreign)

    async with new.running():  # what the ledger has goes through the new queue
        for each in accepted:
            await eventually(lambda each=each: _is(new, each, "SENT"))
    assert await status_of(new, foreign["outboxId"]) is None
    async with gateway.running():
        await eventually(lambda: _is(gateway, foreign["outboxId"], "SENT"))
        await eventually(lambda: _is_empty(send))

    assert await _is_empty(open_queue("email-send"))
    sent = [f"<{each}@sender.example>" for each in (*accepted, foreign["outboxId"])]
    assert sorted(each.message_id for each in mail_server.taken) == sorted(sent)


# --- what the broker keeps --------------------------------------------------------------------------------------------


async def settled(broker, queue, job_id, handling) -> None:
    await broker.publish(queue, [QueueJob(job_id, '{"own":1}')])
    (held,) = await broker.take(queue, 1, wait=timedelta(seconds=10), lease=HOUR)
    await broker.settle([Acknowledgement(held, handling)])


@pytest.mark.parametrize("handling", [Failed("NO: no", '{"other":2}'), Finished(data='{"other":2}')])
async def test_a_settled_job_is_kept_with_the_data_that_it_was_settled_with(jobs, broker, handling):
    await settled(broker, "jobs", "a", handling)

    assert (await jobs.job("a"))["data"] == {"other": 2}


@pytest.mark.parametrize("handling", [Failed("NO: no", '{"other":2}'), Finished(data='{"other":2}')])
async def test_nothing_is_left_of_a_job_that_is_not_kept(redis_place, handling):
    broker = BullmqBroker(redis_place.url, prefix=redis_place.prefix, keep_completed=0, keep_failed=0)
    await settled(broker, "jobs", "a", handling)
    await broker.close()

    async with redis.asyncio.Redis.from_url(redis_place.url) as client:
        assert await client.exists(f"{redis_place.prefix}:jobs:a") == 0


async def test_a_queue_keeps_as_many_finished_jobs_as_is_set_for_it(redis_place, open_queue):
    broker = BullmqBroker(redis_place.url, prefix=redis_place.prefix, keep_completed_in={"none": 0})
    for queue in ("none", "jobs"):
        await settled(broker, queue, "a", Finished())
        await settled(broker, queue, "b", Failed("NO: no"))
    await broker.close()

    assert [await open_queue("none").state(each) for each in "ab"] == ["unknown", "failed"]
    assert [await open_queue("jobs").state(each) for each in "ab"] == ["completed", "failed"]


async def everything_in(place) -> str:
    """The content of every key of this test."""
    found = []
    async with redis.asyncio.Redis.from_url(place.url, decode_responses=True) as client:
        async for key in client.scan_iter(f"{place.prefix}:*"):
            match await client.type(key):
                case "hash":
                    found.append((key, await client.hgetall(key)))
                case "list":
                    found.append((key, await client.lrange(key, 0, -1)))
                case "zset":
                    found.append((key, await client.zrange(key, 0, -1)))
                case "set":
                    found.append((key, await client.smembers(key)))
                case "stream":
                    found.append((key, await client.xrange(key)))
                case _:
                    found.append((key, await client.get(key)))
    return "\n".join(map(str, found))


async def _is(gateway, outbox_id, status) -> bool:
    return await status_of(gateway, outbox_id) == status


async def _is_empty(queue) -> bool:
    await queue.call("promoteJobs")
    counts = await queue.counts()
    return counts["waiting"] + counts["prioritized"] + counts["active"] + counts["delayed"] == 0


async def _holds(queue, count) -> bool:
    return (await queue.counts())["waiting"] == count
