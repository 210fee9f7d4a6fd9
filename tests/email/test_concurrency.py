"""Seed 004: one worker has at most ten emails in hand."""

from __future__ import annotations

from tests.email.post_office import post_office
from tests.support.smtp_server import HANG
from tests.support.waiting import eventually


async def test_one_worker_has_ten_emails_in_hand_and_no_more():
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
