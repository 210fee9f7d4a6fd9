"""Workers that die with emails in their hands: no email goes out twice, and every doubt is a dead letter (I11)."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter

import pytest

from tests.support.email_traffic import (
    POINTS,
    UNKNOWN,
    EmailTraffic,
    MailTruth,
    mail_server,
    mail_settings,
    mail_truth,
    messages_in,
    outbox_ids,
    violations,
    with_tenant,
)
from tests.support.long_run import LONG_RUN
from tests.support.running_gateway import running_gateway
from tests.support.smtp_server import HANG_TAKEN, SmtpServer
from tests.support.strikes import carry_out, strikes

EMAILS = 2_000 if LONG_RUN else 150
IN_FLIGHT = 6
"""Fewer than a worker's slots: one worker can hold them all."""


async def test_no_crash_point_makes_an_email_go_out_twice(tmp_path, rounds, seed, tell):
    async with mail_server(tmp_path) as (port, log), running_gateway(tmp_path, seed, **mail_settings(port)) as gateway:
        mail = await with_tenant(gateway, lambda: messages_in(log))
        await killed_at_every_point(mail, max(1, rounds // 2), seed, tell)


async def killed_at_every_point(mail: EmailTraffic, rounds: int, seed: int, tell) -> None:
    began, deaths = time.monotonic(), Counter()
    fleet = mail.gateway.fleet
    await fleet.start("api")
    planned = strikes(mail.gateway.chance, "worker", POINTS, rounds, passed_at_start=0)
    async with mail.under_load(emails=EMAILS), asyncio.TaskGroup() as group:
        group.create_task(carry_out(fleet, planned, deaths, "worker"))
        group.create_task(carry_out(fleet, planned, deaths, "worker"))
    truth = await mail.ended()
    tell(
        {
            "seed": seed,
            "seconds": round(time.monotonic() - began),
            "emails": len(truth.entries),
            "sent": len(truth.sent),
            "unknown": len(truth.unknown),
            "messages": mail.messages().total(),
            "deaths": dict(deaths),
        }
    )
    assert mail.violations(truth) == []
    assert deaths == dict.fromkeys(POINTS, rounds)
    # The run was worth something: workers died before the message was out, after it, and many emails simply went.
    assert len(truth.entries) >= EMAILS
    assert len(truth.sent) > len(truth.unknown) > 0


async def test_a_worker_that_slept_while_its_messages_were_out_cannot_say_that_they_were_sent(tmp_path, seed, tell):
    with SmtpServer() as server:
        async with running_gateway(tmp_path, seed, **mail_settings(server.port)) as gateway:
            messages = lambda: outbox_ids([each.message_id for each in server.taken])  # noqa: E731 - short
            await slept_with_messages_out(await with_tenant(gateway, messages), server, tell)


async def slept_with_messages_out(mail: EmailTraffic, server: SmtpServer, tell) -> None:
    """The server has the messages and does not answer; the worker stops, and goes on when another one took over."""
    fleet = mail.gateway.fleet
    rule = server.rule("end", HANG_TAKEN, times=IN_FLIGHT)
    await fleet.start("api")
    sleeper = await fleet.start("worker")
    posted = await mail.tenant.post(IN_FLIGHT)
    await mail.until(lambda: rule.seen == IN_FLIGHT, "all messages are out")
    sleeper.signal(signal.SIGSTOP)
    successor = await fleet.start("worker")
    await mail.until(lambda: len(mail_truth(mail.gateway).unknown) == IN_FLIGHT, "its successor dead-lettered them")
    rule.release()  # the answers wait for the sleeper when it wakes
    sleeper.signal(signal.SIGCONT)
    await mail.until(lambda: stale(sleeper) == IN_FLIGHT, "the sleeper knows that they are not its own any more")
    # Awake again, it works as before.
    await successor.terminate()
    afterwards = await mail.tenant.post(IN_FLIGHT)
    truth = await mail.ended()
    tell({"sent": len(truth.sent), "unknown": len(truth.unknown), "messages": mail.messages().total()})
    assert mail.violations(truth) == []
    assert sorted(truth.unknown) == sorted(posted)
    assert sorted(truth.sent) == sorted(afterwards)
    assert mail.messages() == Counter(posted + afterwards)


def stale(worker) -> int:
    """How many emails this worker was told to let go of, by its own log."""
    return worker.log.read_text().count('"attempt.stale"')


# --- the checker ----------------------------------------------------------------------------------------------------

RECEIPTS = {"key-1": "a", "key-2": "b", "key-3": "c"}
SOUND = {
    "entries": {"a": "processed", "b": "dead_lettered", "c": "dead_lettered"},
    "outbox": {"a": "SENT", "b": "FAILED", "c": "FAILED"},
    "log": {"a": "SENT"},
    "letters": [("b", UNKNOWN), ("c", "WORKER_LOST")],
    "waiting": 0,
    "told": 2,
}


def found(messages: Counter[str], **changes) -> list[str]:
    return list(violations(RECEIPTS, MailTruth(**(SOUND | changes)), messages))


@pytest.mark.parametrize("messages", [Counter("a"), Counter("ab")])
def test_the_checker_finds_nothing_where_nothing_is_wrong(messages):
    assert found(messages) == []


@pytest.mark.parametrize(
    ("messages", "changes"),
    [
        (Counter("aa"), {}),
        (Counter("abb"), {}),
        (Counter("ac"), {}),
        (Counter("b"), {}),
        (Counter("az"), {}),
        (Counter("a"), {"entries": SOUND["entries"] | {"b": "failed"}}),
        (Counter("a"), {"entries": {"a": "processed", "b": "dead_lettered"}}),
        (Counter("a"), {"outbox": SOUND["outbox"] | {"b": "SENDING"}}),
        (Counter("a"), {"log": {}}),
        (Counter("a"), {"log": {"a": "SENT", "b": "SENT"}}),
        (Counter("a"), {"letters": [("b", UNKNOWN)]}),
        (Counter("a"), {"letters": [*SOUND["letters"], ("b", UNKNOWN)]}),
        (Counter("a"), {"letters": [("b", "SMTP_550"), ("c", "WORKER_LOST")]}),
    ],
)
def test_the_checker_finds_what_is_wrong(messages, changes):
    assert found(messages, **changes)
