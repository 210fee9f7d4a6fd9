"""The README's own examples: their code, run with their commands."""

import contextlib
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

from tests.support.markdown import complaint, texts
from tests.support.pages import text_pdf

README = Path(__file__).parents[2] / "README.md"


def blocks(language):
    return texts(README, language)


@pytest.fixture
def place(tmp_path):
    """A folder with the example in ``mymodule.py``, and an environment for the program."""
    example, inside, client = blocks("python")
    (tmp_path / "mymodule.py").write_text(example, encoding="utf-8")
    (tmp_path / "inside.py").write_text(inside, encoding="utf-8")
    (tmp_path / "sender.py").write_text(client, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG", "PYTHONPATH"}}
    environment |= {
        "HOLDFAST_DATA": str(tmp_path / "data"),
        "API_PORT": "0",
        "OPERATOR_TOKEN": secrets.token_urlsafe(32),
        "HOLDFAST_APP": "mymodule:app",
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


def python(place, program):
    folder, environment = place
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextlib.contextmanager
def up(place):
    """``holdfast up``, as the README starts it; its port."""
    folder, environment = place
    started = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "up", "--json"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield json.loads(started.stdout.readline())["address"].rsplit(":", 1)[1]
    finally:
        started.send_signal(signal.SIGTERM)
        assert started.wait(30) == 0
        started.stdout.close()


def test_the_example_workload_runs_as_written(place):
    folder, _ = place
    (submit,) = re.findall(r"holdfast submit issue_invoice '(\{.*?\})'", README.read_text(encoding="utf-8"))
    with up(place) as port:
        sent = holdfast(place, "submit", "issue_invoice", submit, API_PORT=port)
        refused = holdfast(
            place, "submit", "issue_invoice", '{"number": "2026-009", "customer": "A", "cents": 0}', API_PORT=port
        )
        assert (sent.returncode, refused.returncode) == (0, 0), sent.stderr + refused.stderr

        def letters():
            listed = holdfast(place, "dlq", "list", "--json")
            return [letter["terminalReasonCode"] for letter in json.loads(listed.stdout)["items"]]

        eventually(letters, ["NOTHING_TO_PAY"])
        eventually(lambda: invoices(folder), [("2026-001", "ACME", 1299)])
        shown = holdfast(place, "jobs", "show", "2026-001")
        assert "2026-001.pdf" in shown.stdout
        schedules = holdfast(place, "schedules", "list", "--json")
        assert "0 7 * * 1-5" in schedules.stdout


def test_work_is_handed_in_from_a_program_as_written(place):
    assert python(place, "import asyncio, inside; print(asyncio.run(inside.main()).file)") == "2026-002.pdf"


def test_work_is_handed_in_over_http_as_written(place):
    tenant = holdfast(place, "tenants", "add", "Acme")
    key = holdfast(place, "keys", "create", "Acme").stdout.strip()
    assert tenant.returncode == 0
    with up(place) as port:
        (place[0] / "sender.py").write_text((place[0] / "sender.py").read_text().replace(":8080", f":{port}"))

        assert python(place, f"import sender; print(sender.issue({key!r}))") == "2026-003.pdf"


def invoices(folder):
    import sqlite3

    connection = sqlite3.connect(folder / "data" / "holdfast.db")
    try:
        return connection.execute("SELECT number, customer, body ->> '$.cents' FROM invoices").fetchall()
    finally:
        connection.close()


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


def test_every_command_and_option_of_the_readme_exists():
    typed = [
        words for block in blocks("console") for words in re.findall(r"(?<![/\w])holdfast ([a-z][^#&)\n]*)", block)
    ]

    assert [problem for words in typed if (problem := complaint(words.split()))] == []
