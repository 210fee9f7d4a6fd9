"""One worker sends at most ten emails at the same time (E51)."""

from __future__ import annotations

from tests.support.email_client import email_client
from tests.support.smtp_server import HANG
from tests.support.waiting import eventually


async def test_one_worker_sends_at_most_ten_emails_at_once():
    async with email_client() as client:
        hanging = client.server.rule("end", HANG)
        emails = [await client.post() for _ in range(15)]

        async with client.working():

            async def ten_are_on_their_way():
                return [await client.status(each) for each in emails].count("SENDING") >= 10

            await eventually(ten_are_on_their_way)
            depth = await client.depth()
            hanging.release()
            for each in emails:
                await client.until(each, "SENT")

        assert (depth.active, depth.ready) == (10, 5)
