from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from tests.cli.commands import SECRET, TOKEN
from tests.support.settings import load


def test_init_writes_a_private_file_that_can_start(program, home, monkeypatch):
    said = program("init")
    path = home / "holdfast.toml"
    content = tomllib.loads(path.read_text())
    assert said.code == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert "holdfast up" in said.err
    assert content["operator_token"] not in said.out + said.err
    assert content["courier_secrets"]["courier-x"][0] not in said.out + said.err
    assert load({}, home).secret_problems() == []


def test_init_never_overwrites_unless_forced(program, home):
    path = home / "holdfast.toml"
    path.write_text("api_port = 9000\n")
    path.chmod(0o644)
    said = program("init")
    assert said.code == 2
    assert "--force" in said.err
    assert path.read_text() == "api_port = 9000\n"

    assert program("init", "--force").code == 0
    assert "operator_token" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in home.iterdir()] == ["holdfast.toml"]


def test_init_writes_where_holdfast_will_look(program, home, monkeypatch):
    monkeypatch.setenv("HOLDFAST_CONFIG", str(home / "elsewhere.toml"))
    assert program("init").code == 0
    assert (home / "elsewhere.toml").exists()
    assert not (home / "holdfast.toml").exists()


def test_init_into_a_folder_that_is_not_there(program, home, monkeypatch):
    monkeypatch.setenv("HOLDFAST_CONFIG", str(home / "no" / "holdfast.toml"))
    for force in ((), ("--force",)):
        said = program("init", *force)
        assert said.code == 2
        assert "No such file or directory" in said.err


def test_config_show_tells_origins_and_masks_secrets(program, home, monkeypatch):
    (home / "holdfast.toml").write_text("api_port = 9000\n")
    rows = {row["name"]: row for row in program("config", "show", "--json").json}
    assert (rows["API_PORT"]["value"], rows["API_PORT"]["origin"]) == ("9000", "holdfast.toml")
    assert rows["OPERATOR_TOKEN"]["origin"] == "environment"
    assert rows["API_HOST"]["origin"] == "default"
    table = program("config", "show").out
    assert "courier-x: 1 x ****" in table
    assert SECRET not in table
    assert TOKEN not in table


@pytest.mark.parametrize("command", [("config", "show"), ("up",), ("dlq", "list"), ("send",), ("submit", "x", "{}")])
def test_every_problem_of_the_settings_is_told_at_once(program, monkeypatch, command):
    monkeypatch.setenv("API_PORT", "many")
    monkeypatch.setenv("LOG_LEVEL", "loud")
    monkeypatch.delenv("OPERATOR_TOKEN")
    said = program(*command)
    assert said.code == 2
    assert "API_PORT" in said.err
    assert "LOG_LEVEL" in said.err


def test_config_show_takes_the_data_folder_as_other_commands_do(program, home, monkeypatch):
    monkeypatch.setenv("HOLDFAST_DATA", "from-the-environment")
    rows = {row["name"]: row for row in program("config", "show", "--data", "given", "--json").json}
    assert (rows["HOLDFAST_DATA"]["value"], rows["HOLDFAST_DATA"]["origin"]) == ("given", "--data")
    assert rows["API_HOST"]["origin"] == "default"

    rows = {row["name"]: row for row in program("config", "show", "--json").json}
    assert (rows["HOLDFAST_DATA"]["value"], rows["HOLDFAST_DATA"]["origin"]) == (
        "from-the-environment",
        "environment",
    )


def a_file(home):
    (home / "taken").write_text("a file")
    return home / "taken"


def below_a_file(home):
    return a_file(home) / "data"


def where_the_system_lets_nobody_write(home):
    return Path("/proc/holdfast-data")


@pytest.mark.parametrize("place", [a_file, below_a_file, where_the_system_lets_nobody_write])
@pytest.mark.parametrize("command", [("up", "--port", "0"), ("migrate",), ("tenants", "add", "Shop")])
def test_a_data_folder_that_cannot_be_used_is_refused_by_the_name_of_its_setting(program, home, place, command):
    folder = place(home)

    said = program(*command, "--data", str(folder))

    assert said.code == 2
    assert str(folder) in said.err
    assert "HOLDFAST_DATA or --data" in said.err


@pytest.mark.parametrize("closed", ["holdfast-data", "holdfast-data/holdfast.db"])
@pytest.mark.parametrize("command", [("up", "--port", "0"), ("events", "list")])
def test_a_data_folder_without_the_right_to_write_is_refused_too(
    program, home, empty_ledger, monkeypatch, closed, command
):
    # As root a process may write everywhere, so the system's answer is replaced here.
    allowed = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: allowed(path, mode) and (mode == os.F_OK or Path(path) != Path(closed))
    )

    said = program(*command)

    assert said.code == 2
    assert "this user may not read and write" in said.err
    assert "HOLDFAST_DATA or --data" in said.err


def test_a_line_that_does_nothing_any_more_is_told_and_stops_nobody(program, home):
    (home / "holdfast.toml").write_text("intake_max_pending = 9\napi_port = 9000\n")
    said = program("config", "show", "--json")
    assert said.code == 0
    assert "Warning: INTAKE_MAX_PENDING (in holdfast.toml) does nothing" in said.err
    assert "Warning" not in said.out
    assert {row["name"]: row["value"] for row in said.json}["API_PORT"] == "9000"
