from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.contracts.tenants import KeyRefused
from holdfast.wiring import open_system
from tests.cli.commands import APP, settings


@pytest.fixture
def acme(program):
    return program("tenants", "add", "Acme").out.strip()


def opens(home, key: str) -> bool:
    """Whether the key lets somebody in, by the engine itself."""

    async def asked() -> bool:
        async with open_system(settings(home / "holdfast-data")) as system:
            try:
                await system.tenants.authenticate(key)
            except KeyRefused:
                return False
            return True

    return asyncio.run(asked())


def test_a_key_is_shown_once_and_works(program, home, acme):
    said = program("keys", "create", "Acme", "--label", "boletos")
    key = said.out.strip()
    assert re.fullmatch(r"hf_[0-9a-f]{16}_[A-Za-z0-9_-]{43}", key)
    assert key not in said.err
    assert "cannot be shown again" in said.err
    assert opens(home, key)
    listed = program("keys", "list")
    assert "boletos" in listed.out
    assert key not in listed.out
    assert key.split("_", 2)[2] not in program("keys", "list", "--json").out


def test_a_key_can_be_for_one_thing_only_and_for_a_time(program, acme):
    said = program("keys", "create", acme, "--scope", "email:read", "--expires", "30", "--json").json
    assert said["scopes"] == ["email:read"]
    assert said["createdBy"] == "ana"
    left = datetime.fromisoformat(said["notAfter"]) - datetime.now(UTC)
    assert timedelta(days=29) < left <= timedelta(days=30)


def test_a_key_may_be_for_the_jobs_of_one_workload(program, acme):
    scopes = [part for each in ("jobs:write:parcels", "jobs:read") for part in ("--scope", each)]
    said = program("keys", "create", acme, *scopes, "--app", APP, "--json")
    assert said.json["scopes"] == ["jobs:read", "jobs:write:parcels"]
    everything = program("keys", "create", acme, "--json").json["scopes"]
    assert {"jobs:write", "jobs:read", "jobs:cancel", "email:send"} <= set(everything)


@pytest.mark.parametrize(
    ("app", "words"), [(("--app", APP), "can be bound to parcels, and to no other workload"), ((), "HOLDFAST_APP")]
)
def test_a_key_for_an_unknown_workload_is_refused_with_those_that_are_known(program, acme, app, words):
    said = program("keys", "create", acme, "--scope", "jobs:write:letters", *app)
    assert (said.code, program("keys", "list", "--json").json) == (2, [])
    assert words in said.err


@pytest.mark.parametrize("given", ["2999-01-31", "2999-01-31T00:00:00Z", "2999-01-31T01:00:00+01:00"])
def test_a_key_may_end_at_a_date(program, acme, given):
    said = program("keys", "create", "Acme", "--expires", given, "--json").json
    assert said["notAfter"] == "2999-01-31T00:00:00.000Z"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("Acme", "--expires", "0"), "1 to 3650 days"),
        (("Acme", "--expires", "2001-01-01"), "must be in the future"),
        (("Acme", "--expires", "soon"), "--expires takes an instant"),
        (("Acme", "--scope", "everything"), "--scope"),
    ],
)
def test_a_key_that_cannot_be_is_refused_with_a_sentence(program, acme, arguments, words):
    said = program("keys", "create", *arguments)
    assert said.code == 2
    assert words in said.err
    assert program("keys", "list", "--json").json == []


def test_a_key_for_nobody_is_refused(program, acme):
    said = program("keys", "create", "Nobody")
    assert said.code == 1
    assert "tenants list" in said.err


@pytest.mark.parametrize("whole", [True, False])
def test_a_revoked_key_opens_nothing(program, home, acme, whole):
    key = program("keys", "create", "Acme").out.strip()
    other = program("keys", "create", "Acme").out.strip()
    said = program("keys", "revoke", key if whole else key.split("_")[1])
    assert said.code == 0
    assert key not in said.out + said.err
    assert not opens(home, key)
    assert opens(home, other)
    states = {each["keyId"]: each["revokedAt"] is not None for each in program("keys", "list", "--json").json}
    assert states == {key.split("_")[1]: True, other.split("_")[1]: False}


def test_an_unknown_key_cannot_be_revoked(program, acme):
    said = program("keys", "revoke", "0" * 16)
    assert said.code == 1
    assert "no such key" in said.err


def test_keys_are_listed_for_one_tenant(program, acme):
    program("tenants", "add", "Other")
    program("keys", "create", "Acme", "--label", "one")
    program("keys", "create", "Other", "--label", "two")
    assert [each["label"] for each in program("keys", "list", "--json").json] == ["one", "two"]
    assert [each["label"] for each in program("keys", "list", "--tenant", "Other", "--json").json] == ["two"]
