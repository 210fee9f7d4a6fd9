from __future__ import annotations

import re

import pytest

from holdfast.webhooks import signing_key

ID = "789e4567-e89b-12d3-a456-426614174999"


def test_the_first_tenant_is_added_on_an_empty_folder(program, home):
    said = program("tenants", "add", "Acme")
    assert said.code == 0
    assert (home / "holdfast-data" / "holdfast.db").is_file()
    assert f"holdfast keys create {said.out.strip()}" in said.err
    assert program("tenants", "list", "--json").json == [
        {"companyId": said.out.strip(), "name": "Acme", "sender": None, "ratePerSecond": None, "active": True}
    ]


def test_a_tenant_may_have_an_id_a_sender_and_a_rate(program):
    said = program("tenants", "add", "Acme", "--id", ID, "--from", "Acme <a@acme.example>", "--rate", "5", "--json")
    assert said.json == {
        "companyId": ID,
        "name": "Acme",
        "sender": "Acme <a@acme.example>",
        "ratePerSecond": 5,
        "active": True,
    }
    listed = program("tenants", "list").out
    assert ID in listed
    assert "Acme <a@acme.example>" in listed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("Acme", "--id", "17"), "id: must be a UUID"),
        (("Acme", "--from", "nobody"), "--from must be one address"),
        (("  ",), "name: must not be empty"),
        (("Acme", "--rate", "0"), "--rate"),
    ],
)
def test_a_tenant_that_cannot_be_is_refused_with_a_sentence(program, home, arguments, words):
    said = program("tenants", "add", *arguments)
    assert said.code == 2
    assert words in said.err
    assert said.out == ""


def test_a_name_is_given_once(program):
    program("tenants", "add", "Acme")
    said = program("tenants", "add", "Acme")
    assert said.code == 2
    assert "already" in said.err


# --- what a tenant may use --------------------------------------------------------------------------------------------

DEFAULTS = {
    "requestsPerSecond": 2_000,
    "pending": 1_250,
    "waitingJobs": 100_000,
    "storedBytes": 10 * 1024**3,
    "streams": 20,
}


def test_a_tenant_is_deactivated_and_activated_by_its_id_or_name(program):
    program("tenants", "add", "Acme", "--id", ID)
    said = program("tenants", "deactivate", "Acme")
    assert said.code == 0
    assert f"holdfast tenants activate {ID}" in said.err
    assert "inactive" in program("tenants", "list").out
    assert program("tenants", "activate", ID, "--json").json["active"] is True
    assert "inactive" not in program("tenants", "list").out


def test_limits_are_shown_set_and_forgotten(program):
    program("tenants", "add", "Acme", "--id", ID)
    assert program("tenants", "limits", "Acme", "--json").json == {"companyId": ID, "limits": DEFAULTS, "own": []}
    program("tenants", "limits", "Acme", "--requests-per-second", "50", "--stored-bytes", "1000000")
    said = program("tenants", "limits", "Acme", "--waiting-jobs", "10000", "--json").json
    assert said["limits"] == DEFAULTS | {"requestsPerSecond": 50, "waitingJobs": 10_000, "storedBytes": 1_000_000}
    assert said["own"] == ["requestsPerSecond", "storedBytes", "waitingJobs"]
    shown = program("tenants", "limits", "Acme").out
    assert re.search(r"requests per second +50 ", shown)
    assert "the tenant's own" in shown
    said = program("tenants", "limits", "Acme", "--default", "--streams", "5", "--json").json
    assert said == {"companyId": ID, "limits": DEFAULTS | {"streams": 5}, "own": ["streams"]}


def test_usage_shows_what_the_store_knows(program):
    program("tenants", "add", "Acme", "--id", ID)
    usage = program("tenants", "usage", "Acme", "--json").json
    assert (usage["companyId"], usage["active"]) == (ID, True)
    assert usage["usage"] == {
        "requestsPerSecond": {"used": None, "limit": 2_000},
        "pending": {"used": None, "limit": 1_250},
        "waitingJobs": {"used": 0, "limit": 100_000},
        # Documents keep files: their settings have the limit.
        "storedBytes": {"used": 0, "limit": 10 * 1024**3},
        "streams": {"used": None, "limit": 20},
    }
    assert "counted in each API process" in program("tenants", "usage", "Acme").out


@pytest.mark.parametrize("command", ["deactivate", "activate", "limits", "usage"])
def test_a_tenant_that_is_not_there_is_not_found(program, empty_ledger, command):
    said = program("tenants", command, "nobody")
    assert said.code != 0
    assert "no such tenant" in said.err


def test_listing_nobody_says_how_to_begin(program, empty_ledger):
    said = program("tenants", "list")
    assert said.code == 0
    assert "holdfast tenants add" in said.err


def test_listing_a_folder_without_a_ledger_is_refused(program):
    assert program("tenants", "list").code == 2


@pytest.mark.parametrize("name", ["tenants", "keys", "suppressions", "privacy", "emails"])
def test_the_help_of_every_command_can_be_read(program, name):
    said = program(name, "--help")
    assert said.code == 0
    assert "Usage" in said.out


def test_a_secret_for_callbacks_is_shown_once(program, home, monkeypatch):
    program("tenants", "add", "Acme")
    missing = program("tenants", "rotate-callback-secret", "Acme")
    assert missing.code != 0
    assert "DOCUMENT_CALLBACK_SECRET" in missing.err
    monkeypatch.setenv("DOCUMENT_CALLBACK_SECRET", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")
    first = program("tenants", "rotate-callback-secret", "Acme")
    again = program("tenants", "rotate-callback-secret", "Acme", "--former-days", "0", "--json").json
    assert (first.code, first.out[:6], len(signing_key(first.out.strip()))) == (0, "whsec_", 32)
    assert (again["tenant"], again["formerDays"], again["secret"] != first.out.strip()) == ("Acme", 0, True)
    assert again["secret"] not in program("tenants", "list", "--json").out
    assert program("tenants", "rotate-callback-secret", "Nobody").code != 0
