"""Workers of a cluster that die with emails in their hands: none goes out twice, and every doubt is a dead letter."""

from __future__ import annotations

from tests.chaos.test_email_kills import killed_at_every_point, slept_with_messages_out
from tests.support.cluster import cluster
from tests.support.long_run import LONG_RUN
from tests.support.mail_arena import mail_server, mail_settings, messages_in, outbox_ids, with_tenant
from tests.support.smtp_server import SmtpServer


async def test_no_crash_point_makes_an_email_go_out_twice(tmp_path, rounds, seed, tell, mongo):
    async with mail_server(tmp_path) as (port, log), cluster(tmp_path, seed, mongo, **mail_settings(port)) as field:
        mail = await with_tenant(field, lambda: messages_in(log))
        await killed_at_every_point(mail, max(1, rounds // 5) if LONG_RUN else 1, seed, tell)


async def test_a_worker_that_slept_while_its_messages_were_out_cannot_say_that_they_were_sent(
    tmp_path, seed, tell, mongo
):
    with SmtpServer() as server:
        async with cluster(tmp_path, seed, mongo, **mail_settings(server.port)) as field:
            messages = lambda: outbox_ids([each.message_id for each in server.taken])  # noqa: E731 - short
            await slept_with_messages_out(await with_tenant(field, messages), server, tell)
