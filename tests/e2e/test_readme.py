"""The README's own example: its code, run with its commands."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def place(tmp_path):
    """A folder with the example in ``mymodule.py``, and an environment for the program."""
    (example,) = [block for block in blocks("python") if "app = App(" in block]
    (tmp_path / "mymodule.py").write_text(example, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG", "PYTHONPATH"}}
    environment |= {
        "HOLDFAST_DATA": str(tmp_path / "data"),
        "API_PORT": "0",
        "OPERATOR_TOKEN": secrets.token_urlsafe(32),
    }
    return tmp_path, environment


def holdfast(place, *arguments, **more):
    folder, environment = place
    command = [sys.executable, "-m", "holdfast", *arguments]
    return subprocess.run(
        command, cwd=folder, env={**environment, **more}, capture_output=True, text=True, check=False, timeout=60
    )


def eventually(look, wanted, seconds=30):
    deadline = time.monotonic() + seconds
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, f"wanted {wanted}, still {seen}"
        time.sleep(0.1)


def test_the_example_workload_runs_as_written(place):
    folder, environment = place
    (submit,) = re.findall(r"holdfast submit invoices '(\{.*?\})'", README.read_text(encoding="utf-8"))
    up = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "up", "--app", "mymodule:app", "--json"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        port = json.loads(up.stdout.readline())["address"].rsplit(":", 1)[1]

        sent = holdfast(place, "submit", "invoices", submit, API_PORT=port)
        refused = holdfast(
            place, "submit", "invoices", '{"number": "2026-002", "customer": "A", "cents": 0}', API_PORT=port
        )
        assert (sent.returncode, refused.returncode) == (0, 0), sent.stderr + refused.stderr

        def letters():
            listed = holdfast(place, "dlq", "list", "--app", "mymodule:app", "--json")
            return [letter["terminalReasonCode"] for letter in json.loads(listed.stdout)["items"]]

        eventually(letters, ["NOTHING_TO_PAY"])
        eventually(lambda: invoices(folder), [("2026-001", "ACME", 1299)])
    finally:
        up.send_signal(signal.SIGTERM)
        assert up.wait(30) == 0
        up.stdout.close()


def invoices(folder):
    import sqlite3

    connection = sqlite3.connect(folder / "data" / "holdfast.db")
    try:
        return connection.execute("SELECT number, customer, body ->> '$.cents' FROM invoices").fetchall()
    finally:
        connection.close()


def test_the_example_is_about_twenty_lines_of_workload(place):
    folder, _ = place
    lines = (folder / "mymodule.py").read_text(encoding="utf-8").split("class Invoices", 1)[1]
    assert len([line for line in lines.splitlines() if line.strip()]) <= 20


def test_every_command_of_the_readme_exists():
    known = {"init", "up", "api", "worker", "send", "submit", "events", "doctor", "dlq", "config", "migrate"}
    used = {words.split()[0] for block in blocks("console") for words in re.findall(r"holdfast (\w[\w ]*)", block)}
    assert used <= known
    for command in used:
        result = subprocess.run(
            [sys.executable, "-m", "holdfast", command, "--help"], capture_output=True, check=False, timeout=60
        )
        assert result.returncode == 0, command
