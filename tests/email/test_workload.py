"""The outcome of an email for every answer of the mail server: the embedded deployment, on a clock of the test."""

from __future__ import annotations

import json
from datetime import timedelta
from email import message_from_bytes, policy

import pytest

from holdfast.contracts.effects import Upsert
from holdfast.contracts.ledger import Status
from holdfast.contracts.tenants import TENANTS
from holdfast.contracts.times import isoformat
from holdfast.features.email.contract import BACKOFF_DELAYS, QUEUE_NAME, EmailSendResult
from holdfast.features.email.records import LOG, SuppressionReason
from holdfast.features.email.suppression import address_hash
from tests.support.clock import START
from tests.support.email_client import CPF, DAY, VAULT, email_client
from tests.support.gateway import LEASE, outcomes
from tests.support.smtp_server import DROP, DROP_TAKEN, HANG, HANG_TAKEN
from tests.support.waiting import eventually

SOON = {"final_timeout": timedelta(milliseconds=200)}
A_MOMENT = timedelta(milliseconds=1)


def facts(record, *names):
    return {name: record.get(name) for name in names}


# --- sent -----------------------------------------------------------------------------------------------------------


async def test_an_email_is_sent_once_and_every_record_shows_it():
    async with email_client() as client:
        outbox_id = await client.post(to="maria@example.com", cc=["copy@example.com"], tags=["boleto"], priority=3)
        assert await client.status(outbox_id) == "ENQUEUED"
        async with client.working():
            outbox = await client.until(outbox_id, "SENT")
            await client.idle()

        (message,) = client.delivered(outbox_id)
        assert message.recipients == ("maria@example.com", "copy@example.com")
        entry, log = await client.entry(outbox_id), await client.log(outbox_id)
        assert (entry.status, outcomes(entry)) == (Status.PROCESSED, [("succeeded", None)])
        assert facts(outbox, "companyId", "requestId", "to", "toHash", "ccCount", "bccCount", "tags", "priority") == {
            "companyId": client.company,
            "requestId": "req-abc123",
            "to": "m***@e***.com",
            "toHash": address_hash(VAULT, "maria@example.com"),
            "ccCount": 1,
            "bccCount": 0,
            "tags": ["boleto"],
            "priority": 3,
        }
        assert facts(outbox, "attempt", "lastErrorCode", "deadline", "expiresAt") == {
            "attempt": 1,
            "lastErrorCode": None,
            "deadline": isoformat(START + DAY),
            "expiresAt": isoformat(START + DAY + timedelta(days=30)),
        }
        assert facts(log, "outboxId", "companyId", "recipientId", "status", "attempt", "transport", "refused") == {
            "outboxId": outbox_id,
            "companyId": client.company,
            "recipientId": outbox["recipientId"],
            "status": "SENT",
            "attempt": 1,
            "transport": "smtp",
            "refused": 0,
        }
        assert log["sesMessageId"] == outbox["sesMessageId"] == entry.result["sesMessageId"] == "Q000001"
        assert log["sentAt"] == outbox["sentAt"] == entry.result["processedAt"]
        assert log["durationMs"] == entry.result["durationMs"] >= 0


async def test_the_result_has_the_fields_of_the_specification():
    async with email_client() as client:
        outbox_id = await client.post()
        async with client.working():
            await client.until(outbox_id, "SENT")
        result = (await client.entry(outbox_id)).result
        assert set(result) == {"sesMessageId", "status", "processedAt", "durationMs", "attempt"}
        assert (result["status"], result["attempt"]) == ("SENT", 1)
        EmailSendResult.model_validate(result)


async def test_the_message_is_from_us_and_blind_copies_stay_blind():
    async with email_client() as client:
        outbox_id = await client.post(
            to="maria@example.com", bcc=["boss@example.org"], replyTo="ask@example.com", headers={"X-Batch": "7"}
        )
        async with client.working():
            await client.until(outbox_id, "SENT")
        (message,) = client.delivered(outbox_id)
        parsed = message_from_bytes(message.raw, policy=policy.default)
        assert message.recipients == ("maria@example.com", "boss@example.org")
        assert message.sender == "mail@sender.example"
        assert parsed["From"] == "Holdfast <mail@sender.example>"
        assert (parsed["To"], parsed["Reply-To"], parsed["X-Batch"]) == ("maria@example.com", "ask@example.com", "7")
        assert b"boss@" not in message.raw
        assert "<b>" in parsed.get_body(("html",)).get_content()
        assert "boleto" in parsed.get_body(("plain",)).get_content()


async def test_a_tenant_with_a_sender_of_its_own_uses_it():
    async with email_client() as client:
        await client.gateway.store.apply([Upsert(TENANTS, client.company, {"sender": "Loja <loja@shop.example>"})])
        outbox_id = await client.post()
        async with client.working():
            await client.until(outbox_id, "SENT")
        (message,) = client.delivered(outbox_id)
        assert message.sender == "loja@shop.example"
        assert message_from_bytes(message.raw, policy=policy.default)["From"] == "Loja <loja@shop.example>"


async def test_a_refused_copy_is_counted_and_does_not_stop_the_email():
    async with email_client() as client:
        client.server.rule("rcpt", "550 5.1.1 No such user", match="ghost@")
        outbox_id = await client.post(cc=["ghost@example.com", "copy@example.com"])
        async with client.working():
            await client.until(outbox_id, "SENT")
        assert (await client.log(outbox_id))["refused"] == 1
        assert len(client.delivered(outbox_id)) == 1


async def test_an_email_for_later_waits_for_its_time():
    async with email_client() as client:
        outbox_id = await client.post(delay=60_000)
        assert await client.gateway.queued(QUEUE_NAME) == []
        client.later(timedelta(minutes=1) - A_MOMENT)
        assert await client.gateway.queued(QUEUE_NAME) == []
        client.later(A_MOMENT)
        async with client.working():
            await client.until(outbox_id, "SENT")


# --- not now --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gateway", "action", "code"),
    [
        ("end", "421 4.3.2 Shutting down", "SMTP_421"),
        ("end", "451 4.3.0 Try again", "SMTP_451"),
        ("rcpt", "450 4.2.1 Busy", "SMTP_450"),
        ("data", DROP, "SMTP_LOST"),
        ("connect", "421 4.3.2 Too busy", "SMTP_421"),
    ],
)
async def test_a_temporary_refusal_is_retried(gateway, action, code):
    async with email_client() as client:
        client.server.rule(gateway, action, times=1)
        outbox_id = await client.post()
        async with client.working():
            waiting = await client.until(outbox_id, "RETRYING")
            assert facts(waiting, "attempt", "lastErrorCode", "retryAfterMs") == {
                "attempt": 1,
                "lastErrorCode": code,
                "retryAfterMs": 1000,
            }
            assert client.delivered(outbox_id) == []
            client.later(timedelta(seconds=1))
            sent = await client.until(outbox_id, "SENT")
        assert facts(sent, "attempt", "lastErrorCode", "lastErrorMessage") == {
            "attempt": 2,
            "lastErrorCode": None,
            "lastErrorMessage": None,
        }
        assert outcomes(await client.entry(outbox_id)) == [("failed", code), ("succeeded", None)]
        assert (await client.entry(outbox_id)).result["attempt"] == 2
        assert len(client.delivered(outbox_id)) == 1


async def test_the_delays_are_those_of_the_specification_and_the_fifth_failure_is_the_last():
    async with email_client() as client:
        client.server.rule("end", "451 4.3.0 Not today")
        outbox_id = await client.post()
        waits = []
        for attempt, seconds in enumerate(BACKOFF_DELAYS[:4], 1):
            async with client.working():
                await client.until(outbox_id, "RETRYING", attempt=attempt)
                await eventually(lambda: _waits(client))
            entry = await client.entry(outbox_id)
            waits.append((entry.not_before - entry.attempts[-1].finished_at).total_seconds())
            client.later(timedelta(seconds=seconds) - A_MOMENT)
            assert await client.gateway.queued(QUEUE_NAME) == []
            client.later(A_MOMENT)
        async with client.working():
            failed = await client.until(outbox_id, "FAILED")
        assert waits == [1, 5, 30, 120]
        assert facts(failed, "attempt", "lastErrorCode") == {"attempt": 5, "lastErrorCode": "SMTP_451_EXHAUSTED"}
        client.later(timedelta(seconds=600))
        await client.gateway.maintenance.round()
        assert await client.gateway.queued(QUEUE_NAME) == []
        assert client.delivered(outbox_id) == []


async def _waits(client):
    return (await client.depth()).delayed == 1


async def test_a_dead_letter_matches_its_contract_and_has_no_personal_data():
    async with email_client() as client:
        client.server.rule("end", "550 5.7.1 maria.da.silva@example.com is not welcome", match="maria")
        outbox_id = await client.post(to="maria.da.silva@example.com", bcc=["secret.friend@example.org"])
        async with client.working():
            await client.until(outbox_id, "FAILED")
        (published,) = await client.published_letters()
        assert facts(
            published, "jobId", "outboxId", "companyId", "failedAttempts", "lastFailureCode", "enqueuedAt"
        ) == {
            "jobId": outbox_id,
            "outboxId": outbox_id,
            "companyId": client.company,
            "failedAttempts": 1,
            "lastFailureCode": "SMTP_550",
            "enqueuedAt": isoformat(START),
        }
        assert published["lastFailureReason"].startswith("The server answered 550")
        assert [(each["attempt"], each["errorCode"]) for each in published["attemptHistory"]] == [(1, "SMTP_550")]
        (letter,) = await client.letters()
        everything = json.dumps([published, letter.body, letter.reason_message, await client.outbox(outbox_id)])
        assert published["payload"]["to"] == "m***@e***.com"
        for private in ("maria.da.silva", "secret.friend", "Maria Souza", CPF, "52998224725"):
            assert private not in everything


# --- never ----------------------------------------------------------------------------------------------------------


async def test_a_permanent_refusal_is_not_retried():
    async with email_client() as client:
        client.server.rule("rcpt", "550 5.1.1 No such user")
        outbox_id = await client.post()
        async with client.working():
            failed = await client.until(outbox_id, "FAILED")
            client.later(timedelta(hours=1))
            await client.gateway.maintenance.round()
            await client.idle()
        assert facts(failed, "attempt", "lastErrorCode") == {"attempt": 1, "lastErrorCode": "SMTP_550"}
        assert client.server.commands().count("RCPT") == 1
        assert await client.log(outbox_id) is None


@pytest.mark.parametrize("place", ["to", "cc", "bcc"])
async def test_an_address_that_was_suppressed_after_acceptance_gets_nothing(place):
    async with email_client() as client:
        given = "Joao@example.com" if place == "to" else ["Joao@example.com"]
        outbox_id = await client.post(**{place: given})
        await client.suppressions.add(
            ["joao@example.com"], SuppressionReason.BOUNCE, detail=None, source="test", now=START
        )
        async with client.working():
            failed = await client.until(outbox_id, "FAILED")
        assert failed["lastErrorCode"] == "RECIPIENT_SUPPRESSED"
        assert client.server.taken == []
        (letter,) = await client.letters()
        assert letter.reason_code == "RECIPIENT_SUPPRESSED"


async def test_a_tenant_that_was_closed_after_acceptance_sends_nothing():
    async with email_client() as client:
        outbox_id = await client.post()
        await client.gateway.store.apply([Upsert(TENANTS, client.company, {"active": False})])
        async with client.working():
            failed = await client.until(outbox_id, "FAILED")
        assert failed["lastErrorCode"] == "TENANT_INACTIVE"
        assert client.server.taken == []


async def test_a_job_without_html_fails_with_the_reason():
    async with email_client() as client:
        outbox_id = await client.put_into_queue(htmlRef="nowhere")
        async with client.working():
            failed = await client.until(outbox_id, "FAILED")
        assert failed["lastErrorCode"] == "CONTENT_MISSING"
        assert client.server.taken == []


# --- in doubt (I11) -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("action", "taken"), [(HANG, 0), (HANG_TAKEN, 1), (DROP, 0), (DROP_TAKEN, 1)])
async def test_an_email_that_may_have_been_sent_is_not_sent_again(action, taken):
    async with email_client(smtp_options=SOON) as client:
        rule = client.server.rule("end", action)
        outbox_id = await client.post()
        async with client.working():
            failed = await client.until(outbox_id, "FAILED")
            rule.release()
            client.later(timedelta(hours=1))
            await client.gateway.maintenance.round()
            await client.idle()
        assert facts(failed, "attempt", "lastErrorCode") == {"attempt": 1, "lastErrorCode": "SEND_OUTCOME_UNKNOWN"}
        assert rule.seen == 1
        assert len(client.delivered(outbox_id)) == taken
        (letter,) = await client.letters()
        assert letter.reason_code == "SEND_OUTCOME_UNKNOWN"


async def test_with_resend_an_email_that_may_have_been_sent_is_sent_again():
    async with email_client(resend=True) as client:
        client.server.rule("end", DROP_TAKEN, times=1)
        outbox_id = await client.post()
        async with client.working():
            waiting = await client.until(outbox_id, "RETRYING")
            assert waiting["lastErrorCode"] == "SEND_OUTCOME_UNKNOWN"
            client.later(timedelta(seconds=1))
            await client.until(outbox_id, "SENT")
        assert len(client.delivered(outbox_id)) == 2
        assert await client.letters() == []


@pytest.mark.parametrize(("resend", "status", "messages"), [(False, "FAILED", 1), (True, "SENT", 2)])
async def test_a_worker_that_is_lost_while_sending_leaves_the_outcome_unknown(resend, status, messages):
    async with email_client(resend=resend) as client:
        rule = client.server.rule("end", HANG_TAKEN, times=1)
        outbox_id = await client.post()
        await client.lose_worker(lambda: rule.seen)
        assert await client.status(outbox_id) == "SENDING"
        client.later(LEASE + timedelta(seconds=1))
        await client.gateway.maintenance.round()
        async with client.working():
            record = await client.until(outbox_id, status)
        assert len(client.delivered(outbox_id)) == messages
        assert outcomes(await client.entry(outbox_id))[0][0] == "lost"
        if not resend:
            assert record["lastErrorCode"] == "SEND_OUTCOME_UNKNOWN"


async def test_an_email_is_marked_as_sending_before_the_server_is_called():
    async with email_client() as client:
        rule = client.server.rule("mail", HANG, times=1)
        outbox_id = await client.post()
        async with client.working():
            await eventually(lambda: rule.seen)
            assert facts(await client.outbox(outbox_id), "status", "attempt") == {"status": "SENDING", "attempt": 1}
            rule.release()
            await client.until(outbox_id, "SENT")


# --- sent before ----------------------------------------------------------------------------------------------------


async def test_a_job_whose_email_was_sent_is_acknowledged_and_not_sent_again():
    async with email_client() as client:
        outbox_id = await client.post()
        await client.gateway.store.apply([Upsert(LOG, outbox_id, {"status": "SENT", "sesMessageId": "ses-1"})])
        async with client.working():
            outbox = await client.until(outbox_id, "SENT")
            await client.idle()
        assert (await client.entry(outbox_id)).result == {"status": "ALREADY_SENT", "sesMessageId": "ses-1"}
        assert outbox["sesMessageId"] == "ses-1"
        assert client.server.taken == []


async def test_people_see_the_outbox_id_of_a_sent_email_as_its_id_too():
    async with email_client() as client:
        outbox_id = await client.post()
        async with client.working():
            await client.until(outbox_id, "SENT")
        query = "SELECT id, outboxId FROM email_log"
        assert await client.gateway.database.read(lambda c: c.execute(query).fetchall()) == [(outbox_id, outbox_id)]


async def test_the_same_job_in_the_queue_again_sends_nothing():
    async with email_client() as client:
        await client.keep_html()
        outbox_id = await client.put_into_queue()
        async with client.working():
            await client.until(outbox_id, "SENT")
            for job_id in (outbox_id, "another-name"):
                await client.put_into_queue(job_id=job_id, outboxId=outbox_id)
                await client.idle()
        assert len(client.delivered(outbox_id)) == 1
        assert await client.letters() == []
