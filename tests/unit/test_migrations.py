"""Schema versions: forward step by step, together with other processes, never backward."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from holdfast import Collection
from holdfast.brokers.sqlite import SqliteBroker
from holdfast.contracts.errors import ConfigurationError, StoreUnavailable
from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore
from tests.support.workloads import Parcels

FIRST = ("CREATE TABLE shelf (name TEXT)", "INSERT INTO shelf VALUES ('first')")
SECOND = ("ALTER TABLE shelf ADD COLUMN colour TEXT", "UPDATE shelf SET colour = 'red'")
BROKEN = ("INSERT INTO shelf VALUES ('half', 'done')", "this is no SQL")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


@pytest.fixture
async def database(path):
    opened = Database(path)
    yield opened
    await opened.close()


async def rows(database, statement="SELECT * FROM shelf"):
    return await database.read(lambda connection: connection.execute(statement).fetchall())


async def version(database, component):
    found = await rows(database, f"SELECT version FROM schema_versions WHERE component = '{component}'")  # noqa: S608
    return found[0][0]


async def test_each_step_is_taken_once(database):
    await database.migrate("shelf", [FIRST])
    assert await rows(database) == [("first",)]
    await database.migrate("shelf", [FIRST])
    assert await rows(database) == [("first",)]

    await database.migrate("shelf", [FIRST, SECOND])

    assert await rows(database) == [("first", "red")]
    assert await version(database, "shelf") == 2


async def test_a_fresh_file_gets_all_steps(database):
    await database.migrate("shelf", [FIRST, SECOND])

    assert await rows(database) == [("first", "red")]


async def test_components_have_versions_of_their_own(database):
    await database.migrate("shelf", [FIRST, SECOND])
    await database.migrate("cellar", [("CREATE TABLE cellar (name TEXT)",)])

    assert (await version(database, "shelf"), await version(database, "cellar")) == (2, 1)


async def test_a_step_that_fails_leaves_nothing_behind(database):
    await database.migrate("shelf", [FIRST, SECOND])

    with pytest.raises(sqlite3.OperationalError):
        await database.migrate("shelf", [FIRST, SECOND, BROKEN])

    assert await rows(database) == [("first", "red")]
    assert await version(database, "shelf") == 2


async def test_a_file_of_a_newer_program_is_refused_and_not_touched(database):
    await database.migrate("shelf", [FIRST, SECOND])

    with pytest.raises(ConfigurationError, match="newer Holdfast"):
        await database.migrate("shelf", [FIRST])

    assert await version(database, "shelf") == 2


async def test_processes_that_start_together_take_each_step_once(path):
    databases = [Database(path) for _ in range(4)]

    await asyncio.gather(*(database.migrate("shelf", [FIRST, SECOND]) for database in databases))

    assert await rows(databases[0]) == [("first", "red")]
    for database in databases:
        await database.close()


async def test_store_and_broker_can_be_opened_again_and_again(path):
    for _ in range(2):
        databases = [Database(path) for _ in range(2)]
        await asyncio.gather(*(SqliteStore(database, [Parcels()]).open() for database in databases))
        await asyncio.gather(*(SqliteBroker(database).open() for database in databases))
        for database in databases:
            await database.close()


async def test_a_workload_that_learns_a_new_index_gets_it_for_its_old_documents(database):
    await SqliteStore(database, [Parcels()]).open()
    await database.write(
        lambda connection: connection.execute("INSERT INTO parcel_places VALUES ('p', '{\"colour\": \"red\"}')"),
    )
    grown = Parcels()
    grown.collections = [Collection("parcel_places", key="parcelId", indexes=(("place",), ("colour",)))]

    await SqliteStore(database, [grown]).open()

    assert await rows(database, "SELECT parcelId FROM parcel_places WHERE colour = 'red'") == [("p",)]


@pytest.mark.parametrize(
    "name",
    ["ledger_entries", "queue_jobs", "sqlite_master", "a b", 'x"; DROP TABLE shelf; --', "", "1st", "é"],
)
async def test_a_collection_cannot_have_a_name_that_does_harm(database, name):
    workload = Parcels()
    workload.collections = [Collection(name, key="id")]

    with pytest.raises(ConfigurationError):
        await SqliteStore(database, [workload]).open()


@pytest.mark.parametrize("content", [b"this is no database, and it is long enough to be looked at" * 20])
def test_a_file_that_is_no_database_is_refused_in_words(path, content):
    path.write_bytes(content)

    with pytest.raises(StoreUnavailable, match=r"holdfast\.db"):
        Database(path)


def test_a_folder_that_cannot_be_made_is_refused_in_words(tmp_path):
    (tmp_path / "taken").write_text("a file")

    with pytest.raises(StoreUnavailable, match=r"holdfast\.db"):
        Database(tmp_path / "taken" / "holdfast.db")


def test_an_sqlite_that_is_too_old_is_refused_in_words(path, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 30, 0))

    with pytest.raises(ConfigurationError, match=r"3\.38"):
        Database(path)
