"""For the commands of features: options, tables, messages, and how to open the ledger. Public."""

from __future__ import annotations

from holdfast.cli import options
from holdfast.cli.failures import INTERRUPTED, MISUSED, REFUSED, Stop
from holdfast.cli.opening import find_records, open_feature, settings_with
from holdfast.cli.options import content, instant, json_object, user_name
from holdfast.cli.output import (
    console,
    heading,
    moment,
    print_json,
    print_line,
    printable,
    progress,
    require_item,
    say,
    show_attempts,
    show_document,
    show_facts,
    show_item,
    show_list,
    show_table,
)
from holdfast.cli.posting import Answer, base_url, connected, post, report
from holdfast.cli.unwinding import signals_unwind, signals_wait

__all__ = [
    "INTERRUPTED",
    "MISUSED",
    "REFUSED",
    "Answer",
    "Stop",
    "base_url",
    "connected",
    "console",
    "content",
    "find_records",
    "heading",
    "instant",
    "json_object",
    "moment",
    "open_feature",
    "options",
    "post",
    "print_json",
    "print_line",
    "printable",
    "progress",
    "report",
    "require_item",
    "say",
    "settings_with",
    "show_attempts",
    "show_document",
    "show_facts",
    "show_item",
    "show_list",
    "show_table",
    "signals_unwind",
    "signals_wait",
    "user_name",
]
