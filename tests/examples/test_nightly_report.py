"""``examples/nightly-report``."""

from __future__ import annotations

from pathlib import Path

from holdfast.testing import Harness


def reports():
    return {file.name: file.read_text() for file in Path("reports").iterdir()}


async def test_each_day_has_its_report_and_each_sale_counts_once(load):
    program = load("nightly-report", "sales_report")
    async with Harness(program.app) as h:
        for number, cents in (("1", 500), ("2", 725), ("1", 500)):
            await h.submit(program.record_sale, program.Sale(number=number, cents=cents, at="2026-01-05T15:00:00Z"))
        # Already the 6th in London, and still the 5th in São Paulo.
        await h.submit(program.record_sale, program.Sale(number="3", cents=100, at="2026-01-06T02:59:00Z"))
        await h.advance("2d")

        assert len(await h.jobs(program.write_report)) == 2
    assert reports() == {
        "2026-01-05.txt": "2026-01-05: 3 sales, 13.25 in all\n",
        "2026-01-06.txt": "2026-01-06: 0 sales, 0.00 in all\n",
    }
