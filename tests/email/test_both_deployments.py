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
from holdfast.features.email.adopting import OTHER_JOB_ID
from holdfast.features.email.contract import QUEUE_NAME
from holdfast.features.email.records import LOG, SuppressionReason
from tests.email.post_office import CPF, PostOffice, branch_office, post_office
from tests.support.hearing import hearing
from tests.support.smtp_server import DROP_TAKEN, HANG_TAKEN
from tests.support.stage import outcomes
from tests.support.valkey_server import RedisPlace, forget
from tests.support.waiting import eventually

BACKOFF = (timedelta(milliseconds=30),) * 5
"""Short, because time is real in the cluster."""
A_LONG_TIME = timedelta(minutes=5)

Opening = Callable[..., AbstractAsyncContextManager[PostOffice]]


@pytest.fixture(params=["embedded", "cluster"])
def opened(request) -> Iterator[Opening]:
    """Opens an office of this deployment; the options are those of ``EmailOptions``."""
    if request.param == "embedded":
        yield lambda **options: post_office(**({"backoff": BACKOFF} | options))
        return
    mongo, database = request.getfixturevalue("mongo"), request.getfixturevalue("emptied_mongo_database")
    place = RedisPlace(request.getfixturevalue("valkey").url, f"hf{uuid.uuid4().hex[:12]}")

    @asynccontextmanager
    async def branch(*, apart: bool = True, **options: Any) -> AsyncIterator[PostOffice]:
        del apart  # here they always are
        options = {"backoff": BACKOFF} | options
        async with branch_office(mongo.uri, database, place.url, place.prefix, **options) as office:
            yield office

    yield branch
    forget(place)


async def test_an_email_is_sent_once(opened):
    async with opened() as office:
        outbox_id = await office.post()
        async with office.working():
            outbox = await office.until(outbox_id, "SENT")
            await office.idle()
        assert len(office.delivered(outbox_id)) == 1
        entry, log = await office.entry(outbox_id), await office.log(outbox_id)
        assert (entry.status, outcomes(entry)) == (Status.PROCESSED, [("succeeded", None)])
        assert set(entry.result) == {"sesMessageId", "status", "processedAt", "durationMs", "attempt"}
        assert log["id"] == log["outboxId"] == outbox_id
        assert log["sesMessageId"] == outbox["sesMessageId"] == entry.result["sesMessageId"]
        assert outbox["sentAt"] == log["sentAt"] == entry.result["processedAt"]


async def test_a_job_with_another_id_in_the_queue_is_sent_once_with_a_warning(opened):
    async with opened() as office:
        await office.keep_html()
        office.server.rule("end", "451 4.3.0 Not now", times=1)
        outbox_id = await office.put_into_queue(job_id="boleto-7")
        async with office.working():
            await office.until(outbox_id, "RETRYING")
            office.later(BACKOFF[0])
            await office.until(outbox_id, "SENT")
            office.later(A_LONG_TIME)  # where the store publishes by itself, there is a copy that waits for its turn
            await office.idle()
            for again in ("boleto-7", "boleto-8", outbox_id):
                await office.put_into_queue(job_id=again, outboxId=outbox_id)
                await office.idle()
        entry = await office.entry(outbox_id)
        assert (entry.key, entry.job_id, entry.attempt_count) == (outbox_id, outbox_id, 2)
        assert entry.warnings == (OTHER_JOB_ID,)
        assert len(office.delivered(outbox_id)) == 1
        assert await office.letters() == []


async def test_an_email_whose_job_id_is_its_outbox_id_has_no_warning(opened):
    async with opened() as office:
        await office.keep_html()
        outbox_id = await office.put_into_queue(outboxId="0A3E4567-E89B-12D3-A456-426614174000")
        async with office.working():
            await office.until(outbox_id.lower(), "SENT")
        assert (await office.entry(outbox_id.lower())).warnings == ()


async def test_the_log_shows_each_attempt_with_a_masked_address_and_the_beginning_of_the_hash(opened):
    async with opened() as office:
        office.server.rule("end", "451 4.3.0 Not now", times=1)
        with hearing() as said:
            outbox_id = await office.post(to="user@example.com", recipient={"cpfCnpj": CPF, "nome": "Maria Souza"})
            async with office.working():
                await office.until(outbox_id, "RETRYING")
                office.later(BACKOFF[0])
                await office.until(outbox_id, "SENT")
                await office.idle()
        digest = (await office.outbox(outbox_id))["cpfCnpjHash"]
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
    async with opened() as office:
        await office.keep_html()
        outbox_id = await office.put_into_queue()
        returned = []

        async def note(acknowledgements):
            returned.extend(json.loads(each.handling.result) for each in acknowledgements)

        async with office.working():
            outbox = await office.until(outbox_id, "SENT")
            await office.idle()
            office.stage.broker.before("settle", note)
            await office.put_into_queue(outboxId=outbox_id)
            await office.idle()
        assert returned == [{"status": "ALREADY_SENT", "sesMessageId": outbox["sesMessageId"]}]
        assert len(office.delivered(outbox_id)) == 1
        assert (await office.entry(outbox_id)).result["status"] == "SENT"


async def test_many_emails_are_each_sent_once(opened):
    async with opened() as office:
        posted = await asyncio.gather(*(office.post() for _ in range(40)))
        async with office.working(), office.working():
            for outbox_id in posted:
                await office.until(outbox_id, "SENT")
            await office.idle()
        assert all(len(office.delivered(outbox_id)) == 1 for outbox_id in posted)
        assert len(office.server.taken) == len(posted)


async def test_an_email_is_retried_when_the_server_is_busy(opened):
    async with opened() as office:
        office.server.rule("end", "421 4.3.2 Shutting down", times=1)
        outbox_id = await office.post()
        async with office.working():
            await eventually(lambda: _failed_once(office, outbox_id))
            office.later(A_LONG_TIME)
            await office.until(outbox_id, "SENT", attempt=2, lastErrorCode=None)
        assert outcomes(await office.entry(outbox_id)) == [("failed", "SMTP_421"), ("succeeded", None)]
        assert len(office.delivered(outbox_id)) == 1


async def _failed_once(office, outbox_id):
    return (await office.entry(outbox_id)).attempts[:1] and outcomes(await office.entry(outbox_id))[0][0] == "failed"


async def test_five_failures_make_a_dead_letter_with_five_attempts(opened):
    async with opened() as office:
        office.server.rule("end", "451 4.3.0 Not today")
        outbox_id = await office.post(to="maria.da.silva@example.com")

        async def failed() -> bool:
            office.later(A_LONG_TIME)
            return await office.status(outbox_id) == "FAILED"

        async with office.working():
            await eventually(failed)
        (published,) = await office.published_letters()
        assert (published["outboxId"], published["failedAttempts"]) == (outbox_id, 5)
        assert published["lastFailureCode"] == "SMTP_451_EXHAUSTED"
        assert [each["errorCode"] for each in published["attemptHistory"]] == ["SMTP_451"] * 5
        assert "maria.da.silva" not in json.dumps(published)
        assert published["payload"]["to"] == "m***@e***.com"


async def test_a_permanent_refusal_makes_a_dead_letter_at_once(opened):
    async with opened() as office:
        office.server.rule("rcpt", "550 5.1.1 No such user")
        outbox_id = await office.post()
        async with office.working():
            await office.until(outbox_id, "FAILED", attempt=1, lastErrorCode="SMTP_550")
            await office.idle()
        (letter,) = await office.letters()
        assert letter.reason_code == "SMTP_550"


async def test_an_email_that_may_have_been_sent_is_not_sent_again(opened):
    async with opened() as office:
        office.server.rule("end", DROP_TAKEN)
        outbox_id = await office.post()
        async with office.working():
            await office.until(outbox_id, "FAILED", lastErrorCode="SEND_OUTCOME_UNKNOWN")
            await office.idle()
        assert len(office.delivered(outbox_id)) == 1


async def test_a_worker_that_is_lost_while_sending_leaves_the_outcome_unknown(opened):
    async with opened() as office:
        rule = office.server.rule("end", HANG_TAKEN, times=1)
        outbox_id = await office.post()
        lease = timedelta(milliseconds=500)
        await office.lose_worker(lambda: rule.seen, lease=lease)
        assert await office.status(outbox_id) == "SENDING"
        office.later(A_LONG_TIME)

        async def dead_lettered() -> bool:
            await office.stage.maintenance.round()
            return await office.status(outbox_id) == "FAILED"

        async with office.working(lease=lease):
            await eventually(dead_lettered)
        assert outcomes(await office.entry(outbox_id)) == [("lost", "LOST")]
        assert len(office.delivered(outbox_id)) == 1
        (letter,) = await office.letters()
        assert letter.reason_code == "SEND_OUTCOME_UNKNOWN"


async def test_a_job_whose_email_was_sent_is_acknowledged(opened):
    async with opened() as office:
        await office.stage.broker.pause(QUEUE_NAME)
        outbox_id = await office.post()
        await office.stage.store.apply([Upsert(LOG, outbox_id, {"status": "SENT", "sesMessageId": "ses-1"})])
        await office.stage.broker.resume(QUEUE_NAME)
        async with office.working():
            await office.until(outbox_id, "SENT")
        assert (await office.entry(outbox_id)).result == {"status": "ALREADY_SENT", "sesMessageId": "ses-1"}
        assert office.server.taken == []


async def test_an_email_expires_without_a_worker(opened):
    async with opened(ttl=timedelta(milliseconds=300)) as office:
        outbox_id = await office.post()
        office.later(A_LONG_TIME)

        async def expired() -> bool:
            await office.stage.maintenance.round()
            return await office.status(outbox_id) == "EXPIRED"

        await eventually(expired)
        async with office.working():
            await office.idle()
        assert (await office.entry(outbox_id)).status is Status.EXPIRED
        assert office.server.connections == 0


async def test_a_cancelled_email_is_not_sent(opened):
    async with opened() as office:
        outbox_id = await office.post()
        assert await office.cancellation.cancel(office.workload, outbox_id)
        async with office.working():
            await office.idle()
        assert await office.status(outbox_id) == "CANCELLED"
        assert office.server.connections == 0


async def test_an_address_that_was_suppressed_after_acceptance_gets_nothing(opened):
    async with opened() as office:
        outbox_id = await office.post(to="joao@example.com")
        now = office.stage.ambient.clock.now()
        await office.suppressions.add(
            ["joao@example.com"], SuppressionReason.BOUNCE, detail=None, source="test", now=now
        )
        async with office.working():
            await office.until(outbox_id, "FAILED", lastErrorCode="RECIPIENT_SUPPRESSED")
        assert office.server.connections == 0


async def test_an_account_that_is_blocked_pauses_the_queue_until_somebody_resumes_it(opened):
    async with opened() as office:
        office.server.rule("mail", "530 5.7.0 Log in first", times=1)
        outbox_id = await office.post()
        async with office.working():
            await eventually(lambda: _paused_because(office))
            assert (await office.depth()).paused_because.startswith("SMTP_530: ")
            await office.until(outbox_id, "ENQUEUED", attempt=0)
            assert (await office.entry(outbox_id)).attempt_count == 0
            await office.stage.broker.resume(QUEUE_NAME)
            await office.until(outbox_id, "SENT", attempt=1)


async def _paused_because(office):
    return (await office.depth()).paused_because


async def test_an_email_that_did_not_reach_the_queue_is_published_by_maintenance(opened):
    async with opened(apart=True) as office:
        office.stage.broker.break_down(BrokerUnavailable(), "publish")
        outbox_id = await office.post()
        assert await office.status(outbox_id) == "PENDING"
        office.stage.broker.repair()
        office.later(A_LONG_TIME)

        async def enqueued() -> bool:
            await office.stage.maintenance.round()
            return await office.status(outbox_id) == "ENQUEUED"

        await eventually(enqueued)
        async with office.working():
            await office.until(outbox_id, "SENT")


async def test_a_job_of_an_external_producer_is_adopted_and_sent(opened):
    async with opened() as office:
        await office.keep_html()
        outbox_id = await office.put_into_queue()
        async with office.working():
            outbox = await office.until(outbox_id, "SENT")
        assert (outbox["companyId"], outbox["to"]) == (office.company, "j***@e***.com")
        assert len(office.delivered(outbox_id)) == 1


async def test_a_replay_sends_what_the_server_refused_before(opened):
    async with opened() as office:
        office.server.rule("rcpt", "550 5.1.1 No such user", times=1)
        outbox_id = await office.post()
        async with office.working():
            await office.until(outbox_id, "FAILED")
            (letter,) = await office.letters()
            await office.replay(letter)
            await office.until(outbox_id, "SENT", attempt=1)
        assert len(office.delivered(outbox_id)) == 1
        assert (await office.entry(outbox_id)).generation == 2
