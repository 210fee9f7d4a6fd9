"""The rate of sent emails, counted at the mail server, with several worker processes."""

from __future__ import annotations

import time
from bisect import bisect_left

import pytest

from tests.email.producer import email_producer, servers
from tests.support.long_run import LONG_RUN

# The assertions hold on any machine.
pytestmark = [pytest.mark.slow, pytest.mark.chaos]  # `make chaos` sends more

MANY = 1_000 if LONG_RUN else 250


@pytest.fixture(params=["embedded", "cluster"])
def deployment(request):
    """The settings of each deployment."""
    if request.param == "embedded":
        return {}
    return servers(*(request.getfixturevalue(name) for name in ("valkey", "mongo", "emptied_mongo_database")))


def most_in_a_second(instants):
    """The largest number of messages in any period of one second."""
    instants = sorted(instants)
    return max(bisect_left(instants, first + 1.0) - place for place, first in enumerate(instants))


def test_the_fullest_second_is_found_wherever_it_begins():
    assert most_in_a_second([0.0, 0.5, 0.9, 1.0, 1.4, 1.49, 3.0]) == 5  # from 0.5 on
    assert most_in_a_second([0.0, 1.0, 2.0]) == 1


@pytest.mark.parametrize(("limit", "emails"), [(100, MANY), (20, 80)])  # the second: far less than anything can do
async def test_no_second_at_the_mail_server_has_more_than_the_limit(tmp_path, deployment, limit, emails):
    async with email_producer(tmp_path, EMAIL_RATE_MAX=str(limit), **deployment) as producer:
        await producer.tenant("acme")
        await producer.hand_in("acme", emails)
        await producer.workers(3)
        messages = await producer.until(lambda found: len(found) >= emails)

    assert sorted(message.number for message in messages) == list(range(emails))
    assert most_in_a_second([message.at for message in messages]) <= limit


async def test_a_tenants_own_rate_spreads_its_emails_and_delays_no_other_tenant(tmp_path, deployment):
    own, emails, others = 5, 25, 10
    async with email_producer(tmp_path, EMAIL_RATE_MAX="100", **deployment) as producer:
        await producer.tenant("slow", rate=own)
        await producer.tenant("free")
        began = time.time()
        ids = await producer.hand_in("slow", emails)
        await producer.hand_in("free", others)
        await producer.workers(2)
        messages = await producer.until(lambda found: len(found) >= emails + others)
        entries = [await producer.settled(outbox_id) for outbox_id in ids]

    slow = [message.at for message in messages if message.tenant == "slow"]
    free = [message.at for message in messages if message.tenant == "free"]
    # Evenly spread: each email has its time, and the first time is not before the first email was submitted.
    too_early = [place for place, at in enumerate(sorted(slow)) if at < began + place / own]
    assert too_early == []
    assert max(free) < max(slow)
    assert (len(slow), len(free)) == (emails, others)
    assert {(entry.attempt_count, len(entry.attempts)) for entry in entries} == {(1, 1)}
