"""For the commands of features: options, tables, messages, and how to open the ledger. Public."""

from __future__ import annotations

from holdfast.cli import options
from holdfast.cli.arguments import content, instant, json_object
from holdfast.cli.deciding import user_name
from holdfast.cli.events import show_attempts
from holdfast.cli.failures import INTERRUPTED, MISUSED, REFUSED, Stop
from holdfast.cli.opening import open_feature
from holdfast.cli.output import print_json, print_line, printable, say
from holdfast.cli.posting import Answer, base_url, connected, post, report
from holdfast.cli.settings import settings_with
from holdfast.cli.tables import console, heading, moment, progress, show_document, show_facts, show_table
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
    "say",
    "settings_with",
    "show_attempts",
    "show_document",
    "show_facts",
    "show_table",
    "signals_unwind",
    "signals_wait",
    "user_name",
]
