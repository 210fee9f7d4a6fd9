"""The user's app: named by HOLDFAST_APP, by ``app`` in holdfast.toml, or by ``--app``; and what every command does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli import COMMANDS, _brought_commands
from holdfast.cli.lazy import load
from tests.cli.commands import APP

NO_DATA = {
    "submit": "posts to an API",
    "send": "posts to an API",
    "documents submit": "posts to an API",
    "documents run": "reads one file, and keeps nothing",
    "new": "writes a new folder",
    "init": "writes holdfast.toml",
    "schema list": "shows contracts",
    "schema export": "shows contracts",
    "version": "shows versions",
}
"""The commands that read no data, and why not. All others take ``--data``."""
OWN_WORK = (
    "up",
    "api",
    "worker",
    "submit",
    "jobs",
    "dlq",
    "queue",
    "schedules",
    "config",
    "migrate",
    "doctor",
    "schema",
)


def commands() -> Iterator[tuple[str, set[str]]]:
    """Every command, those of features too, and its options."""

    def walk(name: str, command) -> Iterator[tuple[str, set[str]]]:
        if not getattr(command, "commands", None):
            yield name, {option for each in command.params for option in each.opts}
        for inner, each in getattr(command, "commands", {}).items():
            yield from walk(f"{name} {inner}", each)

    for entry in [*COMMANDS, *_brought_commands()]:
        yield from walk(entry.name, load(entry.name, {entry.name: entry.where}))


def test_every_command_that_reads_data_takes_the_folder():
    assert {name for name, options in commands() if "--data" not in options} == set(NO_DATA)


def test_every_command_about_own_work_takes_the_app():
    assert [name for name, options in commands() if name.partition(" ")[0] in OWN_WORK and "--app" not in options] == []


# --- where the app is named ---------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def forget_modules():
    """Modules of one test must not answer in another."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if not name.startswith(("holdfast", "tests")) and getattr(sys.modules[name], "__file__", None):
            sys.modules.pop(name)


def write_app(folder: Path, module: str, workload: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(
        "from pydantic import BaseModel\n"
        "from holdfast import App\n"
        "class Thing(BaseModel):\n"
        "    id: str\n"
        "app = App()\n"
        f"@app.job(key='id', name='{workload}')\n"
        "async def work(thing: Thing) -> None: ...\n"
    )


def queues(program) -> set[str]:
    return {each["workload"] for each in program("queue", "status", "--json").json}


def shown(program, *arguments: str) -> tuple[str, str]:
    (row,) = (each for each in program("config", "show", "--json", *arguments).json if each["name"] == "HOLDFAST_APP")
    return row["value"], row["origin"]


@pytest.mark.usefixtures("empty_ledger")
def test_the_environment_wins_over_the_file_and_an_option_over_both(program, home, monkeypatch):
    for name in ("in_file", "in_environment", "in_option"):
        write_app(home, f"work_{name}", name)
    assert shown(program) == ("(not set)", "default")
    (home / "holdfast.toml").write_text('app = "work_in_file:app"\n')
    assert "in_file" in queues(program)
    assert shown(program) == ("work_in_file:app", "holdfast.toml")
    monkeypatch.setenv("HOLDFAST_APP", "work_in_environment:app")
    assert {"in_file", "in_environment"} & queues(program) == {"in_environment"}
    assert shown(program) == ("work_in_environment:app", "environment")
    assert shown(program, "--app", "work_in_option:app") == ("work_in_option:app", "--app")
    assert {"in_option"} < {
        each["workload"] for each in program("queue", "status", "--app", "work_in_option:app", "--json").json
    }


@pytest.mark.usefixtures("empty_ledger")
def test_the_app_of_a_file_is_looked_for_beside_the_file(program, home, monkeypatch):
    """Also if a module of the working folder has the same name."""
    write_app(home / "service", "work_beside", "beside")
    write_app(home, "work_beside", "another")
    (home / "service" / "holdfast.toml").write_text('app = "work_beside:app"\n')
    monkeypatch.setenv("HOLDFAST_CONFIG", "service/holdfast.toml")
    assert {"beside", "another"} & queues(program) == {"beside"}


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("nowhere_at_all:app", "there is no module 'nowhere_at_all' here or on the Python path"),
        (
            "work_broken:app",
            "importing 'work_broken' failed: RuntimeError: no such file, password=*** (work_broken.py:1)",
        ),
        ("work_leaving:app", "importing 'work_leaving' failed: SystemExit: 3 (work_leaving.py:1)"),
        ("work_wrong:app", "importing 'work_wrong' failed: SyntaxError: "),
        ("work_wrong:app", "(work_wrong.py:3)"),
        ("work_missing:app", "there is no module 'pandas_of_the_user' here or on the Python path (work_missing.py:2)"),
        ("work_fine:nothing", "the module 'work_fine' has no 'nothing'"),
        ("work_fine:Thing", "'Thing' is a ModelMetaclass, not a holdfast.App"),
        ("work_fine", "is not module:attribute, such as mymodule:app"),
    ],
)
@pytest.mark.usefixtures("empty_ledger")
def test_an_app_that_cannot_be_used(program, home, monkeypatch, reference, problem):
    write_app(home, "work_fine", "fine")
    (home / "work_broken.py").write_text("raise RuntimeError('no such file, password=hunter2hunter2')\n")
    (home / "work_leaving.py").write_text("raise SystemExit(3)\n")
    (home / "work_wrong.py").write_text("a = 1\n\ndef broken(:\n")
    (home / "work_missing.py").write_text("import json\nimport pandas_of_the_user\n")
    (home / "holdfast.toml").write_text(f'app = "{reference}"\n')
    (home / "holdfast.toml").chmod(0o600)
    for command in (("jobs", "list"), ("config", "show"), ("queue", "status"), ("tenants", "list")):
        said = program(*command)
        assert said.code == 2
        assert f'app = "{reference}" in holdfast.toml' in said.err
        assert problem in said.err
    monkeypatch.setenv("API_PORT", "0")
    said = program("doctor", "--json")
    assert said.code == 1
    found = {each["check"]: each for each in said.json["checks"]}
    assert (found["app"]["verdict"], problem in found["app"]["message"]) == ("FAIL", True)
    assert found["config"]["verdict"] == "OK"


@pytest.mark.usefixtures("home")
def test_the_doctor_says_what_the_app_brings(program, monkeypatch):
    monkeypatch.setenv("API_PORT", "0")

    def finding() -> tuple[str, str]:
        (found,) = (each for each in program("doctor", "--json").json["checks"] if each["check"] == "app")
        return found["verdict"], found["message"]

    assert finding()[0] == "OK"
    assert "HOLDFAST_APP" in finding()[1]
    monkeypatch.setenv("HOLDFAST_APP", APP)
    assert finding() == ("OK", f"HOLDFAST_APP={APP} brings parcels.")
    monkeypatch.setenv("HOLDFAST_APP", "tests.cli.parcels:empty")
    assert finding() == ("WARN", "HOLDFAST_APP=tests.cli.parcels:empty brings no workload.")


# --- submit -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (('{"id": "1"}',), "Which workload? holdfast submit WORKLOAD JSON. Your app has one, two."),
        (("one",), "What is the job? holdfast submit one"),
    ],
)
def test_submit_asks_for_what_is_missing(program, home, arguments, words):
    write_app(home, "work_one", "one")
    write_app(home, "work_two", "two")
    (home / "work_both.py").write_text("from work_one import app\nimport work_two\napp.include(work_two.app)\n")
    said = program("submit", *arguments, "--app", "work_both:app")
    assert said.code == 2
    assert words in said.err


@pytest.mark.usefixtures("home")
def test_submit_without_an_app(program):
    said = program("submit", '{"id": "1"}')
    assert (said.code, "HOLDFAST_APP" in said.err) == (2, True)
