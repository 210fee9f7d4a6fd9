"""One worker sends at most ten emails at the same time (E51)."""

from __future__ import annotations

from tests.email.post_office import post_office
from tests.support.smtp_server import HANG
from tests.support.waiting import eventually


async def test_one_worker_sends_at_most_ten_emails_at_once():
    async with post_office() as office:
        hanging = office.server.rule("end", HANG)
        emails = [await office.post() for _ in range(15)]

        async with office.working():

            async def ten_are_on_their_way():
                return [await office.status(each) for each in emails].count("SENDING") >= 10

            await eventually(ten_are_on_their_way)
            depth = await office.depth()
            hanging.release()
            for each in emails:
                await office.until(each, "SENT")

        assert (depth.active, depth.ready) == (10, 5)
