from __future__ import annotations

import shutil

import pytest

from tests.cli.commands import ENVIRONMENT, Program, make_dead_letters, make_empty_ledger
from tests.cli.parcels import Parcel
from tests.support.settings import Settings


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty working directory, and an environment with good secrets and nothing else of ours."""
    for name in [
        *map(str.upper, Settings.model_fields),
        "HOLDFAST_CONFIG",
        "HOLDFAST_DEBUG",
        "COURIER_SECRET",
        "COLUMNS",
    ]:
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def program(home, capsys):
    return Program(capsys)


@pytest.fixture(scope="session")
def a_bad_day(tmp_path_factory):
    """A data folder with three dead letters, made once; and their ids, oldest first: north, north, south."""
    depots = ("north", "north", "south")
    parcels = [Parcel(number=str(number), depot=depot, broken=True) for number, depot in enumerate(depots, start=1)]
    folder = tmp_path_factory.mktemp("a-bad-day") / "data"
    return folder, make_dead_letters(folder, *parcels)


@pytest.fixture
def letters(home, a_bad_day):
    """The ids of three dead letters in the default data folder, oldest first: north, north, south."""
    folder, ids = a_bad_day
    shutil.copytree(folder, home / "holdfast-data")
    return ids


@pytest.fixture
def empty_ledger(home):
    make_empty_ledger(home / "holdfast-data")
