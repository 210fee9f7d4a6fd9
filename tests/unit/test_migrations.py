"""Schema versions: forward step by step, together with other processes, never backward."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast import Collection
from holdfast.brokers.sqlite import SqliteBroker
from holdfast.contracts.effects import Upsert
from holdfast.contracts.errors import ConfigurationError, StoreUnavailable
from holdfast.contracts.ledger import AlreadySettled, Cancelled, Claimed, Lease, NotNow, Overdue, QueuePlaces, Status
from holdfast.contracts.queries import Page, RecordQuery
from holdfast.contracts.times import to_ms
from holdfast.contracts.transitions import Complete, Proceed, Settlement
from holdfast.features.courier.workload import Courier
from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore, schema
from tests.support.workloads import Parcels

FIRST = ("CREATE TABLE box (name TEXT)", "INSERT INTO box VALUES ('first')")
SECOND = ("ALTER TABLE box ADD COLUMN colour TEXT", "UPDATE box SET colour = 'red'")
BROKEN = ("INSERT INTO box VALUES ('half', 'done')", "this is no SQL")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


@pytest.fixture
async def database(path):
    opened = Database(path)
    yield opened
    await opened.close()


async def rows(database, statement="SELECT * FROM box"):
    return await database.read(lambda connection: connection.execute(statement).fetchall())


async def version(database, component):
    found = await rows(database, f"SELECT version FROM schema_versions WHERE component = '{component}'")  # noqa: S608
    return found[0][0]


async def test_each_step_is_taken_once(database):
    await database.migrate("box", [FIRST])
    assert await rows(database) == [("first",)]
    await database.migrate("box", [FIRST])
    assert await rows(database) == [("first",)]

    await database.migrate("box", [FIRST, SECOND])

    assert await rows(database) == [("first", "red")]
    assert await version(database, "box") == 2


async def test_a_fresh_file_gets_all_steps(database):
    await database.migrate("box", [FIRST, SECOND])

    assert await rows(database) == [("first", "red")]


async def test_components_have_versions_of_their_own(database):
    await database.migrate("box", [FIRST, SECOND])
    await database.migrate("cellar", [("CREATE TABLE cellar (name TEXT)",)])

    assert (await version(database, "box"), await version(database, "cellar")) == (2, 1)


async def test_a_step_that_fails_leaves_nothing_behind(database):
    await database.migrate("box", [FIRST, SECOND])

    with pytest.raises(sqlite3.OperationalError):
        await database.migrate("box", [FIRST, SECOND, BROKEN])

    assert await rows(database) == [("first", "red")]
    assert await version(database, "box") == 2


async def test_a_file_of_a_newer_program_is_refused_and_not_touched(database):
    await database.migrate("box", [FIRST, SECOND])

    with pytest.raises(ConfigurationError, match="newer Holdfast"):
        await database.migrate("box", [FIRST])

    assert await version(database, "box") == 2


async def test_processes_that_start_together_take_each_step_once(path):
    databases = [Database(path) for _ in range(4)]

    await asyncio.gather(*(database.migrate("box", [FIRST, SECOND]) for database in databases))

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


# --- a file of the first version --------------------------------------------------------------------------------

NOW = 1_790_000_000_000
ENTRY = """
INSERT INTO ledger_entries (workload, job_id, key, status, body, fingerprint, labels, priority, attempt_count,
                            attempts, fence, lease_until, not_before, due_at, life, deadline, first_seen_at,
                            updated_at, expires_at)
VALUES ('parcels', 'id-' || :key, :key, :status, '{"id": "' || :key || '"}', 'print', '{"place": "depot"}', 3,
        :attempts, iif(:attempts, '[{"attempt": 1, "outcome": "' || iif(:lease, 'running', 'failed')
        || '", "worker": "w", "startedAt": 5}]', '[]'),
        :attempts, :lease, 7, 8, :life, 9 + :life, 9, 10, :expires)
"""
LETTER = """
INSERT INTO dead_letters (id, workload, key, job_id, generation, reason_code, reason_message, attempt_count, attempts,
                          body, labels, review_status, created_at, updated_at, expires_at)
VALUES ('dl_1', 'parcels', 'dead', 'id-dead', 1, 'WHY', 'why', 0, '[]', '{"id": "dead"}', '{}', 'reviewed', 10, 10, 11)
"""
OLD_DOCUMENTS = (
    "CREATE TABLE parcel_places (parcelId TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID",
    "ALTER TABLE parcel_places ADD COLUMN place TEXT GENERATED ALWAYS AS (body ->> '$.place') VIRTUAL",
    "CREATE INDEX parcel_places_by_place ON parcel_places (place)",
    """INSERT INTO parcel_places VALUES ('p', '{"parcelId": "p", "place": "depot", "createdAt": "2026-01-01"}')""",
    """INSERT INTO parcel_places VALUES ('q', '{"parcelId": "q", "place": "depot", "createdAt": "2026-01-02"}')""",
    "INSERT INTO store_facts VALUES ('workload:parcels', 'as the first version saw it')",
)


@pytest.fixture
async def old(path):
    """A file that the first version wrote: jobs in every state, a dead letter, documents."""
    database = Database(path, now=lambda: NOW)
    await database.migrate(schema.COMPONENT, schema.MIGRATIONS[:1])

    def fill(connection):
        fresh = {"attempts": 0, "lease": None, "life": None, "expires": None}
        for key, status, facts in (
            ("new", "received", {}),
            ("failed", "failed", {"attempts": 1, "life": NOW}),
            ("late", "received", {"life": 1}),
            ("running", "processing", {"attempts": 1, "lease": NOW + 50}),
            ("lost", "processing", {"attempts": 1, "lease": NOW - 50}),
            ("done", "processed", {"attempts": 1, "expires": NOW + 50}),
            ("dead", "dead_lettered", {"attempts": 1, "expires": NOW + 50, "life": 1000}),
        ):
            connection.execute(ENTRY, fresh | facts | {"key": key, "status": status})
        for statement in (LETTER, *OLD_DOCUMENTS):
            connection.execute(statement)

    await database.write(fill)
    await database.close()


@pytest.fixture
async def store(old, path):
    database = Database(path, now=lambda: NOW)
    opened = SqliteStore(database, [Parcels()], collections=[Collection("atlas", key="place")])
    await opened.open()
    yield opened
    await database.close()


async def claim(store, *keys):
    job_ids = [f"id-{key}" for key in keys]
    return await store.claim("parcels", job_ids, worker="w", lease=timedelta(hours=1), max_attempts=3)


async def test_a_file_of_the_first_version_is_brought_up_to_date_with_its_jobs(store):
    assert await store.counts("parcels") == {
        "dead_lettered": 1,
        "failed": 1,
        "processed": 1,
        "processing": 2,
        "received": 2,
    }
    entry = await store.entry("parcels", "failed")
    assert (entry.status, entry.attempt_count, entry.priority, entry.body) == (Status.FAILED, 1, 3, '{"id": "failed"}')
    assert await store.queue_places("parcels", ["", "depot"]) == QueuePlaces(0, {})


async def test_jobs_of_the_first_version_go_on_as_they_would_have(store):
    answers = await claim(store, "new", "failed", "late", "running", "lost", "done")

    kinds = [type(answer) for answer in answers]
    assert kinds == [Claimed, Claimed, Overdue, NotNow, Claimed, AlreadySettled]
    assert (answers[1].attempt, answers[2].cancelled, answers[4].attempt) == (2, False, 2)
    effect = Upsert("parcel_places", "p", {"place": "home"})
    (settled,) = await store.settle(
        [Settlement("parcels", Lease("id-new", answers[0].fence), Complete(timedelta(1), [effect]))],
    )
    assert settled.status is Status.PROCESSED
    assert (await store.get("parcel_places", "p"))["place"] == "home"


async def test_a_dead_letter_of_the_first_version_can_be_replayed(store):
    assert await store.replay([("dl_1", None)], actor="ana", reason="mended") == ["dl_1"]

    (answer,) = await claim(store, "dead")
    assert (type(answer), answer.generation, to_ms(answer.deadline)) == (Claimed, 2, NOW + 1000)


async def test_a_dead_letter_from_before_a_field_existed_is_read_without_it(old, path):
    database = Database(path, now=lambda: NOW)
    await database.write(lambda connection: connection.execute("ALTER TABLE dead_letters DROP COLUMN replayed_as"))

    store = SqliteStore(database, [Parcels()])
    await store.open()

    letter = await store.letter("dl_1")
    assert (letter.reason_code, letter.replayed_as) == ("WHY", None)
    await database.close()


async def test_what_is_new_works_on_jobs_of_the_first_version(store):
    assert await store.cancel("parcels", ["id-new", "id-done"]) == [Cancelled.ENDS, Cancelled.TOO_LATE]
    assert await store.redact("parcels", {"id-done": "{}", "id-dead": "{}"}) == ["id-done", "id-dead"]
    assert (await store.letter("dl_1")).body == "{}"
    (lost,) = await claim(store, "lost")
    (answer,) = await store.settle([Settlement("parcels", Lease("id-lost", lost.fence), Proceed())])
    assert (answer.status, answer.note) == (Status.PROCESSING, None)


async def test_documents_of_the_first_version_can_be_listed_by_their_time(store):
    query = RecordQuery(collection="parcel_places", where={"place": "depot"}, newest_by="createdAt")

    assert [each["parcelId"] for each in (await store.find_records(query, Page())).items] == ["q", "p"]


async def test_a_collection_that_learns_to_expire_forgets_its_old_documents(path):
    database = Database(path, now=lambda: NOW)
    plain = Collection("atlas", key="place", instants=("until",))
    store = SqliteStore(database, [], collections=[plain])
    await store.open()
    await store.apply([Upsert("atlas", "troy", {"until": "2001-01-01T00:00:00.000Z"}), Upsert("atlas", "rome", {})])
    assert (await store.prune(10)).records == 0

    grown = SqliteStore(database, [], collections=[replace(plain, expires="until")])
    await grown.open()

    assert (await grown.prune(10)).records == 1
    assert await grown.get("atlas", "troy") is None
    assert await grown.get("atlas", "rome") is not None
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


async def test_a_collection_that_learns_a_column_shows_it_for_its_old_documents(database):
    """As a file of version 0.1.0 learns that shipments show every field."""
    courier = Courier()
    before = Courier()
    before.collections = [replace(each, columns=()) for each in courier.collections]
    await SqliteStore(database, [before]).open()
    document = '{"shipmentId": "shp", "lastEventId": "evt", "lastEventType": "moved", "metadata": {"weight": 2.5}}'
    await database.write(
        lambda connection: connection.execute("INSERT INTO active_shipments VALUES ('shp', ?)", (document,)),
    )

    await SqliteStore(database, [courier]).open()

    statement = "SELECT shipmentId, lastEventId, lastEventType, metadata ->> '$.weight' FROM active_shipments"
    assert await rows(database, statement) == [("shp", "evt", "moved", 2.5)]


@pytest.mark.parametrize(
    "name",
    ["ledger_entries", "queue_jobs", "queue_turns", "sqlite_master", "a b", 'x"; DROP TABLE box; --', "", "1st", "é"],
)
async def test_a_collection_cannot_have_a_name_that_does_harm(database, name):
    workload = Parcels()
    workload.collections = [Collection(name, key="id")]

    with pytest.raises(ConfigurationError):
        await SqliteStore(database, [workload]).open()


async def test_a_collection_cannot_expire_by_what_is_no_instant(database):
    store = SqliteStore(database, [], collections=[Collection("atlas", key="place", expires="until")])

    with pytest.raises(ConfigurationError, match="until"):
        await store.open()


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
