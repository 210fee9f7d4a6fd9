"""Tables on terminals of different widths."""

from __future__ import annotations

import pytest

from holdfast.cli import output
from holdfast.cli.output import show_table

COLUMNS = ("id", "status", "workload", "key", "reason", "failed")
ROW = (
    "dl_c59398eef7fa62718eaa",
    "pending",
    "orders",
    "shop-7:order-42",
    "TIMEOUT_EXHAUSTED",
    "2026-11-18 16:03:06Z",
)


@pytest.fixture
def table(monkeypatch, capsys):
    def shown(width: int) -> list[str]:
        monkeypatch.setattr(output, "_WIDTH_IN_A_FILE", width)
        show_table(COLUMNS, [ROW], whole=("id", "status", "failed"))
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return shown


def test_a_wide_terminal_gets_a_table(table):
    head, _, row = table(160)
    assert head.split() == list(COLUMNS)
    assert [cell.strip() for cell in row.split("   ")] == list(ROW)


def test_a_terminal_that_is_a_little_narrow_gets_smaller_gaps(table):
    head, _, row = table(102)
    assert head.split() == list(COLUMNS)
    assert all(cell in row for cell in ROW)


def test_a_narrow_terminal_gets_two_lines_for_a_row_and_nothing_is_cut(table):
    first, second = table(80)
    assert first == "dl_c59398eef7fa62718eaa  pending  2026-11-18 16:03:06Z"
    assert second == "  workload: orders; key: shop-7:order-42; reason: TIMEOUT_EXHAUSTED"
    text = "".join(table(40)).replace(" ", "")
    assert all(cell.replace(" ", "") in text for cell in ROW)


def test_cells_without_a_value_are_left_out_of_the_two_lines(monkeypatch, capsys):
    monkeypatch.setattr(output, "_WIDTH_IN_A_FILE", 20)
    show_table(("name", "a long note", ""), [("courier", None, "paused by ana")], whole=("name",))
    assert capsys.readouterr().out.split("\n")[:2] == ["courier", "  paused by ana     "]
