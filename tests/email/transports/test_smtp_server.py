"""The mail server of the tests, in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.features.email.transports.port import OutcomeUnknown, Refused
from holdfast.features.email.transports.smtp import SmtpOptions, SmtpTransport
from tests.support.smtp_server import DROP_TAKEN, taken_in
from tests.support.waiting import eventually

from .messages import FIRST, SECOND, SENDER, a_message


async def test_a_server_in_its_own_process_records_what_it_accepts(tmp_path):
    port_file, log = tmp_path / "port", tmp_path / "log"
    rules = [
        {"stage": "rcpt", "action": "550 no", "match": "ghost@"},
        {"stage": "end", "action": DROP_TAKEN, "match": SECOND},
    ]
    command = [sys.executable, "-m", "tests.support.smtp_server", "--port-file", port_file, "--log", log]
    before = time.time()
    with subprocess.Popen(  # noqa: ASYNC220 - it starts at once
        [*command, "--rules", json.dumps(rules)], cwd=Path(__file__).parents[3]
    ) as process:
        try:
            await eventually(port_file.exists)
            options = SmtpOptions("127.0.0.1", int(port_file.read_text()), "none", keep=timedelta(seconds=5))
            transport = SmtpTransport(options)
            assert taken_in(log) == []
            plain, dropped = a_message(FIRST), a_message(SECOND)
            await transport.send(plain)
            with pytest.raises(Refused):
                await transport.send(a_message("ghost@example.com"))
            with pytest.raises(OutcomeUnknown):
                await transport.send(dropped)
            await transport.close()
        finally:
            process.terminate()
    lines = taken_in(log)
    assert [line["messageId"] for line in lines] == [plain.message_id, dropped.message_id]
    assert [line["recipients"] for line in lines] == [[FIRST], [SECOND]]
    assert {line["sender"] for line in lines} == {SENDER}
    assert all(before <= line["at"] <= time.time() for line in lines)
    assert process.returncode == 0
