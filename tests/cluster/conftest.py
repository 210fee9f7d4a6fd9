"""The program on a real Redis and a real MongoDB; each test has a database and a prefix of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import ENVIRONMENT, Program
from tests.support.settings import Settings
from tests.support.valkey_server import RedisServer


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """An empty working directory, and an environment with nothing of ours."""
    for name in [*map(str.upper, Settings.model_fields), "HOLDFAST_CONFIG", "HOLDFAST_DEBUG", "COURIER_SECRET"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def redis_server(valkey) -> RedisServer:
    """Ours alone: what differs between Redis and Valkey shows in the queue's own tests, which run on both."""
    return RedisServer(valkey.url, ours=True)


@pytest.fixture
def environment(home, mongo, mongo_database, redis_place) -> dict[str, str]:
    """The settings of a cluster of this test's own."""
    return {
        **ENVIRONMENT,
        "REDIS_URL": redis_place.url,
        "QUEUE_PREFIX": redis_place.prefix,
        "MONGO_URI": mongo.uri,
        "MONGO_DB_NAME": mongo_database,
        "API_PORT": "0",
    }


@pytest.fixture
def settle_environment(monkeypatch) -> Callable[[dict[str, str]], None]:
    """Make these the settings of the program that runs in this process."""

    def settle(environment: dict[str, str]) -> None:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return settle


@pytest.fixture
def program(environment, settle_environment, capsys) -> Program:
    """The program, in this process, on the cluster."""
    settle_environment(environment)
    assert "REDIS_URL" in os.environ
    return Program(capsys)
