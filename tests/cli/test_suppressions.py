from __future__ import annotations

import pytest

ADDRESS = "joana.prado@example.com"


@pytest.fixture(autouse=True)
def _ledger(empty_ledger):
    """An empty ledger in the default data folder."""


def test_an_address_is_added_listed_and_removed_and_never_shown(program):
    said = [
        program("suppressions", "add", ADDRESS, "--detail", f"asked us: {ADDRESS}"),
        program("suppressions", "list"),
        program("suppressions", "list", "--json"),
    ]
    assert [each.code for each in said] == [0, 0, 0]
    assert "joana" not in "".join(each.out + each.err for each in said)
    assert said[0].err == "j***@e***.com gets no more emails.\n"
    (item,) = said[2].json["items"]
    assert (item["address"], item["reason"], item["source"]) == ("j***@e***.com", "MANUAL", "operator ana")
    assert len(item["addressHash"]) == 11

    removed = program("suppressions", "remove", ADDRESS.upper())
    assert (removed.code, removed.err) == (0, "j***@e***.com gets emails again.\n")
    assert program("suppressions", "list", "--json").json == {"items": [], "next": None}
    assert "No address" in program("suppressions", "list").err


def test_the_list_pages_and_can_be_narrowed(program):
    for number in range(3):
        program("suppressions", "add", f"{number}@example.com")
    program("suppressions", "add", "b@example.com", "--reason", "BOUNCE")
    first = program("suppressions", "list", "--limit", "3", "--json").json
    rest = program("suppressions", "list", "--limit", "3", "--cursor", first["next"], "--json").json
    assert (len(first["items"]), len(rest["items"]), rest["next"]) == (3, 1, None)
    narrowed = program("suppressions", "list", "--reason", "BOUNCE", "--json").json
    assert [each["reason"] for each in narrowed["items"]] == ["BOUNCE"]


@pytest.mark.parametrize("command", ["add", "remove"])
def test_what_is_no_address_is_refused_without_repeating_it(program, command):
    said = program("suppressions", command, "canary@")
    assert said.code == 2
    assert "ADDRESS must be an email address" in said.err
    assert "canary" not in said.err


def test_removing_what_is_not_on_the_list_is_told(program):
    said = program("suppressions", "remove", ADDRESS)
    assert said.code == 1
    assert "not on the list" in said.err
    assert "joana" not in said.err
