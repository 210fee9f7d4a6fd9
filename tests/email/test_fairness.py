"""Tenants take turns: how many messages of other tenants are sent before those of a tenant with only a few."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.email.producer import email_producer, servers
from tests.support.long_run import LONG_RUN

# The tests check an order, not a speed.
pytestmark = [pytest.mark.slow, pytest.mark.chaos]  # `make chaos` sends more


@pytest.fixture(params=["embedded", "cluster"])
def deployment(request):
    """The settings of each deployment."""
    if request.param == "embedded":
        return {}
    return servers(*(request.getfixturevalue(name) for name in ("valkey", "mongo", "emptied_mongo_database")))


def of(tenant, messages):
    return [place for place, message in enumerate(messages) if message.tenant == tenant]


async def test_ten_emails_do_not_wait_for_another_tenants_backlog(tmp_path, deployment):
    backlog, enough = (2_000, 300) if LONG_RUN else (400, 150)
    async with email_producer(tmp_path, EMAIL_RATE_MAX="100", **deployment) as producer:
        await producer.tenant("big")
        await producer.tenant("small")
        await producer.hand_in("big", backlog)
        await producer.workers(2)
        await producer.until(lambda found: len(found) >= 50)
        await producer.hand_in("small", 10)
        accepted = len(producer.messages())
        messages = await producer.until(lambda found: len(of("small", found)) == 10 or len(found) >= accepted + enough)

    places = of("small", messages)
    assert len(places) == 10
    assert places[-1] - accepted < enough  # of many more that waited before them


async def test_tenants_with_equal_backlogs_get_equal_shares(tmp_path, deployment):
    each, looked_at = (200, 300) if LONG_RUN else (100, 150)
    async with email_producer(tmp_path, EMAIL_RATE_MAX="100", **deployment) as producer:
        for name in ("first", "second", "third"):
            await producer.tenant(name)
            await producer.hand_in(name, each)
        await producer.workers(2)
        messages = await producer.until(lambda found: len(found) >= looked_at)

    shares = Counter(message.tenant for message in messages[:looked_at])
    assert set(shares) == {"first", "second", "third"}
    assert max(shares.values()) <= 1.5 * min(shares.values())


async def test_an_urgent_email_passes_the_backlog_of_its_own_tenant(tmp_path, deployment):
    async with email_producer(tmp_path, EMAIL_RATE_MAX="100", **deployment) as producer:
        await producer.tenant("acme")
        await producer.hand_in("acme", 300)
        await producer.workers(1)
        await producer.until(lambda found: len(found) >= 20)
        await producer.hand_in("acme", 1, priority=1)
        accepted = len(producer.messages())
        messages = await producer.until(
            lambda found: any(message.number == 300 for message in found) or len(found) >= accepted + 100
        )

    (place,) = (place for place, message in enumerate(messages) if message.number == 300)
    assert place - accepted < 100  # of more than 200 that waited before it
