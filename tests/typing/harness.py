"""What a type checker knows about tests with the harness. Checked by test_typing.py, never run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, assert_type

from holdfast import DeadLetter, LedgerEntry, Submission
from holdfast.testing import Harness, SyncHarness
from tests.typing.embedding import Invoice, Pdf, app, issue_invoice


async def test_an_invoice() -> None:
    async with Harness(app, start=datetime(2026, 1, 1), settings={"worker_lease_seconds": 5}) as h:  # noqa: DTZ001 - never run
        submission = await h.submit(issue_invoice, Invoice(number="1"), delay="1m")
        assert_type(submission, Submission[Pdf])
        await h.settle()
        await h.advance("1h")
        await h.advance(timedelta(hours=1))
        h.crash()
        assert_type(await h.result(submission), Pdf)
        assert_type(await h.job(submission), LedgerEntry)
        assert_type(await h.sent(issue_invoice), list[Invoice])
        assert_type(await h.dead_letters(submission), list[DeadLetter])
        assert_type(await h.record("invoices", "1"), Mapping[str, Any])
        assert_type(h.now, datetime)


def test_another_invoice() -> None:
    with Harness(app).sync() as h:
        assert_type(h, SyncHarness)
        submission = h.submit(issue_invoice, Invoice(number="1"))
        h.advance("1h")
        assert_type(h.result(submission), Pdf)
        assert_type(h.sent(issue_invoice), list[Invoice])
