"""The README's own example: its code, run with its commands."""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.cli import COMMANDS, main
from holdfast.installed import installed_features
from tests.support.pages import text_pdf

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


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A folder that looks like a checkout after ``make install``: the program is at ``.venv/bin/holdfast``."""
    folder = tmp_path_factory.mktemp("checkout")
    program = folder / ".venv" / "bin" / "holdfast"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "PYTHONPATH"}}
    return folder, environment | {"LANG": "C.UTF-8"}


@pytest.fixture(scope="module")
def shell(checkout):
    """Runs what the README says while ``holdfast up`` runs there, at a port of its own."""
    folder, environment = checkout

    def run(script, **more):
        done = subprocess.run(
            ["bash", "-euc", script],
            cwd=folder,
            env=environment | more,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(".venv/bin/holdfast init")
    up = subprocess.Popen(
        [".venv/bin/holdfast", "up", "--json"],
        cwd=folder,
        env=environment | {"API_PORT": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        port = json.loads(up.stdout.readline())["address"].rsplit(":", 1)[1]
        yield lambda script, **more: run(script.replace(":8080", f":{port}"), API_PORT=port, **more)
    finally:
        up.send_signal(signal.SIGTERM)
        assert up.wait(30) == 0
        up.stdout.close()


def commands(block):
    """What a console block tells to type, as one script."""
    return "\n".join(line.removeprefix("$ ") for line in block.splitlines())


NEEDS_CURL = pytest.mark.skipif(
    shutil.which("curl") is None, reason="The README uses curl, which is not installed here."
)


@NEEDS_CURL
def test_an_email_is_sent_with_the_commands_of_the_readme(checkout, shell):
    folder, _ = checkout
    (block,) = [each for each in blocks("console") if "/v1/email/send" in each]
    typed = commands(block)
    tenant, request, look = typed.partition("curl ")[0], *re.split(r"\n(?=\.venv/bin/holdfast emails)", typed)

    first = json.loads(shell(request).splitlines()[-1])
    eventually(lambda: "SENT" in shell(".venv/bin/holdfast emails list"), wanted=True)
    shown = shell(look)

    assert first["duplicate"] is False
    assert "m***@e***.com" in shown
    assert "To: maria@example.com" in shown
    assert f"Message-ID: <{first['outboxId']}@" in shown

    again = tenant.replace("tenants add Acme ", "tenants list ") + "curl " + request.partition("curl ")[2]
    second = json.loads(shell(again).splitlines()[-1])
    assert (second["outboxId"], second["duplicate"]) == (first["outboxId"], True)
    assert len(list((folder / "holdfast-data" / "mail").glob("*.eml"))) == 1


@NEEDS_CURL
def test_a_document_is_read_with_the_commands_of_the_readme(checkout, shell):
    folder, _ = checkout
    (folder / "letter.pdf").write_bytes(text_pdf(["Dear Maria, the lamp burns again."]))
    (alone,) = [each for each in blocks("console") if "documents run" in each]
    (through,) = [each for each in blocks("console") if "documents submit" in each]
    shell(".venv/bin/holdfast tenants add Readers")
    key = shell(".venv/bin/holdfast keys create Readers").strip()

    text = shell(commands(alone))
    submit, curl, look = re.split(r"\n(?=curl )|\n(?=\.venv/bin/holdfast documents list)", commands(through))
    submitted = shell(submit, KEY=key)
    again = json.loads(shell(curl, KEY=key))

    assert text == submitted
    assert "the lamp burns again" in text
    assert (again["status"], again["cached"], again["result"]["pages"]) == ("COMPLETED", True, 1)
    assert shell(look).count("COMPLETED") == 2


def test_every_command_of_the_readme_exists(capsys):
    brought = [command for feature in installed_features() for command in feature.commands]
    known = {entry.name for entry in (*COMMANDS, *brought)}
    used = {words.split()[0] for block in blocks("console") for words in re.findall(r"holdfast (\w[\w ]*)", block)}
    assert used <= known
    for command in used:
        assert main([command, "--help"]) == 0
        assert f"holdfast {command}" in capsys.readouterr().out
