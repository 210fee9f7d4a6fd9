"""The same tests on both deployments: one SQLite file, and MongoDB with Valkey."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from holdfast.contracts.effects import Upsert
from holdfast.contracts.errors import BrokerUnavailable
from holdfast.contracts.ledger import Status
from holdfast.features.email.contract import QUEUE_NAME
from holdfast.features.email.queues import OTHER_JOB_ID
from holdfast.features.email.records import LOG, SuppressionReason
from tests.support.email_client import CPF, EmailClient, email_client, email_client_of_cluster
from tests.support.gateway import outcomes
from tests.support.hearing import hearing
from tests.support.smtp_server import DROP_TAKEN, HANG_TAKEN
from tests.support.valkey_server import RedisPlace, forget
from tests.support.waiting import eventually

BACKOFF = (timedelta(milliseconds=30),) * 5
"""Short, because time is real in the cluster."""
A_LONG_TIME = timedelta(minutes=5)

Opening = Callable[..., AbstractAsyncContextManager[EmailClient]]


@pytest.fixture(params=["embedded", "cluster"])
def opened(request) -> Iterator[Opening]:
    """Opens an client of this deployment; the options are those of ``EmailOptions``."""
    if request.param == "embedded":
        yield lambda **options: email_client(**({"backoff": BACKOFF} | options))
        return
    mongo, database = request.getfixturevalue("mongo"), request.getfixturevalue("emptied_mongo_database")
    place = RedisPlace(request.getfixturevalue("valkey").url, f"hf{uuid.uuid4().hex[:12]}")

    @asynccontextmanager
    async def branch(*, apart: bool = True, **options: Any) -> AsyncIterator[EmailClient]:
        del apart  # here they always are
        options = {"backoff": BACKOFF} | options
        async with email_client_of_cluster(mongo.uri, database, place.url, place.prefix, **options) as client:
            yield client

    yield branch
    forget(place)


async def test_an_email_is_sent_once(opened):
    async with opened() as client:
        outbox_id = await client.post()
        async with client.working():
            outbox = await client.until(outbox_id, "SENT")
            await client.idle()
        assert len(client.delivered(outbox_id)) == 1
        entry, log = await client.entry(outbox_id), await client.log(outbox_id)
        assert (entry.status, outcomes(entry)) == (Status.PROCESSED, [("succeeded", None)])
        assert set(entry.result) == {"sesMessageId", "status", "processedAt", "durationMs", "attempt"}
        assert log["id"] == log["outboxId"] == outbox_id
        assert log["sesMessageId"] == outbox["sesMessageId"] == entry.result["sesMessageId"]
        assert outbox["sentAt"] == log["sentAt"] == entry.result["processedAt"]


async def test_a_job_with_another_id_in_the_queue_is_sent_once_with_a_warning(opened):
    async with opened() as client:
        await client.keep_html()
        client.server.rule("end", "451 4.3.0 Not now", times=1)
        outbox_id = await client.put_into_queue(job_id="boleto-7")
        async with client.working():
            await client.until(outbox_id, "RETRYING")
            client.later(BACKOFF[0])
            await client.until(outbox_id, "SENT")
            client.later(A_LONG_TIME)  # where the store publishes by itself, there is a copy that waits for its turn
            await client.idle()
            for again in ("boleto-7", "boleto-8", outbox_id):
                await client.put_into_queue(job_id=again, outboxId=outbox_id)
                await client.idle()
        entry = await client.entry(outbox_id)
        assert (entry.key, entry.job_id, entry.attempt_count) == (outbox_id, outbox_id, 2)
        assert entry.warnings == (OTHER_JOB_ID,)
        assert len(client.delivered(outbox_id)) == 1
        assert await client.letters() == []


async def test_an_email_whose_job_id_is_its_outbox_id_has_no_warning(opened):
    async with opened() as client:
        await client.keep_html()
        outbox_id = await client.put_into_queue(outboxId="0A3E4567-E89B-12D3-A456-426614174000")
        async with client.working():
            await client.until(outbox_id.lower(), "SENT")
        assert (await client.entry(outbox_id.lower())).warnings == ()


async def test_the_log_shows_each_attempt_with_a_masked_address_and_the_beginning_of_the_hash(opened):
    async with opened() as client:
        client.server.rule("end", "451 4.3.0 Not now", times=1)
        with hearing() as said:
            outbox_id = await client.post(to="user@example.com", recipient={"cpfCnpj": CPF, "nome": "Maria Souza"})
            async with client.working():
                await client.until(outbox_id, "RETRYING")
                client.later(BACKOFF[0])
                await client.until(outbox_id, "SENT")
                await client.idle()
        digest = (await client.outbox(outbox_id))["cpfCnpjHash"]
        lines = [fields for event, fields in said if event == "Processing email job"]
        assert lines == [
            {
                "workload": "email",
                "jobId": outbox_id,
                "outboxId": outbox_id,
                "attempt": attempt,
                "to": "u***@e***.com",
                "recipient": {"email": "u***@e***.com", "cpfCnpjHash": f"{digest[:8]}..."},
            }
            for attempt in (1, 2)
        ]
        assert [each for each in ("user@", "Maria", digest, CPF) if each in repr(said)] == []


async def test_the_same_job_again_returns_already_sent_with_the_id_of_the_first_sending(opened):
    async with opened() as client:
        await client.keep_html()
        outbox_id = await client.put_into_queue()
        returned = []

        async def note(acknowledgements):
            returned.extend(json.loads(each.handling.result) for each in acknowledgements)

        async with client.working():
            outbox = await client.until(outbox_id, "SENT")
            await client.idle()
            client.gateway.broker.before("settle", note)
            await client.put_into_queue(outboxId=outbox_id)
            await client.idle()
        assert returned == [{"status": "ALREADY_SENT", "sesMessageId": outbox["sesMessageId"]}]
        assert len(client.delivered(outbox_id)) == 1
        assert (await client.entry(outbox_id)).result["status"] == "SENT"


async def test_many_emails_are_each_sent_once(opened):
    async with opened() as client:
        posted = await asyncio.gather(*(client.post() for _ in range(40)))
        async with client.working(), client.working():
            for outbox_id in posted:
                await client.until(outbox_id, "SENT")
            await client.idle()
        assert all(len(client.delivered(outbox_id)) == 1 for outbox_id in posted)
        assert len(client.server.taken) == len(posted)


async def test_an_email_is_retried_when_the_server_is_busy(opened):
    async with opened() as client:
        client.server.rule("end", "421 4.3.2 Shutting down", times=1)
        outbox_id = await client.post()
        async with client.working():
            await eventually(lambda: _failed_once(client, outbox_id))
            client.later(A_LONG_TIME)
            await client.until(outbox_id, "SENT", attempt=2, lastErrorCode=None)
        assert outcomes(await client.entry(outbox_id)) == [("failed", "SMTP_421"), ("succeeded", None)]
        assert len(client.delivered(outbox_id)) == 1


async def _failed_once(client, outbox_id):
    return (await client.entry(outbox_id)).attempts[:1] and outcomes(await client.entry(outbox_id))[0][0] == "failed"


async def test_five_failures_make_a_dead_letter_with_five_attempts(opened):
    async with opened() as client:
        client.server.rule("end", "451 4.3.0 Not today")
        outbox_id = await client.post(to="maria.da.silva@example.com")

        async def failed() -> bool:
            client.later(A_LONG_TIME)
            return await client.status(outbox_id) == "FAILED"

        async with client.working():
            await eventually(failed)
        (published,) = await client.published_letters()
        assert (published["outboxId"], published["failedAttempts"]) == (outbox_id, 5)
        assert published["lastFailureCode"] == "SMTP_451_EXHAUSTED"
        assert [each["errorCode"] for each in published["attemptHistory"]] == ["SMTP_451"] * 5
        assert "maria.da.silva" not in json.dumps(published)
        assert published["payload"]["to"] == "m***@e***.com"


async def test_a_permanent_refusal_makes_a_dead_letter_at_once(opened):
    async with opened() as client:
        client.server.rule("rcpt", "550 5.1.1 No such user")
        outbox_id = await client.post()
        async with client.working():
            await client.until(outbox_id, "FAILED", attempt=1, lastErrorCode="SMTP_550")
            await client.idle()
        (letter,) = await client.letters()
        assert letter.reason_code == "SMTP_550"


async def test_an_email_that_may_have_been_sent_is_not_sent_again(opened):
    async with opened() as client:
        client.server.rule("end", DROP_TAKEN)
        outbox_id = await client.post()
        async with client.working():
            await client.until(outbox_id, "FAILED", lastErrorCode="SEND_OUTCOME_UNKNOWN")
            await client.idle()
        assert len(client.delivered(outbox_id)) == 1


async def test_a_worker_that_is_lost_while_sending_leaves_the_outcome_unknown(opened):
    async with opened() as client:
        rule = client.server.rule("end", HANG_TAKEN, times=1)
        outbox_id = await client.post()
        lease = timedelta(milliseconds=500)
        await client.lose_worker(lambda: rule.seen, lease=lease)
        assert await client.status(outbox_id) == "SENDING"
        client.later(A_LONG_TIME)

        async def dead_lettered() -> bool:
            await client.gateway.maintenance.round()
            return await client.status(outbox_id) == "FAILED"

        async with client.working(lease=lease):
            await eventually(dead_lettered)
        assert outcomes(await client.entry(outbox_id)) == [("lost", "LOST")]
        assert len(client.delivered(outbox_id)) == 1
        (letter,) = await client.letters()
        assert letter.reason_code == "SEND_OUTCOME_UNKNOWN"


async def test_a_job_whose_email_was_sent_is_acknowledged(opened):
    async with opened() as client:
        await client.gateway.broker.pause(QUEUE_NAME)
        outbox_id = await client.post()
        await client.gateway.store.apply([Upsert(LOG, outbox_id, {"status": "SENT", "sesMessageId": "ses-1"})])
        await client.gateway.broker.resume(QUEUE_NAME)
        async with client.working():
            await client.until(outbox_id, "SENT")
        assert (await client.entry(outbox_id)).result == {"status": "ALREADY_SENT", "sesMessageId": "ses-1"}
        assert client.server.taken == []


async def test_an_email_expires_without_a_worker(opened):
    async with opened(ttl=timedelta(milliseconds=300)) as client:
        outbox_id = await client.post()
        client.later(A_LONG_TIME)

        async def expired() -> bool:
            await client.gateway.maintenance.round()
            return await client.status(outbox_id) == "EXPIRED"

        await eventually(expired)
        async with client.working():
            await client.idle()
        assert (await client.entry(outbox_id)).status is Status.EXPIRED
        assert client.server.connections == 0


async def test_a_cancelled_email_is_not_sent(opened):
    async with opened() as client:
        outbox_id = await client.post()
        assert await client.gateway.cancellation.cancel(client.workload, outbox_id)
        async with client.working():
            await client.idle()
        assert await client.status(outbox_id) == "CANCELLED"
        assert client.server.connections == 0


async def test_an_address_that_was_suppressed_after_acceptance_gets_nothing(opened):
    async with opened() as client:
        outbox_id = await client.post(to="joao@example.com")
        now = client.gateway.ambient.clock.now()
        await client.suppressions.add(
            ["joao@example.com"], SuppressionReason.BOUNCE, detail=None, source="test", now=now
        )
        async with client.working():
            await client.until(outbox_id, "FAILED", lastErrorCode="RECIPIENT_SUPPRESSED")
        assert client.server.connections == 0


async def test_an_account_that_is_blocked_pauses_the_queue_until_somebody_resumes_it(opened):
    async with opened() as client:
        client.server.rule("mail", "530 5.7.0 Log in first", times=1)
        outbox_id = await client.post()
        async with client.working():
            await eventually(lambda: _paused_because(client))
            assert (await client.depth()).paused_because.startswith("SMTP_530: ")
            await client.until(outbox_id, "ENQUEUED", attempt=0)
            assert (await client.entry(outbox_id)).attempt_count == 0
            await client.gateway.broker.resume(QUEUE_NAME)
            await client.until(outbox_id, "SENT", attempt=1)


async def _paused_because(client):
    return (await client.depth()).paused_because


async def test_an_email_that_did_not_reach_the_queue_is_published_by_maintenance(opened):
    async with opened(apart=True) as client:
        client.gateway.broker.break_down(BrokerUnavailable(), "publish")
        outbox_id = await client.post()
        assert await client.status(outbox_id) == "PENDING"
        client.gateway.broker.repair()
        client.later(A_LONG_TIME)

        async def enqueued() -> bool:
            await client.gateway.maintenance.round()
            return await client.status(outbox_id) == "ENQUEUED"

        await eventually(enqueued)
        async with client.working():
            await client.until(outbox_id, "SENT")


async def test_a_job_of_an_external_producer_is_adopted_and_sent(opened):
    async with opened() as client:
        await client.keep_html()
        outbox_id = await client.put_into_queue()
        async with client.working():
            outbox = await client.until(outbox_id, "SENT")
        assert (outbox["companyId"], outbox["to"]) == (client.company, "j***@e***.com")
        assert len(client.delivered(outbox_id)) == 1


async def test_a_replay_sends_what_the_server_refused_before(opened):
    async with opened() as client:
        client.server.rule("rcpt", "550 5.1.1 No such user", times=1)
        outbox_id = await client.post()
        async with client.working():
            await client.until(outbox_id, "FAILED")
            (letter,) = await client.letters()
            await client.replay(letter)
            await client.until(outbox_id, "SENT", attempt=1)
        assert len(client.delivered(outbox_id)) == 1
        assert (await client.entry(outbox_id)).generation == 2
