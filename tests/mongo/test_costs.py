"""What a call costs the server: the number of commands and index keys does not grow with the collections.

The server's own profiler counts them. It sees every command on the database of the test.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest
from pymongo import AsyncMongoClient
from pymongo.monitoring import CommandListener

from holdfast.contracts.effects import Upsert
from holdfast.contracts.ledger import Lease, QueuePlaces, Status
from holdfast.contracts.queries import EntryQuery, Page, RecordQuery
from holdfast.contracts.transitions import RetryLater
from holdfast.features.courier.workload import Courier
from tests.mongo.steps import DAY, LABELS, Parcels, a_parcel, an_event, done, moved, settlement

LONG_BACKLOG = 3_000


@pytest.fixture
def commands_of(database):
    """The commands that the server ran for a call."""

    async def watch(call):
        await database.command("profile", 2)
        answer = await call
        await database.command("profile", 0)
        ours = {"appName": "holdfast", "ns": {"$not": {"$regex": "holdfast_processes"}}}
        return answer, await database["system.profile"].find(ours).to_list()

    return watch


def with_three_effects(number):
    at = {"owner": "ana", "at": f"2026-01-01T00:00:00.{number:03}Z"}
    return a_parcel(
        f"k{number}",
        effects=[
            Upsert("parcel_slips", f"s{number}", at),
            Upsert("parcel_rooms", f"r{number}", {"n": number}),
            Upsert("parcel_keys", f"n{number}", {"n": number}),
        ],
    )


async def test_jobs_without_effects_are_one_insert(store, commands_of):
    _, commands = await commands_of(store.record([an_event(f"k{n}") for n in range(256)]))

    assert [each["op"] for each in commands] == ["insert"]
    assert "startTransaction" not in commands[0]["command"]


async def test_a_batch_with_effects_takes_a_handful_of_commands_however_large_it_is(parcels, database, commands_of):
    await parcels.record([with_three_effects(7)])

    answers, commands = await commands_of(parcels.record([with_three_effects(n) for n in range(256)]))

    looks, inserts = 4, 4  # the ledger and three collections
    assert sorted(each["op"] for each in commands) == ["insert"] * inserts + ["query"] * looks
    assert [n for n, answer in enumerate(answers) if answer.recorded_as != "new"] == [7]
    assert await database.parcel_rooms.count_documents({}) == 256


async def test_records_that_are_new_and_records_that_change_are_two_commands_in_any_order(parcels, commands_of):
    await parcels.record([a_parcel(f"k{n}") for n in range(40)])
    claims = await parcels.claim("parcels", [f"id-k{n}" for n in range(40)], worker="w", lease=DAY, max_attempts=5)
    await parcels.apply([Upsert("parcel_rooms", f"r{n}", {"n": n}) for n in range(0, 40, 2)])
    endings = [
        settlement(claim, done(Upsert("parcel_rooms", f"r{n}", {"n": -n})), "parcels") for n, claim in enumerate(claims)
    ]

    _, commands = await commands_of(parcels.settle(endings))

    written = [each for each in commands if each["ns"].endswith("parcel_rooms") and each["op"] in {"insert", "update"}]
    inserts = [each["ninserted"] for each in written if each["op"] == "insert"]
    assert inserts == [20]
    assert sum(each.get("nModified", 0) for each in written) == 20
    assert (await parcels.get("parcel_rooms", "r7"))["n"] == -7
    assert (await parcels.get("parcel_rooms", "r8"))["n"] == -8


class Sent(CommandListener):
    """The names of the commands that the driver sent, without those of the heartbeat."""

    def __init__(self):
        self._names = []

    def started(self, event):
        if event.command.get(event.command_name) != "holdfast_processes":
            self._names.append(event.command_name)

    def succeeded(self, event):
        pass

    def failed(self, event):
        pass

    def take(self):
        names, self._names = self._names, []
        return names


async def test_a_batch_of_a_worker_takes_eight_commands_however_large_it_is(make_store, monkeypatch):
    sent = Sent()
    monkeypatch.setattr(
        "holdfast.stores.mongo.link.AsyncMongoClient", partial(AsyncMongoClient, event_listeners=[sent])
    )
    store = make_store()
    await store.open()
    await store.apply([moved(f"shp-{n}") for n in range(0, 50, 2)])
    await store.record([an_event(f"k{n}") for n in range(50)])
    sent.take()

    claims = await store.claim("courier", [f"id-k{n}" for n in range(50)], worker="w", lease=DAY, max_attempts=5)
    assert sent.take() == ["update", "find"]
    await store.settle([settlement(claim, done(moved(f"shp-{n}"))) for n, claim in enumerate(claims)])

    # Every second shipment is new. If all are new, or none, there is one command less.
    assert sent.take() == ["find", "find", "insert", "update", "update", "commitTransaction"]


async def test_queue_places_are_found_without_a_scan(parcels, commands_of):
    jobs = [a_parcel(f"a{n}", fairness_key="a", priority=n) for n in range(LONG_BACKLOG)]
    jobs += [a_parcel(f"b{n}", fairness_key="b", priority=n) for n in range(5)]
    await parcels.record(jobs)
    taken = [f"id-a{n}" for n in range(20)]
    await parcels.claim("parcels", taken, worker="w", lease=DAY, max_attempts=5)

    places, commands = await commands_of(parcels.queue_places("parcels", ["a", "b", "nobody's"]))

    assert places == QueuePlaces(19, {"a": LONG_BACKLOG - 1, "b": 4})
    assert len(commands) == 2
    assert all(each["keysExamined"] <= 10 and each["docsExamined"] <= 1 for each in commands), commands


async def test_the_jobs_that_have_ended_are_found_by_their_keys(parcels, commands_of):
    await parcels.record([a_parcel(f"k{n}") for n in range(LONG_BACKLOG)])
    claims = await parcels.claim("parcels", ["id-k1", "id-k2"], worker="w", lease=DAY, max_attempts=5)
    await parcels.settle([settlement(claim, done(), "parcels") for claim in claims])

    ended, (command,) = await commands_of(parcels.ended("parcels", [f"k{n}" for n in range(500)]))

    assert ended == ["k1", "k2"]
    assert "IXSCAN { idempotencyKey: 1 }" in command["planSummary"]
    assert command["docsExamined"] == 500
    assert command["keysExamined"] <= 1_001


async def test_the_progress_of_many_jobs_is_one_write(parcels, commands_of):
    await parcels.record([a_parcel(f"k{n}") for n in range(100)])
    claims = await parcels.claim("parcels", [f"id-k{n}" for n in range(100)], worker="w", lease=DAY, max_attempts=5)
    told = [(Lease(claim.job_id, claim.fence), {"done": 1, "total": None, "note": None}) for claim in claims]

    _, commands = await commands_of(parcels.note_progress("parcels", told))

    assert {each["op"] for each in commands} == {"update"}
    assert {each["planSummary"] for each in commands} <= {"IDHACK", "IXSCAN { _id: 1 }", "EXPRESS_IXSCAN { _id: 1 }"}
    assert sum(each["nModified"] for each in commands) == 100
    assert sum(each.get("keysUpdated", 0) for each in commands) == 0


@pytest.mark.parametrize("workload", ["courier", "parcels"])
async def test_a_sweep_reads_only_what_it_returns_however_many_jobs_wait(make_store, workload, commands_of):
    """Nothing that maintenance does each second may grow with the backlog, with and without a ttl."""
    store = make_store([Courier(), Parcels()])
    await store.open()
    await store.record([an_event(f"k{n}", workload=workload) for n in range(LONG_BACKLOG)])
    await store.cancel(workload, ["id-k7", "id-k70"])
    store.link.clock.skew = timedelta(minutes=5)

    for call, returned in (
        (store.overdue(workload, 100), 2),
        (store.due(workload, 10, again_after=DAY), 10),
        (store.unsettled(workload, ["id-k1"]), 1),
        (store.letters_to_publish(workload, 10), 0),
        (store.letters_to_unpublish(workload, 10), 0),
        (store.detect_queue_reset("epoch"), None),
        (store.prune(10), None),
    ):
        answer, commands = await commands_of(call)
        assert returned is None or len(answer) == returned
        for command in commands:
            assert command.get("docsExamined", 0) <= 2 * (returned or 0), command
            assert command.get("keysExamined", 0) <= 2 * (returned or 0) + 3, command
        await store.link.database.drop_collection("system.profile")


async def test_a_page_of_the_newest_reads_no_more_than_the_page(parcels, commands_of):
    for start in range(0, 600, 200):
        await parcels.record([with_three_effects(n) for n in range(start, start + 200)])
    query = RecordQuery(collection="parcel_slips", where={"owner": "ana"}, newest_by="at")
    first = await parcels.find_records(query, Page(10))

    second, commands = await commands_of(parcels.find_records(query, Page(10, first.next)))

    assert [each["slip"] for each in second.items] == [f"s{n}" for n in range(589, 579, -1)]
    (command,) = commands
    assert command["docsExamined"] <= 12, (
        command
    )  # the page, one item before it, and one item after it to see whether there is more
    assert not command.get("hasSortStage")


@pytest.fixture
async def ledger(store):
    """Jobs of half an hour: a hundred each minute, with one of two shipments. The first twenty have failed."""
    for minute in range(30):
        store.link.clock.skew = timedelta(minutes=minute)
        await store.record(
            [
                an_event(f"{n % 2}:{n}", job_id=f"id-{n:05}", labels=LABELS | {"shipmentId": f"shp-{n % 2}"})
                for n in range(minute * 100, minute * 100 + 100)
            ]
        )
    ids = [f"id-{n:05}" for n in range(20)]
    claims = await store.claim("courier", ids, worker="w", lease=DAY, max_attempts=5)
    await store.settle([settlement(claim, RetryLater(DAY, "X", "x")) for claim in claims])
    return store


LISTINGS = {
    "all": {},
    "status": {"status": Status.FAILED},
    "label": {"labels": {"shipmentId": "shp-0"}},
    "key": {"key": "0:4"},
    "many keys": {"key_prefix": "0:"},
}


@pytest.mark.parametrize("page", ["first", "second"])
@pytest.mark.parametrize("when", ["at any time", "early"])
@pytest.mark.parametrize("conditions", LISTINGS.values(), ids=LISTINGS)
async def test_a_page_of_entries_reads_little_more_than_the_page(ledger, commands_of, conditions, when, page):
    if when == "early":
        early = (await ledger.entry("courier", "0:400")).first_seen_at
        conditions = conditions | {"seen_before": early, "seen_after": early - timedelta(hours=1)}
    query, cursor = EntryQuery(workload="courier", **conditions), None
    if page == "second":
        cursor = (await ledger.find(query, Page(5))).next

    found, (command,) = await commands_of(ledger.find(query, Page(5, cursor)))

    assert len(found.items) == (1 if query.key else 5)
    # Every second job has the label and the beginning of the key; and one more shows whether there are more.
    assert command["docsExamined"] <= 20, command
    assert not command.get("hasSortStage") or query.key


async def test_few_keys_with_one_beginning_are_found_by_the_keys(ledger, commands_of):
    found, (command,) = await commands_of(ledger.find(EntryQuery(workload="courier", key_prefix="0:4"), Page(2)))

    assert [entry.key for entry in found.items] == ["0:498", "0:496"]
    assert "idempotencyKey: 1" in command["planSummary"]
    assert command["docsExamined"] <= 60


async def test_the_unsettled_jobs_of_an_owner_are_counted_in_an_index_up_to_the_limit(parcels, commands_of):
    jobs = [a_parcel(f"a{n}", fairness_key="a/0", priority=n) for n in range(LONG_BACKLOG)]
    jobs += [a_parcel(f"b{n}", fairness_key=f"b/{n}") for n in range(5)]
    await parcels.record(jobs)

    counted, (command,) = await commands_of(parcels.count_unsettled("a/", 100))

    assert counted == 100
    assert command["keysExamined"] <= 110
    assert command["docsExamined"] == 0
