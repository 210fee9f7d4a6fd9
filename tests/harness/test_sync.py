"""The harness without async, and without an event loop of the test."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.contracts.ledger import Cancelled
from holdfast.contracts.submissions import JobFailed
from holdfast.testing import Harness
from tests.harness.shop import Busy, Order, Synced


def test_every_verb_without_await(shop):
    def script(order, ctx):
        if order.number == "bad" and not repaired:
            raise Busy
        ctx.submit(shop.send_mail, order)

    repaired = []
    shop.script = script
    with Harness(shop.app).sync() as h:
        start = h.now
        order = h.submit(shop.sync_order, Order(number="1"))
        h.settle()
        assert h.result(order) == Synced(number="1", attempt=1)
        assert h.record("orders", "1")["state"] == "synced"
        assert h.sent(shop.send_mail) == [Order(number="1")]

        bad = h.submit(shop.sync_order, Order(number="bad"))
        h.advance("5m")
        h.advance_to(start + timedelta(minutes=6))
        with pytest.raises(JobFailed):
            h.result(bad)
        (letter,) = h.dead_letters(bad)
        repaired.append(True)
        h.replay(letter)
        h.crash()
        h.advance("1m")
        assert h.job(bad).attempt_count == 2
        assert [each.key for each in h.jobs(shop.sync_order)] == ["1", "bad"]

        late = h.submit(shop.sync_order, Order(number="2"), delay="1m")
        assert h.cancel(late) is Cancelled.ENDS


def test_a_crash_that_did_not_happen_fails_the_test(shop):
    with pytest.raises(AssertionError), Harness(shop.app).sync() as h:
        h.crash()
