from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
import typer

import holdfast.cli
from holdfast import __version__
from holdfast.cli import COMMANDS
from holdfast.cli.lazy import load
from holdfast.contracts.errors import ConfigurationError, NotFound, StoreUnavailable
from holdfast.contracts.ledger import NewEntry
from holdfast.features.email.feature import EmailService
from holdfast.terminal import open_feature
from holdfast.wiring import open_system
from tests.cli.commands import settings
from tests.cli.parcels import app


def test_help_lists_every_command(program):
    said = program("--help")
    assert said.code == 0
    for entry in COMMANDS:
        assert entry.name in said.out
        assert entry.summary in said.out


@pytest.mark.parametrize("entry", [each for each in COMMANDS if each.name != "demo"], ids=lambda each: each.name)
def test_the_summary_in_the_list_is_the_commands_own(entry):
    command = load(entry.name, {entry.name: entry.where})
    assert (command.help or "").split("\n")[0] == entry.summary


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda each: each.name)
def test_every_command_has_help(program, entry):
    said = program(entry.name, "--help")
    assert said.code == 0
    assert f"holdfast {entry.name}" in said.out


def test_help_and_version_load_neither_the_web_server_nor_the_store():
    code = (
        "import sys, contextlib, io\n"
        "from holdfast.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    assert main(['--help']) == 0 and main(['--version']) == 0\n"
        "print([name for name in ('fastapi', 'uvicorn', 'httpx', 'sqlite3', 'holdfast.wiring') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version(program):
    assert program("--version").out == f"holdfast {__version__}\n"
    assert program("version", "--json").json["holdfast"] == __version__
    assert __version__ in program("version").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("dlq", "nonsense"),
        ("events", "show"),
        ("dlq", "list", "--limit", "0"),
        ("up", "--port", "70000"),
    ],
)
def test_misuse_is_told_with_exit_code_2(program, arguments):
    said = program(*arguments)
    assert said.code == 2
    assert said.err
    assert not said.out


def test_a_mistyped_command_is_understood(program):
    assert "doctor" in program("docter").err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ConfigurationError("Set it right."), 2, "Error: Set it right."),
        (StoreUnavailable(), 2, "The store cannot be reached."),
        (NotFound("It is not there."), 1, "It is not there."),
        (PermissionError(13, "Permission denied", "/a/b"), 2, "/a/b: Permission denied."),
        (ExceptionGroup("parts", [ConfigurationError("Set it right.")]), 2, "Error: Set it right."),
        (RuntimeError("oops, password=hunter2hunter2"), 70, "HOLDFAST_DEBUG=1"),
        (ExceptionGroup("parts", [NotFound("no"), RuntimeError("oops")]), 70, "RuntimeError: oops"),
        (KeyboardInterrupt(), 130, ""),
        (typer.Exit(3), 3, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_errors_become_a_sentence_and_an_exit_code(program, monkeypatch, error, code, words):
    def fail(*_):
        raise error

    monkeypatch.setattr(holdfast.cli, "print_line", fail)
    said = program("version")
    assert said.code == code
    assert words in said.err
    assert "hunter2" not in said.err


def test_the_traceback_is_there_for_who_asks(home, capsys, monkeypatch):
    def fail(*_):
        raise RuntimeError

    monkeypatch.setattr(holdfast.cli, "print_line", fail)
    monkeypatch.setenv("HOLDFAST_DEBUG", "1")
    assert holdfast.cli.main(["version"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_who_leaves_early_is_no_error(home):
    """``holdfast config show --json | head -c 0``."""
    command = f"{sys.executable} -m holdfast config show --json | true"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_control_characters_never_reach_the_terminal(program, home, empty_ledger):
    """Whoever sends an event must not get to steer the terminal of whoever looks at it."""

    async def record() -> None:
        hostile = NewEntry(
            workload="parcels",
            key="parcel/\x9b2J",
            job_id="p",
            body='{"note": "\\u001b]0;owned\\u0007\\u202e\u202e"}',
            fingerprint="f",
            labels={"depot": "\x1b[31mnorth"},
        )
        async with open_system(settings(home / "holdfast-data"), app) as system:
            await system.store.record([hostile])

    asyncio.run(record())
    shown = program("events", "show", "parcel/\x9b2J", "--workload", "parcels")
    assert shown.code == 0
    listed = program("events", "list", "--workload", "parcels")
    as_json = program("events", "list", "--workload", "parcels", "--json")
    missing = program("events", "list", "--data", "\x1b[31mred")
    assert missing.code == 2
    for said in (shown, listed, as_json, missing):
        assert (said.out + said.err).replace("\n", "").isprintable()
    assert "\\x1b[31mnorth" in shown.out


def test_a_command_gets_the_service_of_its_feature_or_an_error(empty_ledger):
    async def opened(kind):
        async with open_feature("email", kind, None) as service:
            return service

    assert isinstance(asyncio.run(opened(EmailService)), EmailService)
    with pytest.raises(TypeError, match="The feature email has no int for its commands"):
        asyncio.run(opened(int))
