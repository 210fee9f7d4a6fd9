"""Workers of a cluster that die with emails in their hands: none goes out twice, and every doubt is a dead letter."""

from __future__ import annotations

from tests.chaos.test_email_kills import killed_at_every_point, slept_with_messages_out
from tests.support.email_traffic import mail_server, mail_settings, messages_in, outbox_ids, with_tenant
from tests.support.long_run import LONG_RUN
from tests.support.running_cluster import running_cluster
from tests.support.smtp_server import SmtpServer


async def test_no_crash_point_makes_an_email_go_out_twice(tmp_path, rounds, seed, tell, mongo):
    async with (
        mail_server(tmp_path) as (port, log),
        running_cluster(tmp_path, seed, mongo, **mail_settings(port)) as gateway,
    ):
        mail = await with_tenant(gateway, lambda: messages_in(log))
        await killed_at_every_point(mail, max(1, rounds // 5) if LONG_RUN else 1, seed, tell)


async def test_a_worker_that_slept_while_its_messages_were_out_cannot_say_that_they_were_sent(
    tmp_path, seed, tell, mongo
):
    with SmtpServer() as server:
        async with running_cluster(tmp_path, seed, mongo, **mail_settings(server.port)) as gateway:
            messages = lambda: outbox_ids([each.message_id for each in server.taken])  # noqa: E731 - short
            await slept_with_messages_out(await with_tenant(gateway, messages), server, tell)
