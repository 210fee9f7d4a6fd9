"""The data folder belongs to the user that runs Holdfast, with any umask."""

from __future__ import annotations

import asyncio
import os
import stat

import pytest

from holdfast.contracts.errors import ConfigurationError
from holdfast.wiring import open_system, opening
from tests.cli.commands import settings


def rights(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def wide_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def opened(folder) -> dict[str, int]:
    """The rights of the folder and of the files of the database, while it is open."""

    async def live():
        async with open_system(settings(folder)) as system:
            await system.tenants.add("Acme")
            found = {each.name: rights(each) for each in folder.iterdir() if each.name.startswith("holdfast.db")}
            return {"": rights(folder), **found}

    return asyncio.run(live())


CLOSED = {"": 0o700, "holdfast.db": 0o600, "holdfast.db-wal": 0o600, "holdfast.db-shm": 0o600}


@pytest.mark.usefixtures("wide_umask")
def test_a_new_folder_is_closed_to_others(home):
    assert opened(home / "new") == CLOSED


@pytest.mark.usefixtures("wide_umask")
def test_an_open_folder_is_closed_at_the_start_and_the_doctor_names_it(program, home, monkeypatch):
    folder = home / "data"
    asyncio.run(_made(folder))
    folder.chmod(0o755)
    (folder / "holdfast.db").chmod(0o644)
    monkeypatch.setenv("HOLDFAST_DATA", str(folder))
    monkeypatch.setenv("API_PORT", "0")
    said = [each["message"] for each in program("doctor", "--json").json["checks"] if each["verdict"] == "WARN"]
    assert [each for each in said if "Other users may read" in each] == [
        f"Other users may read {folder}.",
        f"Other users may read {folder / 'holdfast.db'}.",
    ]
    assert opened(folder) == CLOSED
    found = program("doctor", "--json").json["checks"]
    assert not [each for each in found if "Other users may read" in each["message"]]


async def _made(folder) -> None:
    async with open_system(settings(folder)):
        pass


@pytest.mark.parametrize(("mode", "refused"), [(0o755, True), (0o770, False), (0o700, False)])
def test_a_folder_of_another_owner_is_refused_if_everybody_may_read_it(home, monkeypatch, mode, refused):
    """The group may read the mount of a container: its owner decided so."""
    folder = home / "mount"
    folder.mkdir()
    folder.chmod(mode)
    monkeypatch.setattr(opening.os, "geteuid", lambda: folder.stat().st_uid + 1)
    if refused:
        with pytest.raises(ConfigurationError, match="other users may read mount"):
            opening.prepare_data_folder(folder)
    else:
        opening.prepare_data_folder(folder)
    assert rights(folder) == mode


def test_a_folder_for_everybody_is_not_taken_from_them(home):
    folder = home / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    with pytest.raises(ConfigurationError, match="other users"):
        opening.prepare_data_folder(folder)
    assert rights(folder) == 0o1777
