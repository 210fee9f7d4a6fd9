"""The log: one line for each event, and nothing private in it."""

from __future__ import annotations

import io
import json

from holdfast.telemetry.logs import LogExporter


def test_what_a_handler_says_is_one_line_at_info_without_an_address_at_any_depth():
    written = io.StringIO()
    facts = {"jobId": "7", "to": "user@example.com", "recipient": {"email": "user@example.com", "more": {"n": 1}}}

    LogExporter("info", "json", written)("Processing email job", facts)

    (line,) = written.getvalue().splitlines()
    told = json.loads(line)
    assert (told["event"], told["level"], told["jobId"]) == ("Processing email job", "info", "7")
    assert told["to"] == "u***@e***.com"
    assert told["recipient"] == {"email": "u***@e***.com", "more": {"n": 1}}
