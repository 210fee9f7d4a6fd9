from __future__ import annotations

import pytest

from tests.cli.mailroom import hand_in, send_all, to_joana

UNKNOWN = "123e4567-e89b-52d3-a456-426614174000"
LATER = 3_600_000


@pytest.fixture
def data(program, home):
    program("tenants", "add", "Acme")
    program("tenants", "add", "Other")
    return home / "holdfast-data"


def test_emails_are_listed_newest_first_masked(program, data):
    ids = [hand_in(data, "Acme", to_joana())[0] for _ in range(3)]
    said = program("emails", "list", "--json")
    assert [each["outboxId"] for each in said.json["items"]] == ids[::-1]
    table = program("emails", "list")
    assert ids[0] in table.out
    assert "j***@e***.com" in table.out
    assert "joana.prado" not in said.out + table.out


def test_the_list_pages_and_can_be_narrowed(program, data):
    first, second = hand_in(data, "Acme", to_joana(), to_joana())
    (foreign,) = hand_in(data, "Other", to_joana())
    assert program("emails", "cancel", second).code == 0
    page = program("emails", "list", "--limit", "2", "--json").json
    rest = program("emails", "list", "--limit", "2", "--cursor", page["next"], "--json").json
    assert {each["outboxId"] for each in (*page["items"], *rest["items"])} == {first, second, foreign}

    def listed(*arguments):
        return [each["outboxId"] for each in program("emails", "list", "--json", *arguments).json["items"]]

    assert listed("--tenant", "Other") == [foreign]
    assert listed("--status", "CANCELLED") == [second]
    assert listed("--tenant", "Acme", "--status", "ENQUEUED") == [first]
    assert program("emails", "list", "--status", "SENT").err == "There is no such email.\n"


def test_an_email_is_shown_with_its_attempts(program, data):
    (outbox_id,) = hand_in(data, "Acme", to_joana(subject="Seu boleto"))
    waiting = program("emails", "show", outbox_id)
    assert "No worker has claimed it." in waiting.out
    send_all(data)
    said = program("emails", "show", outbox_id)
    assert said.code == 0
    for words in ("SENT", "Seu boleto", "j***@e***.com", "succeeded"):
        assert words in said.out
    assert "joana.prado" not in said.out
    assert program("emails", "show", outbox_id, "--json").json["status"] == "SENT"
    assert [each.name for each in (data / "mail").iterdir()] == [f"{outbox_id}.eml"]


def test_an_email_that_waits_is_cancelled_and_never_sent(program, data):
    (outbox_id,) = hand_in(data, "Acme", to_joana())
    assert program("emails", "cancel", outbox_id, "--json").json == {"outboxId": outbox_id, "status": "CANCELLED"}
    send_all(data)
    assert program("emails", "show", outbox_id, "--json").json["status"] == "CANCELLED"
    assert not (data / "mail").exists()
    assert program("emails", "cancel", outbox_id).code == 0


def test_an_email_that_was_sent_is_not_cancelled(program, data):
    (outbox_id,) = hand_in(data, "Acme", to_joana())
    send_all(data)
    said = program("emails", "cancel", outbox_id)
    assert said.code == 1
    assert "SENT" in said.err


@pytest.mark.parametrize("command", ["show", "cancel"])
def test_an_unknown_email_is_told(program, data, command):
    said = program("emails", command, UNKNOWN)
    assert said.code == 1
    assert "no such email" in said.err


def test_an_unknown_tenant_or_status_is_refused(program, data):
    assert program("emails", "list", "--tenant", "Nobody").code == 1
    assert program("emails", "list", "--status", "LOST").code == 2


def test_no_emails_yet(program, data):
    assert program("emails", "list").err == "There are no emails yet.\n"
