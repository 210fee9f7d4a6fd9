from __future__ import annotations

import base64
import json
import os
import pty
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.mailroom import TO, hand_in, send_all, to_joana

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def data(program, home):
    program("tenants", "add", "Acme")
    return home / "holdfast-data"


def how(program, outbox_id, kind) -> tuple[str, ...]:
    if kind == "recipientId":
        return "--recipient", program("emails", "show", outbox_id, "--json").json["recipientId"]
    if kind == "externalId":
        return "--recipient", "C-joana", "--tenant", "Acme"
    return "--recipient", TO


@pytest.mark.parametrize("kind", ["recipientId", "externalId", "address"])
def test_a_person_is_forgotten_and_the_second_time_there_is_nothing_to_do(program, data, kind):
    (done,) = hand_in(data, "Acme", to_joana())
    send_all(data)
    (waits,) = hand_in(data, "Acme", to_joana(delay=3_600_000))
    whom = how(program, done, kind)
    said = program("privacy", "erase", *whom, "--yes")
    assert said.code == 0
    assert "1 records, 2 emails" in said.err
    assert "1 emails that waited were cancelled" in said.err
    assert "joana" not in said.out + said.err
    for outbox_id, status in ((done, "SENT"), (waits, "CANCELLED")):
        shown = program("emails", "show", outbox_id, "--json").json
        assert (shown["status"], shown["to"], shown["subject"]) == (status, None, None)
    again = program("privacy", "erase", *whom, "--yes")
    assert again.code == 0
    assert "nothing to erase" in again.err


def test_the_counts_come_as_json(program, data):
    hand_in(data, "Acme", to_joana())
    said = program("privacy", "erase", "--recipient", TO, "--yes", "--json")
    assert said.json == {"recipients": 1, "emails": 1, "withdrawn": 1, "jobs": 1, "contents": 1} | {
        "messages": 0,
        "logEmptied": True,
        "inWork": [],
    }


def test_neither_a_mail_file_nor_the_write_ahead_log_keeps_an_erased_person(program, data):
    """A running server keeps the log: only the last process that closes the database removes it."""
    hand_in(data, "Acme", to_joana())
    send_all(data)
    (mail,) = (data / "mail").iterdir()
    running = sqlite3.connect(data / "holdfast.db")
    try:
        running.execute("SELECT count(*) FROM ledger_entries").fetchone()
        hand_in(data, "Acme", to_joana(subject="another"))
        log = data / "holdfast.db-wal"
        assert TO.encode() in log.read_bytes()
        said = program("privacy", "erase", "--recipient", TO, "--yes", "--json").json
        assert (said["messages"], said["logEmptied"], said["jobs"]) == (1, True, 2)
        assert not mail.exists()
        assert log.read_bytes() == b""
        assert not [each for each in data.rglob("*") if each.is_file() and TO.encode() in each.read_bytes()]
    finally:
        running.close()


def test_nobody_is_forgotten_without_a_yes(program, data):
    (outbox_id,) = hand_in(data, "Acme", to_joana())
    said = program("privacy", "erase", "--recipient", TO)
    assert said.code == 2
    assert "--yes" in said.err
    assert program("emails", "show", outbox_id, "--json").json["to"] == "j***@e***.com"


@pytest.mark.parametrize(("answer", "code", "shown"), [("n", 1, "j***@e***.com"), ("y", 0, None)])
def test_on_a_terminal_it_asks_first_and_says_how_much_there_is(program, data, answer, code, shown):
    (outbox_id,) = hand_in(data, "Acme", to_joana())
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "privacy", "erase", "--recipient", TO],
            stdin=theirs,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HOLDFAST_DATA": str(data)},
            cwd=ROOT,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == code, done.stderr
    assert "1 records and 1 emails (1 of them waiting)" in done.stderr
    assert "joana" not in done.stdout + done.stderr
    assert program("emails", "show", outbox_id, "--json").json["to"] == shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--recipient", "canary"), "--recipient takes"),
        (("--recipient", "canary@"), "must be an email address"),
        ((), "--recipient"),
    ],
)
def test_whoever_cannot_be_meant_is_refused_with_a_sentence(program, data, arguments, words):
    said = program("privacy", "erase", "--yes", *arguments)
    assert said.code == 2
    assert words in said.err
    assert "canary" not in said.err


def test_personal_data_is_sealed_under_a_new_key(program, data, monkeypatch):
    hand_in(data, "Acme", to_joana())
    content = json.loads((data / "email-keys.json").read_text())
    assert "current key" in program("privacy", "rotate-keys").err

    fresh = base64.b64encode(bytes(range(50, 82))).decode()
    monkeypatch.setenv("EMAIL_PEPPER", content["pepper"])
    monkeypatch.setenv("EMAIL_KEYS", json.dumps(content["keys"] | {"second": fresh}))
    said = program("privacy", "rotate-keys")
    told = "2 values of 1 recipients and 1 contents are sealed with the current key now.\n"
    assert (said.code, said.err) == (0, told)

    monkeypatch.setenv("EMAIL_KEYS", json.dumps({"second": fresh}))
    assert program("privacy", "rotate-keys", "--json").json == {
        "values": 0,
        "recipients": 0,
        "contents": 0,
        "broken": [],
    }


def test_a_new_key_joins_the_data_folders_own_and_seals_from_then_on(program, data):
    hand_in(data, "Acme", to_joana())
    file = data / "email-keys.json"
    before = json.loads(file.read_text())
    said = program("privacy", "new-key", "--name", "second")
    assert said.code == 0
    after = json.loads(file.read_text())
    assert list(after["keys"]) == [*before["keys"], "second"]
    assert {**after, "keys": before["keys"]} == before
    assert file.stat().st_mode & 0o777 == 0o600
    assert after["keys"]["second"] not in said.out + said.err

    assert "2 values of 1 recipients and 1 contents" in program("privacy", "rotate-keys").err
    again = program("privacy", "new-key", "--name", "second")
    assert (again.code, "of this name already" in again.err) == (2, True)
    assert json.loads(file.read_text()) == after


def test_a_new_key_for_the_settings_is_printed_and_written_nowhere(program, data, monkeypatch):
    content = json.loads((data / "email-keys.json").read_text())
    monkeypatch.setenv("EMAIL_PEPPER", content["pepper"])
    monkeypatch.setenv("EMAIL_KEYS", json.dumps(content["keys"]))
    made = [program("privacy", "new-key", "--name", "third") for _ in range(2)]
    assert [said.code for said in made] == [0, 0]
    keys = [json.loads(said.out)["third"] for said in made]
    assert [len(base64.b64decode(key)) for key in keys] == [32, 32]
    assert keys[0] != keys[1]
    assert json.loads((data / "email-keys.json").read_text()) == content


def test_a_name_that_no_key_can_have_is_refused(program, data):
    said = program("privacy", "new-key", "--name", "a.b")
    assert said.code == 2
    assert "1 to 32 letters" in said.err


def test_a_key_that_is_missing_is_told_and_nothing_is_lost(program, data, monkeypatch):
    hand_in(data, "Acme", to_joana())
    content = json.loads((data / "email-keys.json").read_text())
    monkeypatch.setenv("EMAIL_PEPPER", content["pepper"])
    monkeypatch.setenv("EMAIL_KEYS", json.dumps({"other": base64.b64encode(bytes(range(50, 82))).decode()}))
    said = program("privacy", "rotate-keys")
    assert said.code == 1
    assert "3 values cannot be opened" in said.err
    monkeypatch.delenv("EMAIL_PEPPER")
    monkeypatch.delenv("EMAIL_KEYS")
    assert "current key" in program("privacy", "rotate-keys").err
