"""Emails with other endings: expired, cancelled, replayed, paused by a blocked account, adopted."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from aiobotocore.session import get_session

from holdfast.contracts.effects import Upsert
from holdfast.contracts.ledger import Status
from holdfast.contracts.tenants import TENANTS
from holdfast.contracts.times import isoformat
from holdfast.contracts.transitions import Proceed
from holdfast.contracts.workload import Failure
from holdfast.features.email.contract import QUEUE_NAME
from holdfast.features.email.records import LOG, SuppressionReason
from holdfast.features.email.transports.ses import SesOptions, SesTransport
from tests.support.clock import START
from tests.support.email_client import DAY, DOMAIN, email_client
from tests.support.gateway import outcomes
from tests.support.smtp_server import HANG
from tests.support.waiting import eventually

A_MOMENT = timedelta(milliseconds=1)
A_SECOND = timedelta(seconds=1)


# --- expired (I10) --------------------------------------------------------------------------------------------------


async def test_an_email_that_is_a_day_old_is_not_sent():
    async with email_client() as client:
        outbox_id = await client.post()
        client.later(DAY)
        async with client.working():
            await client.until(outbox_id, "EXPIRED")
            await client.idle()
        entry = await client.entry(outbox_id)
        assert (entry.status, entry.attempt_count) == (Status.EXPIRED, 0)
        assert client.server.connections == 0
        assert await client.letters() == []


async def test_an_email_is_still_sent_just_before_its_ttl_ends():
    async with email_client() as client:
        outbox_id = await client.post()
        client.later(DAY - A_MOMENT)
        async with client.working():
            await client.until(outbox_id, "SENT")


async def test_an_email_expires_without_a_worker():
    async with email_client() as client:
        outbox_id = await client.post()
        client.later(DAY - A_MOMENT)
        assert (await client.gateway.maintenance.round()).expired == 0
        client.later(A_MOMENT)
        assert (await client.gateway.maintenance.round()).expired == 1
        assert await client.status(outbox_id) == "EXPIRED"
        await client.idle()


async def test_an_email_whose_ttl_ends_right_before_sending_is_not_sent():
    async with email_client() as client:
        outbox_id = await client.post()

        async def a_day_passes(settlements):
            if any(isinstance(each.transition, Proceed) for each in settlements):
                client.later(DAY)

        client.gateway.store.before("settle", a_day_passes)
        async with client.working():
            await client.until(outbox_id, "EXPIRED")
        assert client.server.connections == 0
        assert (await client.entry(outbox_id)).status is Status.EXPIRED


async def test_an_email_that_waits_for_another_attempt_expires_too():
    async with email_client() as client:
        client.server.rule("end", "451 4.3.0 Not today")
        outbox_id = await client.post()
        async with client.working():
            await client.until(outbox_id, "RETRYING")
            client.later(DAY)
            await client.until(outbox_id, "EXPIRED")
        assert client.server.commands().count("END") == 1
        assert outcomes(await client.entry(outbox_id)) == [("failed", "SMTP_451")]


# --- cancelled ------------------------------------------------------------------------------------------------------


async def test_a_cancelled_email_is_never_sent():
    async with email_client() as client:
        waiting, scheduled = await client.post(), await client.post(delay=60_000)
        for outbox_id in (waiting, scheduled):
            assert await client.gateway.cancellation.cancel(client.workload, outbox_id)
            assert await client.status(outbox_id) == "CANCELLED"
        client.later(timedelta(minutes=2))
        async with client.working():
            await client.idle()
        assert client.server.connections == 0
        assert (await client.entry(waiting)).note == "withdrawn"


async def test_an_email_that_waits_for_another_attempt_can_be_cancelled():
    async with email_client() as client:
        client.server.rule("end", "451 4.3.0 Not today", times=1)
        outbox_id = await client.post()
        async with client.working():
            await client.until(outbox_id, "RETRYING")
            assert await client.gateway.cancellation.cancel(client.workload, outbox_id)
            client.later(timedelta(minutes=2))
            await client.idle()
        assert await client.status(outbox_id) == "CANCELLED"
        assert client.delivered(outbox_id) == []


async def test_an_email_that_is_being_sent_cannot_be_cancelled():
    async with email_client() as client:
        rule = client.server.rule("end", HANG)
        outbox_id = await client.post()
        async with client.working():
            await eventually(lambda: rule.seen)
            assert not await client.gateway.cancellation.cancel(client.workload, outbox_id)
            rule.release()
            await client.until(outbox_id, "SENT")
        assert not await client.gateway.cancellation.cancel(client.workload, outbox_id)
        assert await client.status(outbox_id) == "SENT"


# --- replayed -------------------------------------------------------------------------------------------------------


async def refused(client) -> str:
    """An email that the server refused, and would accept now."""
    client.server.rule("rcpt", "550 5.1.1 No such user", times=1)
    outbox_id = await client.post()
    async with client.working():
        await client.until(outbox_id, "FAILED")
    return outbox_id


async def test_a_replay_within_the_ttl_sends_the_email():
    async with email_client() as client:
        outbox_id = await refused(client)
        (letter,) = await client.letters()
        await client.replay(letter)
        assert await client.status(outbox_id) == "ENQUEUED"
        async with client.working():
            await client.until(outbox_id, "SENT", attempt=1)
        (message,) = client.delivered(outbox_id)
        assert message.recipients[0].startswith("maria")
        entry = await client.entry(outbox_id)
        assert (entry.generation, entry.status) == (2, Status.PROCESSED)


async def test_a_replay_after_the_ttl_expires():
    async with email_client() as client:
        outbox_id = await refused(client)
        (letter,) = await client.letters()
        client.later(DAY)
        await client.replay(letter)
        async with client.working():
            await client.until(outbox_id, "EXPIRED")
        assert client.delivered(outbox_id) == []


async def test_a_replay_of_an_email_that_was_sent_sends_nothing():
    async with email_client() as client:
        outbox_id = await refused(client)
        (letter,) = await client.letters()
        await client.gateway.store.apply([Upsert(LOG, outbox_id, {"status": "SENT", "sesMessageId": "ses-7"})])
        await client.replay(letter)
        async with client.working():
            await client.until(outbox_id, "SENT")
        assert (await client.entry(outbox_id)).result == {"status": "ALREADY_SENT", "sesMessageId": "ses-7"}
        assert client.delivered(outbox_id) == []


async def test_a_replay_checks_the_suppression_list_again():
    async with email_client() as client:
        outbox_id = await refused(client)
        (letter,) = await client.letters()
        to = json.loads((await client.entry(outbox_id)).body)["to"]
        await client.suppressions.add([to], SuppressionReason.COMPLAINT, detail=None, source="test", now=START)
        await client.replay(letter)
        async with client.working():
            await client.until(outbox_id, "FAILED", lastErrorCode="RECIPIENT_SUPPRESSED")
        assert len(await client.letters()) == 2


# --- the account ----------------------------------------------------------------------------------------------------


async def test_a_login_that_fails_pauses_the_queue_and_costs_no_attempt():
    users = {"holdfast": "another"}
    login = {"username": "holdfast", "password": "right"}
    async with email_client(server_options={"users": users}, smtp_options=login) as client:
        posted = [await client.post() for _ in range(3)]
        async with client.working():
            await eventually(lambda: _paused(client))
            await eventually(lambda: _none_in_work(client))
        depth = await client.depth()
        assert depth.paused_because.startswith("SMTP_535: ")
        for outbox_id in posted:
            assert await client.status(outbox_id) == "ENQUEUED"
            assert (await client.entry(outbox_id)).attempt_count == 0
        users["holdfast"] = "right"
        await client.gateway.broker.resume(QUEUE_NAME)
        async with client.working():
            for outbox_id in posted:
                await client.until(outbox_id, "SENT", attempt=1)
        assert await client.letters() == []


async def test_an_account_that_is_blocked_between_two_attempts_leaves_the_email_as_it_was():
    async with email_client() as client:
        client.server.rule("end", "451 4.3.0 Not today", times=1)
        outbox_id = await client.post()
        async with client.working():
            await client.until(outbox_id, "RETRYING")
            client.server.rule("mail", "530 5.7.0 Log in first", times=1)
            client.later(A_SECOND)
            await eventually(lambda: _paused(client))
            await client.until(outbox_id, "RETRYING", attempt=1)
            await client.gateway.broker.resume(QUEUE_NAME)
            await client.until(outbox_id, "SENT", attempt=2)


async def _paused(client):
    return (await client.depth()).paused


async def _none_in_work(client):
    return (await client.depth()).active == 0


class Ses:
    """A server like SES. It gives the ``answers`` of the test first, and then accepts everything."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str, str]] = []
        self.asked = 0

    @asynccontextmanager
    async def serving(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**20)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield SesTransport(SesOptions(region="us-east-1", endpoint_url=url))

    async def _serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
        self.asked += 1
        status, name, more = self.answers.pop(0) if self.answers else (200, "", "")
        body = json.dumps({"message": "because"} if name else {"MessageId": f"ses-{self.asked}"})
        lines = [f"HTTP/1.1 {status} X", f"x-amzn-errortype: {name}", "connection: close", *more.splitlines()]
        writer.write("\r\n".join([*lines, f"content-length: {len(body)}", "", body]).encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()


@pytest.mark.usefixtures("aws_credentials")
async def test_an_account_that_amazon_suspended_pauses_the_queue():
    ses = Ses()
    async with ses.serving() as transport, email_client(transport) as client:
        ses.answers = [(400, "AccountSuspendedException", "")]
        outbox_id = await client.post()
        async with client.working():
            await eventually(lambda: _paused(client))
            await client.until(outbox_id, "ENQUEUED", attempt=0)
            assert (await client.depth()).paused_because.startswith("SES_ACCOUNT_SUSPENDED: ")
            await client.gateway.broker.resume(QUEUE_NAME)
            sent = await client.until(outbox_id, "SENT")
        assert (sent["sesMessageId"], sent["attempt"]) == ("ses-2", 1)
        assert (await client.log(outbox_id))["transport"] == "ses"


@pytest.mark.usefixtures("aws_credentials")
async def test_an_email_that_amazon_throttles_costs_no_attempt_and_waits_as_asked():
    ses = Ses()
    async with ses.serving() as transport, email_client(transport) as client:
        ses.answers = [(429, "TooManyRequestsException", ""), (429, "TooManyRequestsException", "retry-after: 7")]
        outbox_id = await client.post()
        async with client.working():
            for asked, wait in ((1, A_SECOND), (2, timedelta(seconds=7))):
                await eventually(lambda asked=asked: ses.asked == asked)
                await client.until(outbox_id, "ENQUEUED", attempt=0)
                entry = await eventually(lambda wait=wait: _rests(client, outbox_id, wait))
                assert entry.attempt_count == 0
                client.later(wait)
            await client.until(outbox_id, "SENT", attempt=1)
        assert outcomes(await client.entry(outbox_id)) == [("succeeded", None)]


async def _rests(client, outbox_id, wait):
    entry = await client.entry(outbox_id)
    rests = entry.status is Status.RECEIVED and entry.not_before - client.gateway.clock.now() == wait
    return entry if rests else None


async def test_amazon_accepts_an_email_and_returns_its_id(moto):
    async with get_session().create_client("sesv2", region_name=moto.region, endpoint_url=moto.url) as client:
        await client.create_email_identity(EmailIdentity="mail@sender.example")
    transport = SesTransport(SesOptions(region=moto.region, endpoint_url=moto.url))
    async with email_client(transport) as client:
        outbox_id = await client.post(tags=["boleto"])
        async with client.working():
            sent = await client.until(outbox_id, "SENT")
        (message,) = moto.mail()
        assert message.id == sent["sesMessageId"]
        assert f"<{outbox_id}@{DOMAIN}>" in message.raw_data


# --- a rate of the tenant's own -------------------------------------------------------------------------------------


async def test_a_tenant_with_a_rate_of_its_own_waits_without_losing_an_attempt():
    async with email_client() as client:
        await client.gateway.store.apply([Upsert(TENANTS, client.company, {"ratePerSecond": 1})])
        posted = [await client.post() for _ in range(3)]
        async with client.working():
            for sent in (1, 2, 3):
                await eventually(lambda sent=sent: len(client.server.taken) == sent)
                await eventually(lambda: _none_in_work(client))
                client.later(A_SECOND)
            for outbox_id in posted:
                await client.until(outbox_id, "SENT", attempt=1)


# --- adopted --------------------------------------------------------------------------------------------------------


async def test_a_job_of_an_external_producer_gets_an_outbox_record_and_is_sent():
    async with email_client() as client:
        await client.keep_html("<p>De outro produtor</p>")
        outbox_id = await client.put_into_queue()
        assert await client.outbox(outbox_id) == {}
        async with client.working():
            outbox = await client.until(outbox_id, "SENT")
        assert (outbox["companyId"], outbox["to"], outbox["externalId"]) == (client.company, "j***@e***.com", "NODE-1")
        assert len(client.delivered(outbox_id)) == 1
        assert (await client.log(outbox_id))["status"] == "SENT"


async def test_a_job_that_was_in_the_queue_for_a_day_is_not_sent():
    async with email_client() as client:
        await client.keep_html()
        late = await client.put_into_queue(enqueuedAt=isoformat(START - DAY))
        early = await client.put_into_queue(enqueuedAt=isoformat(START - DAY + A_MOMENT))
        async with client.working():
            await client.until(late, "EXPIRED")
            await client.until(early, "SENT")
        assert client.delivered(late) == []


async def test_another_job_with_a_known_outbox_id_is_a_dead_letter_and_undoes_nothing():
    async with email_client() as client:
        await client.keep_html()
        outbox_id = await client.put_into_queue()
        async with client.working():
            await client.until(outbox_id, "SENT")
            await client.put_into_queue(job_id="other", outboxId=outbox_id, subject="Outra coisa")
            (letter,) = await eventually(client.letters)
        assert letter.reason_code == "IDEMPOTENCY_CONFLICT"
        assert len(client.delivered(outbox_id)) == 1
        assert await client.status(outbox_id) == "SENT"


async def test_a_job_that_breaks_the_contract_is_a_dead_letter_with_the_problem_and_no_personal_data():
    async with email_client() as client:
        outbox_id = await client.put_into_queue(to="maria.souza@example.com", subject="CPF 529.982.247-25")
        async with client.working():
            (letter,) = await eventually(client.letters)
        (published,) = await client.published_letters()
        assert (published["outboxId"], published["lastFailureCode"]) == (outbox_id, "VALIDATION_FAILED")
        assert "subject" in published["lastFailureReason"]
        assert "must be an email address" not in published["lastFailureReason"]
        for private in ("maria.souza", "529.982.247-25"):
            assert private not in json.dumps([published, letter.body, letter.reason_message])
        assert client.server.connections == 0


async def test_the_problem_of_a_job_is_a_sentence():
    async with email_client() as client:
        await client.put_into_queue(
            subject="a\nb", requestId="ç", recipient={"externalId": "x" * 65, "email": "jose@example.com"}
        )
        async with client.working():
            (letter,) = await eventually(client.letters)
        assert letter.reason_message == (
            "requestId: must consist of visible ASCII characters, without spaces; "
            "subject: must not contain line breaks or control characters; "
            "recipient.externalId: must not be longer than 64 characters"
        )


async def test_a_job_whose_recipient_differs_from_to_gets_a_clear_problem():
    async with email_client() as client:
        await client.put_into_queue(recipient={"externalId": "7", "email": "other@example.com"})
        async with client.working():
            (letter,) = await eventually(client.letters)
        assert letter.reason_message == "job: recipient.email must be the same address as to"


async def test_error_texts_in_the_outbox_and_the_dead_letter_are_cut_to_the_contracts_lengths():
    async with email_client() as client:
        outbox_id = await client.post()
        client.workload.classify = lambda _error: Failure("C" * 80, "🦑" * 400, retry=False)
        client.workload._message = _surprise
        async with client.working():
            outbox = await client.until(outbox_id, "FAILED")
        (published,) = await client.published_letters()
        (attempt,) = published["attemptHistory"]
        for code, reason in (
            (outbox["lastErrorCode"], outbox["lastErrorMessage"]),
            (published["lastFailureCode"], published["lastFailureReason"]),
            (attempt["errorCode"], attempt["errorMessage"]),
        ):
            assert (code, reason) == ("C" * 64, "🦑" * 250)


async def _surprise(*_):
    raise RuntimeError
