from __future__ import annotations

import pytest

from holdfast.config import Settings
from tests.cli.desk import ENVIRONMENT, Program, make_dead_letters
from tests.cli.parcels import Parcel


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty working directory, and an environment with good secrets and nothing else of ours."""
    for name in [*map(str.upper, Settings.model_fields), "HOLDFAST_CONFIG", "HOLDFAST_DEBUG", "COURIER_SECRET", "COLUMNS"]:
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def program(home, capsys):
    return Program(capsys)


@pytest.fixture
def letters(home):
    """Three dead letters in the default data folder, oldest first: north, north, south."""
    depots = ("north", "north", "south")
    parcels = [Parcel(number=str(number), depot=depot, broken=True) for number, depot in enumerate(depots, start=1)]
    return make_dead_letters(home / "holdfast-data", *parcels)
