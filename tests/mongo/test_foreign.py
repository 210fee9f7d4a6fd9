"""Collections that a Node system of the same specification has filled: reading, taking over, importing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.contracts.dead_letters import ListedLetter, ReviewStatus
from holdfast.contracts.entries import job_id_for
from holdfast.contracts.ledger import AlreadySettled, AttemptOutcome, Claimed, RecordedAs, Status
from holdfast.contracts.queries import EntryQuery, LetterQuery, Page, RecordQuery
from holdfast.stores.fields import names_of
from holdfast.stores.mongo import importing
from holdfast.stores.mongo.link import Link
from tests.mongo.steps import DAY, an_event, dead_lettered, done, moved, settlement
from tests.support.foreign_records import BEGAN, DATES, NodeRecords, node_writes

WHO = {"actor": "ana", "reason": "mended"}
FATES = {"done": "processed", "dead": "dead_lettered", "new": "received", "begun": "processing", "later": "failed"}
SETTLED = {"done", "dead"}


@pytest.fixture(params=DATES)
def node(request):
    return NodeRecords(request.param)


def key_of(name: str) -> str:
    return f"courier-x:{name}"


def coming(name: str, **changes):
    """The job of this event, as it arrives from the queue or over HTTP."""
    return an_event(key_of(name), **{"job_id": job_id_for(key_of(name)), "delivered": True} | changes)


async def fill(database, node):
    """One event in each status, a dead letter, a shipment, and the indexes of the other system."""
    events = database.processed_events
    await events.create_index("idempotencyKey", unique=True, name="uniq_idempotency_key")
    await events.create_index([("status", 1), ("updatedAt", 1)], name="status_updated_at")
    await events.create_index("expiresAt", expireAfterSeconds=0, name="ttl_expires_at")
    attempts = {"done": 1, "dead": 2, "new": 0, "begun": 1, "later": 2}
    failed = {"lastErrorCode": "ETIMEDOUT", "lastErrorMessage": "downstream timed out"}
    await events.insert_many(
        [
            node.event(name, status, attempts[name], **(failed if name in {"dead", "later"} else {}))
            for name, status in FATES.items()
        ]
    )
    await database.dead_letter_events.create_index("expiresAt", expireAfterSeconds=0)
    await database.dead_letter_events.insert_one(node.letter("dead"))
    await database.active_shipments.create_index("shipmentId", unique=True)
    await database.active_shipments.insert_one(node.shipment("done"))


@pytest.fixture
async def filled(make_store, database, node):
    """A store that is opened on the other system's collections."""
    await fill(database, node)
    store = make_store()
    await store.open()
    return store


async def everything(listing):
    """All items of a listing, two at a time."""
    items, cursor = [], None
    while True:
        page = await listing(Page(limit=2, cursor=cursor))
        items += page.items
        cursor = page.next
        if cursor is None:
            return items


async def entries_of(store, **where):
    return await everything(lambda page: store.find(EntryQuery(workload="courier", **where), page))


async def letters_of(store, **where):
    return await everything(lambda page: store.letters(LetterQuery(workload="courier", **where), page))


async def claim(store, name, **changes):
    options = {"worker": "w", "lease": DAY, "max_attempts": 5} | changes
    (answer,) = await store.claim("courier", [job_id_for(key_of(name))], **options)
    return answer


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_what_another_system_left_is_listed_beside_ours(filled, database, node):
    await database.processed_events.insert_many([node.event(f"more-{n}", "processed", 1) for n in range(4)])
    await filled.record([an_event("ours"), an_event("ours too")])

    found = await entries_of(filled)

    names = [*FATES, *(f"more-{n}" for n in range(4))]
    assert sorted(each.key for each in found) == sorted([*map(key_of, names), "ours", "ours too"])
    assert all(each.attempt_count == len(each.attempts) for each in found)
    by_key = {each.key: each for each in found}
    dead = by_key[key_of("dead")]
    assert (dead.status, dead.first_seen_at, dead.updated_at) == (
        Status.DEAD_LETTERED,
        BEGAN,
        BEGAN + timedelta(minutes=1),
    )
    assert [each.outcome for each in dead.attempts] == [AttemptOutcome.FAILED] * 2
    assert (dead.attempts[-1].worker, dead.attempts[-1].error_code) == ("another system", "ETIMEDOUT")
    assert by_key[key_of("done")].attempts[0].outcome is AttemptOutcome.SUCCEEDED
    assert dict(dead.labels) == {"eventId": "dead", "eventType": "shipment.status.updated"}
    assert (await filled.entry("courier", key_of("begun"))).status is Status.PROCESSING
    assert [each.key for each in await entries_of(filled, status=Status.FAILED)] == [key_of("later")]


async def test_dead_letters_of_another_system_are_listed_beside_ours(filled, database, node):
    await database.dead_letter_events.insert_many([node.letter(f"more-{n}", createdAt=node.at(n)) for n in range(5)])
    await filled.record([an_event("k")])
    (ours,) = await filled.claim("courier", ["id-k"], worker="w", lease=DAY, max_attempts=5)
    await filled.settle([settlement(ours, dead_lettered())])

    found = await letters_of(filled)

    assert sorted(each.key for each in found) == sorted(["k", *map(key_of, ["dead", *(f"more-{n}" for n in range(5))])])
    letter = next(each for each in found if each.key == key_of("dead"))
    assert (letter.reason_code, letter.attempt_count, letter.review_status) == ("ETIMEDOUT_EXHAUSTED", 2, "pending")
    assert letter.labels["shipmentId"] == "shp_dead"
    whole = await filled.letter(letter.id)
    assert json.loads(whole.body)["payload"]["shipmentId"] == "shp_dead"
    assert {name: getattr(whole, name) for name in names_of(ListedLetter)} == asdict(letter)
    assert await filled.count_letters(LetterQuery(workload="courier")) == 7
    late = await letters_of(filled, created_after=BEGAN + timedelta(minutes=3))
    assert {each.key for each in late} == {"k", key_of("more-4")}
    assert [each.key for each in await letters_of(filled, labels={"eventId": "dead"})] == [key_of("dead")]


async def test_a_shipment_that_another_system_wrote_is_read_and_kept_in_order(filled, database, node):
    await database.active_shipments.insert_one(
        node.shipment("odd", metadata={"at": datetime(2026, 1, 1), "ids": [node.event("x")["_id"]]})  # noqa: DTZ001 - as a driver takes it
    )

    assert json.dumps(await filled.get("active_shipments", "shp_odd"))
    found = await filled.find_records(RecordQuery(collection="active_shipments", where={"orderId": "ord_1"}), Page(10))
    assert len(found.items) == 2

    # 12:00:00Z is stored. As plain text it would sort after 12:00:00.500Z, and the newer event would be lost.
    await filled.apply([moved("shp_done", "2026-02-26T12:00:00.500Z", currentState="delivered")])
    assert (await filled.get("active_shipments", "shp_done"))["currentState"] == "delivered"
    await filled.apply([moved("shp_done", "2026-02-26T11:59:00.000Z", currentState="in_transit")])
    assert (await filled.get("active_shipments", "shp_done"))["currentState"] == "delivered"


async def test_a_worker_that_writes_into_our_entry_does_not_keep_anybody_from_reading_it(filled, database):
    await filled.record([coming("mine", delivered=False)])
    await database.processed_events.update_one(*node_writes("mine", "processing"))
    await database.processed_events.update_one(*node_writes("mine", "processing"))

    entry = await filled.entry("courier", key_of("mine"))
    assert (entry.status, entry.attempt_count, len(entry.attempts)) == (Status.PROCESSING, 2, 2)
    assert entry.updated_at == BEGAN + timedelta(hours=1)
    assert key_of("mine") in {each.key for each in await entries_of(filled)}

    ours = await claim(filled, "mine")
    assert (ours.attempt, ours.body) == (1, coming("mine").body)
    await database.processed_events.update_one(*node_writes("mine", "processing"))
    (answer,) = await filled.settle([settlement(ours, done())])
    assert answer.status is Status.PROCESSED
    entry = await filled.entry("courier", key_of("mine"))
    assert [each.outcome for each in entry.attempts] == [AttemptOutcome.SUCCEEDED]
    assert entry.attempt_count == 1


# --- what is not settled ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("migrated", [False, True])
async def test_an_unsettled_record_is_neither_due_nor_claimed(filled, migrated):
    if migrated:
        await filled.migrate()
    await filled.detect_queue_reset("first")
    await filled.detect_queue_reset("second")

    assert await filled.due("courier", 10, again_after=DAY) == []
    for name in FATES.keys() - SETTLED:
        assert not isinstance(await claim(filled, name), Claimed)


@pytest.mark.parametrize("migrated", [False, True])
async def test_the_job_of_an_unsettled_record_takes_it_over_with_its_attempts(filled, database, migrated):
    if migrated:
        await filled.migrate()
    names = ["new", "begun", "later"]

    recorded = await filled.record([coming(name) for name in names])

    assert [each.recorded_as for each in recorded] == [RecordedAs.NEW] * 3
    assert {each.first_seen_at for each in recorded} == {BEGAN}
    claims = [await claim(filled, name) for name in names]
    assert [each.attempt for each in claims] == [1, 2, 3]
    assert [each.body for each in claims] == [coming(name).body for name in names]
    outcomes = [each.outcome for each in (await filled.entry("courier", key_of("begun"))).attempts]
    assert outcomes == [AttemptOutcome.LOST, AttemptOutcome.RUNNING]
    assert await database.processed_events.count_documents({}) == len(FATES)
    await filled.settle([settlement(each, done()) for each in claims])
    again = await filled.record([coming(name) for name in names])
    assert [(each.recorded_as, each.status) for each in again] == [(RecordedAs.DUPLICATE, Status.PROCESSED)] * 3


@pytest.mark.parametrize("migrated", [False, True])
async def test_the_job_of_a_settled_record_is_a_duplicate_and_does_not_run(filled, database, migrated):
    if migrated:
        await filled.migrate()

    recorded = await filled.record([coming("done"), coming("dead"), coming("done", fingerprint="other content")])

    assert [each.recorded_as for each in recorded] == [RecordedAs.DUPLICATE] * 3
    assert [each.status for each in recorded] == [Status.PROCESSED, Status.DEAD_LETTERED, Status.PROCESSED]
    claims = await filled.claim(
        "courier", [each.job_id for each in recorded[:2]], worker="w", lease=DAY, max_attempts=5
    )
    assert [type(each) for each in claims] == [AlreadySettled] * 2
    assert await database.processed_events.count_documents({}) == len(FATES)


async def test_a_request_with_the_key_of_a_record_does_not_touch_what_another_worker_may_have(filled, database):
    before = {each["eventId"]: each async for each in database.processed_events.find()}

    recorded = await filled.record([coming(name, delivered=False) for name in FATES])

    assert [(each.recorded_as, each.status) for each in recorded] == [
        (RecordedAs.DUPLICATE, Status(status)) for status in FATES.values()
    ]
    after = {each["eventId"]: each async for each in database.processed_events.find()}
    assert [after[name] == before[name] for name in ("begun", "later")] == [True, True]
    # No worker has begun this job, and perhaps it is not in the queue. From now on it cannot be lost.
    taken = await filled.entry("courier", key_of("new"))
    assert (taken.status, taken.body, taken.first_seen_at) == (Status.RECEIVED, coming("new").body, BEGAN)
    await filled.detect_queue_reset("first")
    await filled.detect_queue_reset("second")
    assert [each.job_id for each in await filled.due("courier", 10, again_after=DAY)] == [taken.job_id]


async def test_a_job_whose_effects_come_with_it_takes_a_record_over_as_well(filled):
    wanted = [coming(name, effects=[moved(f"shp-{name}", currentState="queued")]) for name in ("new", "done")]

    recorded = await filled.record(wanted)

    assert [each.recorded_as for each in recorded] == [RecordedAs.NEW, RecordedAs.DUPLICATE]
    assert await filled.get("active_shipments", "shp-new") is not None
    assert await filled.get("active_shipments", "shp-done") is None
    assert isinstance(await claim(filled, "new"), Claimed)


async def test_many_that_are_given_the_same_job_take_it_over_once(filled, make_store, database):
    stores = [filled, make_store(), make_store()]
    for each in stores:
        await each.open()

    answers = await asyncio.gather(*(each.record([coming("new")]) for each in stores))

    assert sorted(answer.recorded_as for (answer,) in answers) == ["duplicate", "duplicate", "new"]
    assert await database.processed_events.count_documents({"eventId": {"$exists": True}}) == len(FATES)


# --- migrate ----------------------------------------------------------------------------------------------------------


async def test_migrate_brings_settled_records_into_our_shape(filled, database, node):
    await database.dead_letter_events.insert_one(node.letter("long-ago"))  # its entry is gone: kept for 30 days only

    said = await filled.migrate()

    assert "Brought over 2 records of another system in dead_letter_events." in said
    assert "Brought over 1 records of another system in processed_events." in said
    keys = [key_of(name) for name in ("done", "dead", "long-ago")]
    found = {
        each["idempotencyKey"]: each async for each in database.processed_events.find({"idempotencyKey": {"$in": keys}})
    }
    for key, entry in found.items():
        assert entry["_id"] == job_id_for(key)
        assert (entry["fence"], entry["generation"]) == (0, 1)
        assert entry["attemptCount"] == len(entry["attemptHistory"]) > 0
        assert all(isinstance(entry[name], datetime) for name in ("firstSeenAt", "updatedAt", "expiresAt", "notBefore"))
        assert "dueAt" not in entry
    assert [found[key]["status"] for key in keys] == ["processed", "dead_lettered", "dead_lettered"]
    letters = {each["idempotencyKey"]: each async for each in database.dead_letter_events.find()}
    for key, letter in letters.items():
        assert (letter["_id"][:3], letter["jobId"], letter["generation"]) == ("dl_", job_id_for(key), 1)
        assert (letter["reviewStatus"], letter["decisions"], letter["attemptCount"]) == ("pending", [], 2)
        assert isinstance(letter["createdAt"], datetime)
        assert found[key]["expiresAt"] >= letter["expiresAt"], "an entry outlives its letter (I12)"
    (shipment,) = [each async for each in database.active_shipments.find()]
    assert all(isinstance(shipment[name], datetime) for name in ("lastEventAt", "createdAt", "updatedAt"))
    assert await filled.missing() == []


async def test_migrate_leaves_unsettled_entries_to_the_other_system_and_reports_them(filled, database):
    unsettled = {"status": {"$in": ["received", "processing", "failed"]}}
    before = [each async for each in database.processed_events.find(unsettled)]
    told = await filled.foreign()

    await filled.migrate()

    assert [each async for each in database.processed_events.find(unsettled)] == before
    assert [each.split(". ")[0] for each in told] == [
        "processed_events has 2 settled records of another system",
        "dead_letter_events has 1 dead letters of another system",
        "processed_events has 3 unsettled records of another system",
    ]
    assert await filled.foreign() == told[2:]
    assert await filled.foreign_places() == ["processed_events"]


async def test_to_migrate_again_does_nothing_and_ids_stay(filled, database):
    (shown,) = await letters_of(filled)
    await filled.migrate()
    entries, letters = await entries_of(filled), await letters_of(filled)

    assert await filled.migrate() == []

    assert (await entries_of(filled), await letters_of(filled)) == (entries, letters)
    assert [each.id for each in letters] == [shown.id]
    assert [each["_id"] async for each in database.dead_letter_events.find()] == [shown.id]


async def test_a_migration_that_is_cut_off_is_finished_by_the_next(filled, database, node, monkeypatch):
    await database.processed_events.insert_many([node.event(f"more-{n}", "processed", 1) for n in range(9)])
    monkeypatch.setattr(importing, "_BATCH", 2)
    calls, whole = [], importing.import_keys

    async def cut_off(session, **what):
        calls.append(what)
        if len(calls) == 4:
            raise ConnectionError
        await whole(session, **what)

    monkeypatch.setattr(importing, "import_keys", cut_off)
    with pytest.raises(ConnectionError):
        await filled.migrate()
    assert 0 < await database.processed_events.count_documents({"fence": 0}) < 11

    await filled.migrate()

    assert await database.processed_events.count_documents({"fence": 0}) == 11
    assert await database.processed_events.count_documents({}) == len(FATES) + 9


async def test_the_other_system_may_write_while_its_records_are_brought_over(filled, database, node):
    names = [f"busy-{n}" for n in range(60)]
    await database.processed_events.insert_many([node.event(name, "dead_lettered", 1) for name in names])
    await database.dead_letter_events.insert_many([node.letter(name) for name in names])
    over = asyncio.Event()

    async def node_goes_on():
        while not over.is_set():
            for name in names:
                await database.processed_events.update_one(*node_writes(name, "processing"), upsert=True)
                await database.processed_events.update_one(*node_writes(name, "processed"), upsert=True)
                # Without a pause, it would be in the way of every transaction on a slow machine.
                await asyncio.sleep(0.005)

    writing = asyncio.create_task(node_goes_on())
    await filled.migrate()
    over.set()
    await writing
    await filled.migrate()

    assert await database.processed_events.count_documents({}) == len(FATES) + 60
    found = {each.key: each for each in await entries_of(filled)}
    assert {found[key_of(name)].status for name in names} == {Status.PROCESSED}
    assert await database.processed_events.count_documents({"fence": {"$exists": False}}) == 3
    assert await database.dead_letter_events.count_documents({"generation": 1}) == 61


async def test_an_entry_of_ours_that_another_worker_settled_is_repaired(filled, database, node):
    await filled.record([coming("mine", delivered=False)])
    await database.processed_events.update_one(*node_writes("mine", "processing"))
    await database.processed_events.update_one(*node_writes("mine", "processed", expiresAt=node.expiry(30)))

    said = await filled.migrate()

    assert "Repaired 1 entries of processed_events that another system has settled." in said
    mine = await database.processed_events.find_one({"idempotencyKey": key_of("mine")})
    assert (mine["attemptCount"], len(mine["attemptHistory"])) == (1, 1)
    assert isinstance(mine["updatedAt"], datetime)
    assert isinstance(mine["expiresAt"], datetime)
    assert "dueAt" not in mine


async def test_an_entry_that_another_worker_settled_while_ours_held_it_is_repaired_by_the_next_sweep(filled, database):
    """Our worker lost its lease, and Node's worker did the job. A failed repair would stop the sweep."""
    await filled.record([coming("held", delivered=False), coming("other", delivered=False)])
    job_ids = [each["_id"] async for each in database.processed_events.find({"fence": {"$exists": True}}, {"_id": 1})]
    await filled.claim("courier", job_ids[:1], worker="w", lease=DAY, max_attempts=5)
    for name in ("held", "other"):
        await database.processed_events.update_one(*node_writes(name, "processing"))
        await database.processed_events.update_one(*node_writes(name, "processed"))
    past = datetime(2026, 1, 1, tzinfo=UTC)
    await database.processed_events.update_many({"dueAt": {"$exists": True}}, {"$set": {"dueAt": past}})

    assert await filled.due("courier", 10, again_after=DAY) == []

    for name, outcomes in (("held", ["lost", "succeeded"]), ("other", ["succeeded"])):
        entry = await filled.entry("courier", key_of(name))
        assert (entry.status, entry.note, entry.lease_until) == (Status.PROCESSED, "worked_elsewhere", None)
        assert [each.outcome for each in entry.attempts] == outcomes
        assert entry.attempt_count == len(outcomes)
    assert await database.processed_events.count_documents({"dueAt": {"$exists": True}}) == 0


async def test_an_entry_that_our_worker_settles_during_a_sweep_is_not_taken_for_another_systems(
    filled, database, monkeypatch
):
    await filled.record([coming("ours", delivered=False)])
    entry = await database.processed_events.find_one({"fence": {"$exists": True}})
    [claim] = await filled.claim("courier", [entry["_id"]], worker="w", lease=DAY, max_attempts=5)
    past = datetime(2026, 1, 1, tzinfo=UTC)
    await database.processed_events.update_one({"_id": entry["_id"]}, {"$set": {"dueAt": past}})
    postpone = Link.in_time

    async def settle_afterwards(self, *args):
        answer = await postpone(self, *args)
        await filled.settle([settlement(claim, done())])
        return answer

    monkeypatch.setattr(Link, "in_time", settle_afterwards)
    assert await filled.due("courier", 10, again_after=DAY) == []

    entry = await filled.entry("courier", key_of("ours"))
    assert (entry.status, entry.note) == (Status.PROCESSED, None)


async def test_the_indexes_of_another_system_are_replaced_where_they_would_break_a_promise(filled, database):
    said = await filled.migrate()

    assert "Dropped the index ttl_expires_at of processed_events: its options were different." in said
    names = {each["name"] async for each in await database.processed_events.list_indexes()}
    assert {"uniq_idempotency_key", "status_updated_at"} <= names, "these are as good as ours"


async def test_the_other_system_may_go_on_writing_dead_letters_of_one_key(filled, database, node):
    await filled.migrate()

    await database.dead_letter_events.insert_many([node.letter("dead"), node.letter("dead"), node.letter("later")])

    assert len(await letters_of(filled)) == 4


async def test_letters_of_an_earlier_version_open_without_a_migration(store, make_store, database):
    await store.record([an_event()])
    letters = database.dead_letter_events
    (ours,) = await store.claim("courier", ["id-k"], worker="w", lease=DAY, max_attempts=5)
    await store.settle([settlement(ours, dead_lettered())])
    await letters.drop_index("idempotencyKey_1")
    await letters.drop_index("idempotencyKey_1_generation_1")
    await letters.create_index([("idempotencyKey", 1), ("generation", 1)], unique=True)

    await make_store().open()
    await make_store().migrate()

    assert await make_store().missing() == []
    assert len(await letters_of(store)) == 1


# --- dead letters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("migrated", [False, True])
@pytest.mark.parametrize("entry", ["there", "gone"])
async def test_a_dead_letter_of_another_system_is_reviewed_and_replayed(filled, database, migrated, entry):
    if entry == "gone":
        await database.processed_events.delete_one({"idempotencyKey": key_of("dead")})
    if migrated:
        await filled.migrate()
    (letter,) = await letters_of(filled)

    assert await filled.review([letter.id], **WHO) == [letter.id]
    assert await filled.replay([(letter.id, None)], **WHO) == [letter.id]
    assert await filled.replay([(letter.id, None)], **WHO) == []

    again = await claim(filled, "dead")
    assert (again.generation, again.attempt) == (2, 1)
    body = json.loads(again.body)
    assert (body["eventId"], body["source"], body["traceId"]) == ("dead", "courier-x", letter.id)
    assert body["payload"] == {"shipmentId": "shp_dead", "orderId": "ord_1", "status": "delivered"}
    assert body["occurredAt"] == ("2026-02-26T12:00:00.000Z" if entry == "there" else "2026-02-26T12:02:00.000Z")
    stands = await filled.letter(letter.id)
    assert [each.step for each in stands.decisions] == [ReviewStatus.REVIEWED, ReviewStatus.REPLAYED]
    (answer,) = await filled.settle(
        [settlement(again, dead_lettered(letter_id="dl_second", letter_retention=timedelta(days=90)))]
    )
    assert answer.status is Status.DEAD_LETTERED
    assert sorted(each.generation for each in await letters_of(filled)) == [1, 2]


async def test_of_several_dead_letters_of_one_event_the_last_can_be_replayed(filled, database, node):
    await database.dead_letter_events.insert_one(node.letter("dead", createdAt=node.at(7), terminalReasonCode="LAST"))
    await filled.migrate()
    first, last = sorted(await letters_of(filled), key=lambda each: each.created_at)
    assert (first.generation, last.generation, last.reason_code) == (1, 2, "LAST")
    await filled.review([first.id, last.id], **WHO)

    assert await filled.replay([(first.id, None), (last.id, None)], **WHO) == [last.id]

    assert (await filled.entry("courier", key_of("dead"))).generation == 3


async def test_a_dead_letter_that_another_worker_wrote_about_our_job_is_the_jobs_own(filled, database, node):
    await filled.record([coming("mine", delivered=False)])
    await database.processed_events.update_one(*node_writes("mine", "dead_lettered", expiresAt=node.expiry(30)))
    await database.dead_letter_events.insert_one(node.letter("mine"))
    await filled.migrate()
    (letter,) = await letters_of(filled, key=key_of("mine"))

    await filled.review([letter.id], **WHO)
    assert await filled.replay([(letter.id, None)], **WHO) == [letter.id]

    assert (await claim(filled, "mine")).body == coming("mine").body


async def test_a_job_that_is_taken_over_after_a_dead_letter_has_its_own_generation(filled, database, node):
    """The other system replayed the job: its entry is open again, and its letter stays."""
    await database.dead_letter_events.insert_one(node.letter("new", reviewStatus="replayed"))

    await filled.record([coming("new")])
    await filled.migrate()

    ours = await claim(filled, "new")
    (answer,) = await filled.settle([settlement(ours, dead_lettered(letter_id="dl_ours"))])
    assert answer.status is Status.DEAD_LETTERED
    letters = await letters_of(filled, key=key_of("new"))
    assert sorted((each.generation, each.review_status) for each in letters) == [(1, "replayed"), (2, "pending")]


async def test_the_queue_is_given_the_letters_of_another_system_only_after_it_was_lost(filled, database):
    await filled.detect_queue_reset("first")
    assert await filled.letters_to_publish("courier", 10) == []
    await filled.migrate()
    assert await filled.letters_to_publish("courier", 10) == []

    await filled.detect_queue_reset("second")

    (letter,) = await filled.letters_to_publish("courier", 10)
    assert await filled.mark_published([letter.id], "second")
    assert await filled.letters_to_publish("courier", 10) == []


# --- the end of retention ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("migrated", [False, True])
async def test_what_has_outlived_its_retention_goes_and_what_waits_does_not(filled, database, node, migrated):
    over = {"expiresAt": node.expiry(-1 / 144)}  # ten minutes: our pruning must come before the server's own TTL
    await database.processed_events.drop_index("ttl_expires_at")
    await database.dead_letter_events.drop_index("expiresAt_1")
    await database.processed_events.insert_many(
        [node.event("over", "processed", 1, **over), node.event("again", "processing", 1, **over)]
    )
    await database.dead_letter_events.insert_one(letter := node.letter("over-too", **over))
    if migrated:
        await filled.migrate()

    pruned = await filled.prune(100)

    if node.dates == "all-text" and not migrated:
        assert (pruned.entries, pruned.letters) == (0, {}), "text is no time to the server; migrate makes it one"
        return
    assert pruned.letters == {"courier": [f"dl_{letter['_id']}"]}
    left = {each.key for each in await entries_of(filled)}
    assert left == {key_of(name) for name in [*FATES, "again"]}
