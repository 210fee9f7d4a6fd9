"""The program told to use a cluster: what it refuses before it asks any server, and what it does not load without."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.cli.commands import ENVIRONMENT

CANARY = "canary-Xw4nKq8sPz2vLm6t"
REDIS = f"redis://user:{CANARY}@127.0.0.1:1/0"
MONGO = f"mongodb://user:{CANARY}@127.0.0.1:1/?serverSelectionTimeoutMS=100"

COMMANDS = [
    ("up",),
    ("api",),
    ("worker",),
    ("up", "--processes", "2"),
    ("migrate",),
    ("events", "list"),
    ("dlq", "list"),
    ("queue", "status"),
]


def python(code: str, home, **environ: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **ENVIRONMENT, **environ}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=home, capture_output=True, text=True, check=False
    )


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setenv("REDIS_URL", REDIS)
    monkeypatch.setenv("MONGO_URI", MONGO)


@pytest.mark.parametrize("command", [*COMMANDS, ("config", "show"), ("send",)], ids=" ".join)
@pytest.mark.parametrize("name", ["REDIS_URL", "MONGO_URI"])
def test_one_of_the_two_addresses_alone_is_refused(program, home, monkeypatch, command, name):
    monkeypatch.setenv(name, {"REDIS_URL": REDIS, "MONGO_URI": MONGO}[name])
    said = program(*command)
    assert said.code == 2
    assert "REDIS_URL" in said.err
    assert "MONGO_URI" in said.err
    assert "needs both" in said.err
    assert CANARY not in said.out + said.err
    assert list(home.iterdir()) == []


def test_config_show_shows_where_the_servers_are_and_nothing_else_of_them(program, cluster):
    rows = {row["name"]: row["value"] for row in program("config", "show", "--json").json}
    assert rows["REDIS_URL"] == "redis://********@127.0.0.1:1/0"
    assert rows["MONGO_URI"] == "mongodb://********@127.0.0.1:1/?********"
    assert CANARY not in program("config", "show").out


@pytest.mark.parametrize(
    ("command", "driver"), [*((command, "redis") for command in COMMANDS), (("up",), "pymongo"), (("up",), "bullmq")]
)
def test_without_the_drivers_it_says_what_to_install(home, command, driver):
    code = f"import sys; sys.modules[{driver!r}] = None; from holdfast.cli import main; sys.exit(main({command!r}))"
    said = python(code, home, REDIS_URL=REDIS, MONGO_URI=MONGO)
    assert said.returncode == 2, said.stderr
    assert "pip install 'holdfast-gateway[cluster]'" in said.stderr
    assert driver in said.stderr
    assert said.stderr.count("Error:") == 1
    assert CANARY not in said.stdout + said.stderr


def test_doctor_without_the_drivers_says_what_to_install(home):
    code = (
        "import sys; sys.modules['pymongo'] = None; from holdfast.cli import main; sys.exit(main(['doctor', '--json']))"
    )
    said = python(code, home, REDIS_URL=REDIS, MONGO_URI=MONGO, API_PORT="0")
    assert said.returncode == 1
    (found,) = [each for each in json.loads(said.stdout)["checks"] if each["check"] == "cluster"]
    assert "holdfast-gateway[cluster]" in found["advice"]


def test_the_embedded_default_loads_no_driver(home):
    code = (
        "import asyncio, sys\n"
        "import holdfast.cli.doctor, holdfast.cli.jobs, holdfast.cli.configuring, holdfast.cli.serving\n"
        "from holdfast.config import load\n"
        "from holdfast.installed import settings_model\n"
        "from holdfast.wiring import open_system\n"
        "async def live():\n"
        "    async with open_system(load({}, model=settings_model())) as system:\n"
        "        system.api(), system.worker()\n"
        "        await system.maintenance().round()\n"
        "asyncio.run(live())\n"
        "print([name for name in ('redis', 'pymongo', 'bson', 'bullmq', 'msgpack') if name in sys.modules])"
    )
    said = python(code, home)
    assert said.stdout.strip() == "[]", said.stderr


# --- migrate, embedded ------------------------------------------------------------------------------------------------


def test_migrate_makes_the_ledger_and_the_second_time_nothing(program, home):
    said = program("migrate", "--json")
    file = home / "holdfast-data" / "holdfast.db"
    assert said.code == 0
    assert said.json == {"place": str(file), "done": [f"Created {file}."]}
    assert file.is_file()
    assert program("migrate", "--json").json["done"] == []
    assert "nothing to do" in program("migrate").err


def test_bodies_that_mongodb_could_not_hold_are_refused(program, cluster, monkeypatch):
    monkeypatch.setenv("MAX_BODY_BYTES", "8000000")
    said = program("config", "show")
    assert said.code == 2
    assert "MAX_BODY_BYTES can be 4194304 at most in a cluster" in said.err
    assert CANARY not in said.err
