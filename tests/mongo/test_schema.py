"""Collections and indexes: those of the specification are created once, and a missing one is reported."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
from typing import ClassVar

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from holdfast.cli.servers import ServerProcess, free_port
from holdfast.cli.servers.programs import mongod_program
from holdfast.contracts.effects import Collection, Upsert
from holdfast.contracts.errors import ConfigurationError, StoreUnavailable
from holdfast.contracts.queries import EntryQuery, Page
from holdfast.features.courier.workload import Courier
from holdfast.stores.mongo import MongoStore
from tests.conformance.vocabulary import Anything, Workload
from tests.mongo.steps import Parcels, a_parcel, an_event, claimed, dead_lettered, settlement

DATA_MODEL = {
    "processed_events": [
        ({"idempotencyKey": 1}, "unique"),
        ({"status": 1, "updatedAt": 1}, None),
        ({"expiresAt": 1}, "expireAfterSeconds"),
    ],
    "active_shipments": [
        ({"shipmentId": 1}, "unique"),
        ({"orderId": 1}, None),
        ({"currentState": 1, "updatedAt": 1}, None),
    ],
    "dead_letter_events": [
        ({"reviewStatus": 1, "createdAt": 1}, None),
        ({"createdAt": 1}, None),
        ({"expiresAt": 1}, "expireAfterSeconds"),
    ],
}


async def indexes(database, collection):
    return [(dict(each["key"]), each) async for each in await database[collection].list_indexes()]


@pytest.mark.parametrize("collection", DATA_MODEL)
async def test_the_indexes_of_the_specification_are_there(store, database, collection):
    found = await indexes(database, collection)

    for keys, option in DATA_MODEL[collection]:
        (index,) = [each for each_keys, each in found if list(each_keys.items()) == list(keys.items())]
        assert option is None or option in index


async def test_an_entry_outlives_its_letter_when_only_the_server_tidies_up(store, database):
    lingers = {
        name: next(each["expireAfterSeconds"] for keys, each in await indexes(database, name) if "expiresAt" in keys)
        for name in ("processed_events", "dead_letter_events")
    }

    assert lingers["processed_events"] > lingers["dead_letter_events"] > 60


async def test_documents_go_an_hour_after_their_time_when_only_the_server_tidies_up(parcels, database):
    (forgetting,) = [each for keys, each in await indexes(database, "parcel_slips") if list(keys) == ["until"]]

    assert forgetting["expireAfterSeconds"] == 3600
    assert not any("expireAfterSeconds" in each for _, each in await indexes(database, "parcel_rooms"))


async def test_only_workloads_with_fairness_keys_pay_for_them(store, parcels, database):
    def of_fairness_keys(found):
        return [keys for keys, each in found if "openLane" in str(each)]

    fairness_keys = [{"openLane": 1, "priority": -1}, {"status": 1, "priority": -1}]
    assert of_fairness_keys(await indexes(database, "parcels_jobs")) == fairness_keys
    assert of_fairness_keys(await indexes(database, "processed_events")) == []


async def test_a_ledger_from_before_there_were_fairness_keys_is_opened_and_then_migrated(make_store, database):
    class Before(Parcels):
        ttl = None
        fairness_key = Workload.fairness_key
        collections = (Collection("parcel_slips", key="slip"),)

    before = make_store([Before()])
    await before.open()
    await before.record([a_parcel("old", effects=[Upsert("parcel_slips", "s", {"until": "2026-01-01T00:00:00.000Z"})])])

    store = make_store([Parcels()])
    await store.open()
    await store.record([a_parcel("new", fairness_key="a", priority=3)])
    assert (await store.queue_places("parcels", ["a"])).ends == {"a": 3}
    assert await store.missing() == [
        "The collection parcels_jobs has no index (openLane, priority).",
        "The collection parcels_jobs has no index (status, priority).",
        "The collection parcel_slips has no index (owner, at, slip).",
        "The collection parcel_slips has no index (until) [TTL].",
    ]
    await store.migrate()

    assert await store.missing() == []
    assert (await store.queue_places("parcels", ["a"])).ends == {"a": 3}
    (claim,) = await store.claim("parcels", ["id-old"], worker="w", lease=Parcels.ttl, max_attempts=5)
    assert claim.key == "old"


async def test_an_index_that_nothing_uses_any_more_is_dropped_by_migrate(make_store, database):
    store = make_store()
    await store.open()
    await store.record([an_event("old")])
    await database.processed_events.drop_index("deadline_1")
    await database.processed_events.create_index([("firstSeenAt", -1), ("_id", -1)])

    opened = make_store()
    await opened.open()
    assert await opened.missing() == ["The collection processed_events has no index (deadline)."]
    done = await opened.migrate()

    assert done == [
        "Created the index (deadline) of processed_events.",
        "Dropped the index (firstSeenAt, _id) of processed_events: nothing uses it.",
    ]
    assert await opened.migrate() == []
    found = await opened.find(EntryQuery(workload="courier"), Page(5))
    assert [entry.key for entry in found.items] == ["old"]


async def test_an_index_on_the_field_that_documents_expire_by_is_the_one_that_forgets_them(make_store, database):
    twice = Collection("atlas", key="place", indexes=(("until",),), instants=("until",), expires="until")
    store = make_store(collections=[twice])

    await store.open()

    assert await store.missing() == []
    assert len([keys for keys, _ in await indexes(database, "atlas") if "until" in keys]) == 1


async def test_migrate_reports_what_it_created_and_creates_it_once(make_store, database):
    store = make_store()
    wanted = await store.missing()
    assert "The collection processed_events does not exist." in wanted

    done = await store.migrate()

    assert "Created the collection processed_events." in done
    assert "Created the index (idempotencyKey) [unique] of processed_events." in done
    assert "processed_events" in await database.list_collection_names()
    assert (await store.missing(), await store.migrate()) == ([], [])


async def test_a_new_database_is_made_ready_by_the_first_to_open_it_however_many_do(make_store):
    stores = [make_store() for _ in range(6)]

    await asyncio.gather(*(store.open() for store in stores))

    assert await stores[0].missing() == []


async def test_a_lost_guarantee_is_noticed_and_repaired_by_migrate(store, make_store, database):
    await store.record([an_event()])
    await database.processed_events.drop_index("idempotencyKey_1")
    await database.processed_events.drop_index("status_1_updatedAt_1")

    with pytest.raises(ConfigurationError, match="holdfast migrate"):
        await make_store().open()
    assert await make_store().missing() == [
        "The collection processed_events has no index (idempotencyKey) [unique].",
        "The collection processed_events has no index (status, updatedAt).",
    ]
    await make_store().migrate()

    await make_store().open()
    assert await make_store().missing() == []


async def test_an_index_that_only_makes_things_faster_does_not_keep_a_store_from_opening(store, make_store, database):
    await store.record([an_event()])
    await database.processed_events.drop_index("status_1_updatedAt_1")

    await make_store().open()


async def test_migrate_puts_an_index_with_other_options_right(make_store, database):
    await database.processed_events.create_index("idempotencyKey")
    await database.processed_events.create_index("expiresAt", expireAfterSeconds=0)
    await database.processed_events.insert_one({"idempotencyKey": "from before"})
    with pytest.raises(ConfigurationError, match="unique index idempotencyKey_1"):
        await make_store().open()

    done = await make_store().migrate()

    assert "Dropped the index idempotencyKey_1 of processed_events: its options were different." in done
    assert await make_store().missing() == []


async def test_a_unique_index_that_cannot_be_built_is_explained(make_store, database):
    await database.processed_events.insert_many([{"idempotencyKey": "twice"}, {"idempotencyKey": "twice"}])

    with pytest.raises(ConfigurationError, match="several of its documents have the same key"):
        await make_store().migrate()


async def test_a_layout_from_the_future_is_left_alone(store, make_store, database):
    await database.holdfast_facts.update_one({"_id": "schema"}, {"$set": {"value": 99}})

    for step in (make_store().open, make_store().migrate):
        with pytest.raises(ConfigurationError, match="newer Holdfast"):
            await step()


# --- definitions that cannot work -----------------------------------------------------------------------------


class Odd(Workload[Anything]):
    name: ClassVar[str] = "odd"
    contract = Anything
    queue: ClassVar[str] = "odd"
    dead_letter_queue: ClassVar[str] = "odd-dead"

    def __init__(self, **facts):
        vars(self).update(facts)


@pytest.mark.parametrize(
    "workloads",
    [
        [Odd(ledger_name="a.b")],
        [Odd(letters_name="$x")],
        [Odd(ledger_name="same", letters_name="same")],
        [Odd(ledger_name="processed_events"), Courier()],
        [Odd(ledger_name="holdfast_facts")],
        [Odd(collections=(Collection("system_x", key="k"),))],
        [Odd(collections=(Collection("a-b", key="k"),))],
        [Odd(ledger_name="a b")],
        [Odd(label_columns=("status",))],
        [Odd(indexed_labels=("a b",))],
        [Odd(collections=(Collection("c", key="$k"),))],
        [Odd(collections=(Collection("c", key="k"), Collection("c", key="l")))],
        [Odd(collections=(Collection("odd_jobs", key="k"),))],
        [Odd(collections=(Collection("c", key="k", expires="until"),))],
        [Odd(label_columns=("lane",))],
    ],
    ids=[
        "dot in a ledger",
        "dollar in letters",
        "one name for both",
        "another workload's ledger",
        "our own facts",
        "the server's own",
        "a hyphen in a collection",
        "a space in a ledger",
        "a field of ours",
        "label with a space",
        "dollar in a key",
        "one collection, two keys",
        "documents among entries",
        "no instant to expire by",
        "a new field of ours",
    ],
)
async def test_names_that_cannot_work_are_refused_at_the_start(make_store, workloads):
    with pytest.raises(ConfigurationError):
        make_store(workloads)


async def test_a_name_with_a_hyphen_has_collections_of_its_own(make_store, database):
    names = ["order-sync", "order_sync", "system-sync", "a" * 60]
    store = make_store([Odd(name=name) for name in names])
    await store.open()

    for name in names:
        await store.record([an_event(f"of {name}", workload=name)])
        await store.settle([settlement(await claimed(store, f"of {name}", workload=name), dead_lettered(name), name)])

    for name in names:
        assert [each["idempotencyKey"] async for each in database[f"{name}_jobs"].find()] == [f"of {name}"]
        assert [each["idempotencyKey"] async for each in database[f"{name}_dead_letters"].find()] == [f"of {name}"]
        assert [entry.key for entry in (await store.find(EntryQuery(workload=name), Page(10))).items] == [f"of {name}"]


async def test_a_collection_cannot_be_declared_in_two_ways(make_store):
    with pytest.raises(ConfigurationError):
        make_store([Parcels()], collections=[Collection("parcel_rooms", key="another")])


# --- servers that cannot be used --------------------------------------------------------------------------------


@contextlib.contextmanager
def standalone(folder):
    """A mongod that is no replica set."""
    data = folder / "data"
    data.mkdir()
    port = free_port()
    server = ServerProcess(
        "mongod",
        [str(mongod_program()), "--port", str(port), "--bind_ip", "127.0.0.1", "--dbpath", str(data), "--nounixsocket"],
        folder,
        port,
    )
    server.start()
    try:
        yield f"mongodb://127.0.0.1:{port}"
    finally:
        server.kill()


async def test_a_server_without_a_replica_set_is_refused(mongo, tmp_path):
    with standalone(tmp_path) as uri:
        for address, hint in ((uri, "--replSet"), (f"{uri}/?replicaSet=rs", "member of the replica set")):
            store = MongoStore(address, "x", [Courier()])
            with pytest.raises(ConfigurationError, match=hint):
                await store.open()
            await store.disconnect()
        del store
        with warnings.catch_warnings():
            # The driver does not close the connection to a server that it has removed from its list.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


async def test_an_old_server_is_refused(store, monkeypatch):
    hello = await store.link._hello()

    async def older():
        return hello | {"maxWireVersion": 13}

    monkeypatch.setattr(store.link, "_hello", older)

    with pytest.raises(ConfigurationError, match=r"6\.0 or newer"):
        await store.open()


SECRET = "hunter2"


@pytest.mark.parametrize(
    "uri",
    [f"mongodb://ana:{SECRET}/x@localhost", f"mongodb://ana:{SECRET}@", f"http://ana:{SECRET}@localhost", ""],
)
def test_an_address_that_is_none_is_refused_without_repeating_it(uri):
    with pytest.raises(ConfigurationError) as refused:
        MongoStore(uri, "x", [Courier()])

    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_database_name_that_is_none_is_refused():
    with pytest.raises(ConfigurationError, match="name of a MongoDB database"):
        MongoStore("mongodb://localhost", "a b", [Courier()])


async def test_a_server_that_is_away_is_unavailable_and_no_password_is_shown():
    store = MongoStore(f"mongodb://ana:{SECRET}@127.0.0.1:{free_port()}/?replicaSet=rs", "x", [Courier()])

    with pytest.raises(StoreUnavailable) as failure:
        await store.open()

    assert SECRET not in repr(failure.value) + repr(failure.value.__cause__) + repr(store)
    await store.disconnect()


async def test_a_password_that_the_server_does_not_accept_is_a_matter_for_the_operator(mongo, mongo_database):
    with MongoClient(mongo.uri) as client, contextlib.suppress(OperationFailure):
        client.admin.command("dropUser", "ana")
    store = MongoStore(mongo.uri.replace("mongodb://", f"mongodb://ana:{SECRET}@"), mongo_database, [Courier()])

    with pytest.raises(ConfigurationError, match="user name and password") as failure:
        await store.open()

    assert SECRET not in str(failure.value)
    await store.disconnect()
