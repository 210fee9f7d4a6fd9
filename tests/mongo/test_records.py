"""What people find in MongoDB: the fields of the specification, real dates, and only values that MongoDB can store."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient

from holdfast.contracts.effects import Collection, Delete, Upsert
from holdfast.contracts.errors import EffectRefused
from holdfast.contracts.ledger import Claimed, Overdue, RecordedAs, Status
from holdfast.contracts.queries import EntryQuery, LetterQuery, Page, RecordQuery
from holdfast.contracts.times import isoformat
from holdfast.contracts.transitions import Proceed, RetryLater
from holdfast.features.courier.workload import Courier
from tests.mongo.steps import (
    DAY,
    LABELS,
    Parcels,
    a_parcel,
    an_event,
    claimed,
    dead_lettered,
    done,
    moved,
    settled,
    settlement,
)


@pytest.fixture
def mongo_database(emptied_mongo_database) -> str:
    """A database with its collections: creating them is tested elsewhere."""
    return emptied_mongo_database


async def test_an_entry_has_the_fields_of_the_specification(store, database):
    await store.record([an_event()])
    await store.settle([settlement(await claimed(store), RetryLater(timedelta(0), "HTTP_503", "busy"))])
    await store.settle([settlement(await claimed(store), done())])

    entry = await database.processed_events.find_one()

    assert (entry["idempotencyKey"], entry["eventId"], entry["eventType"]) == ("k", "evt-1", "shipment.updated")
    assert (entry["status"], entry["attemptCount"]) == ("processed", 2)
    assert (entry["lastErrorCode"], entry["lastErrorMessage"]) == ("HTTP_503", "busy")
    assert all(isinstance(entry[name], datetime) for name in ("firstSeenAt", "updatedAt", "expiresAt"))
    assert [each["outcome"] for each in entry["attemptHistory"]] == ["failed", "succeeded"]
    assert all(isinstance(each["startedAt"], datetime) for each in entry["attemptHistory"])
    assert "dueAt" not in entry
    assert "leaseUntil" not in entry


async def test_an_entry_that_waits_has_no_end(store, database):
    await store.record([an_event()])

    entry = await database.processed_events.find_one()

    assert "expiresAt" not in entry
    assert (entry["lastErrorCode"], entry["lastErrorMessage"]) == (None, None)


async def test_a_job_carries_only_the_marks_that_it_needs(parcels, store, database):
    marks = {"lane", "openLane", "mortal", "withdrawn", "proceeded"}
    await store.record([an_event()])
    await parcels.record([a_parcel(fairness_key="a", ttl_includes_replays=True, ttl=DAY)])

    async def carried():
        entry = await database.parcels_jobs.find_one()
        return marks & entry.keys()

    assert not marks & (await database.processed_events.find_one()).keys()
    assert await carried() == {"lane", "openLane", "mortal"}
    claim = await claimed(parcels, workload="parcels")
    await parcels.settle([settlement(claim, Proceed(), "parcels")])
    assert await carried() == {"lane", "openLane", "mortal", "proceeded"}
    await parcels.settle([settlement(claim, done(), "parcels")])
    assert await carried() == {"lane", "mortal"}


@pytest.mark.parametrize("repeatable", [False, True])
async def test_a_job_that_proceeds_changes_in_its_marks_alone(store, database, repeatable):
    await store.record([an_event()])
    claim = await claimed(store)
    before = await database.processed_events.find_one()

    await store.settle([settlement(claim, Proceed([moved()], repeatable=repeatable))])

    after = await database.processed_events.find_one()
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == ({"settleId"} if repeatable else {"settleId", "proceeded"})
    assert before.keys() <= after.keys()


async def test_redacted_personal_data_is_nowhere_in_the_ledger(store, database):
    await settled(store, "k", dead_lettered(), body='{"to": "canary@example.com"}')

    assert await store.redact("courier", {"id-k": '{"to": "c***@e***.com"}'}) == ["id-k"]

    for collection in (database.processed_events, database.dead_letter_events):
        record = await collection.find_one()
        assert record["body"] == '{"to": "c***@e***.com"}'
        assert "canary" not in str(record)
    assert record["payloadSnapshot"] == {"to": "c***@e***.com"}


async def test_more_jobs_than_one_transaction_takes_are_redacted(store, database, monkeypatch):
    monkeypatch.setattr("holdfast.stores.mongo.sweeping._MOST_REDACTED", 2)
    for number in range(5):
        await settled(store, f"k{number}", done())

    ids = [f"id-k{number}" for number in (3, 0, 4, 2, 1)]
    assert await store.redact("courier", dict.fromkeys(ids, "{}")) == ids
    assert [each["body"] async for each in database.processed_events.find()] == ["{}"] * 5


async def test_a_letter_with_a_body_of_its_own_shows_nothing_of_the_jobs(store, database):
    await settled(store, "k", dead_lettered(body='{"to": "c***"}'), body='{"to": "canary@example.com"}')

    letter = await database.dead_letter_events.find_one()

    assert (letter["body"], letter["payloadSnapshot"]) == ('{"to": "c***"}', {"to": "c***"})
    assert "canary" not in str(letter)
    assert "canary" in (await store.entry("courier", "k")).body


async def test_a_dead_letter_has_the_fields_of_the_specification(store, database):
    await settled(store, "k", dead_lettered())

    letter = await database.dead_letter_events.find_one()

    assert (letter["idempotencyKey"], letter["eventId"], letter["eventType"]) == ("k", "evt-1", "shipment.updated")
    assert (letter["terminalReasonCode"], letter["terminalReasonMessage"]) == ("REFUSED", "The other side refused it.")
    assert (letter["attemptCount"], letter["reviewStatus"]) == (1, "pending")
    assert letter["attemptHistory"][0]["errorCode"] == "HTTP_404"
    assert letter["payloadSnapshot"] == {"eventId": "k", "payload": {"shipmentId": "shp-1"}}
    assert letter["expiresAt"] - letter["createdAt"] == DAY


@pytest.mark.parametrize(
    "body",
    [
        "not JSON at all",
        "[1, 2]",
        '{"big": ' + "9" * 30 + "}",
        '{"deep": ' + "[" * 150 + "]" * 150 + "}",
        '{"a": ' * 500 + "1" + "}" * 500,
        '{"nul\\u0000": 1}',
        '{"half": "\\ud800"}',
        json.dumps({"long": "x" * 5_000_000}),
    ],
    ids=["text", "list", "number", "deep list", "deep object", "key with NUL", "half a character", "long"],
)
async def test_a_job_can_be_dead_lettered_whatever_its_body_is(store, database, body):
    await settled(store, "k", dead_lettered(), body=body)

    letter = await store.letter(dead_lettered().letter_id)
    shown = await database.dead_letter_events.find_one()
    assert letter.body == body
    assert shown["payloadSnapshot"].keys() == {"unreadable"}
    assert len(shown["payloadSnapshot"]["unreadable"]) <= 2_000


async def test_what_mongodb_cannot_hold_is_refused_alone(store):
    impossible = an_event("large", body="x" * 17_000_000)
    with pytest.raises(ValueError, match="MongoDB cannot hold the record"):
        await store.record([impossible])
    with pytest.raises(ValueError, match="MongoDB cannot hold the record"):
        await store.record([an_event("key", labels={"nul\0": "secret-4711"})])

    (answer,) = await store.record([an_event("small")])
    assert answer.recorded_as is RecordedAs.NEW


async def test_a_refused_effect_keeps_the_jobs_of_other_workloads_out_too(make_store):
    store = make_store([Courier(), Parcels()])
    await store.open()
    plain, bad = an_event("plain"), a_parcel("bad", effects=[Upsert("parcel_rooms", "r", {"n": 2**63})])

    with pytest.raises(EffectRefused):
        await store.record([plain, bad])

    assert (await store.counts("courier"), await store.counts("parcels")) == ({}, {})
    good = a_parcel("good", effects=[Upsert("parcel_rooms", "r", {"n": 1})])
    answers = await store.record([plain, good, plain])
    assert [each.recorded_as for each in answers] == [RecordedAs.NEW, RecordedAs.NEW, RecordedAs.DUPLICATE]
    assert (await store.counts("courier"), await store.counts("parcels")) == ({"received": 1}, {"received": 1})


async def test_of_equal_keys_the_first_counts_whether_or_not_it_has_effects(store):
    plain, with_effects = an_event(), an_event(effects=[moved()])

    answers = await store.record([plain, with_effects])

    assert [each.recorded_as for each in answers] == [RecordedAs.NEW, RecordedAs.DUPLICATE]
    assert await store.get("active_shipments", "shp-1") is None


async def test_a_note_is_from_the_last_transition_only(store, database):
    await store.apply([moved(at="2026-02-26T12:00:00.001Z")])
    late = RetryLater(timedelta(0), "X", "x", [moved(at="2026-02-26T12:00:00.000Z")])
    await settled(store, "k", late)
    assert (await store.entry("courier", "k")).note == "ignored_stale"

    await store.settle([settlement(await claimed(store), done())])

    assert "note" not in await database.processed_events.find_one()


async def test_labels_are_found_in_their_columns_by_an_index(store, database):
    await store.record([an_event("a"), an_event("b", labels=LABELS | {"shipmentId": "shp-2"})])

    found = await store.find(EntryQuery(workload="courier", labels={"shipmentId": "shp-2"}), Page(10))

    assert [entry.key for entry in found.items] == ["b"]
    where = {"shipmentId": {"$eq": "shp-2"}}
    order = {"firstSeenAt": -1, "_id": -1}
    plan = await database.command("explain", {"find": "processed_events", "filter": where, "sort": order})
    assert "SORT" not in str(plan["queryPlanner"]["winningPlan"])
    assert "shipmentId_1" in str(plan["queryPlanner"]["winningPlan"])


@pytest.mark.parametrize("labels", [{"$ne": "x"}, {"$where": "sleep(1)"}], ids=str)
async def test_a_filter_cannot_smuggle_in_a_command(store, labels):
    await settled(store, "k", dead_lettered())
    odd = {name: {name: value} for name, value in labels.items()}

    assert (await store.letters(LetterQuery(labels=odd), Page(10))).items == []
    assert (await store.letters(LetterQuery(key=labels), Page(10))).items == []  # a careless caller
    assert await store.entry("courier", labels) is None
    assert await store.get("active_shipments", labels) is None


async def test_a_job_whose_cancellation_was_confirmed_never_runs(make_store, store):
    elsewhere = make_store()
    await elsewhere.open()
    for number in range(40):
        await store.record([an_event(f"k{number}")])
        claiming = elsewhere.claim("courier", [f"id-k{number}"], worker="w", lease=DAY, max_attempts=5)

        (claim,), (cancelled,) = await asyncio.gather(claiming, store.cancel("courier", [f"id-k{number}"]))

        assert isinstance(claim, Overdue if cancelled else Claimed)


# --- documents --------------------------------------------------------------------------------------------------


async def test_instants_are_dates_for_people_and_text_for_effects(store, database):
    await settled(
        store, "k", done(moved(at="2026-02-26T12:00:00.250Z", orderId="o", occurred="2026-02-26T12:00:00.250Z"))
    )

    shipment = await database.active_shipments.find_one()
    document = await store.get("active_shipments", "shp-1")

    assert isinstance(shipment["lastEventAt"], datetime)
    assert shipment["lastEventAt"].microsecond == 250_000
    assert shipment["lastEventAt"].utcoffset() == timedelta(0)
    assert all(isinstance(shipment[name], datetime) for name in ("createdAt", "updatedAt"))
    assert isinstance(shipment["occurred"], str)
    assert (document["lastEventAt"], document["occurred"]) == ("2026-02-26T12:00:00.250Z",) * 2
    assert len(document["createdAt"]) == 24
    assert "_id" not in document


async def test_a_late_event_does_not_undo_a_newer_one_that_is_a_date(store):
    await settled(store, "a", done(moved(at="2026-02-26T12:00:00.001Z", currentState="new")))
    await settled(store, "b", done(moved(at="2026-02-26T12:00:00.000Z", currentState="old")))

    assert (await store.get("active_shipments", "shp-1"))["currentState"] == "new"
    assert (await store.entry("courier", "b")).note == "ignored_stale"


@pytest.mark.parametrize("value", ["soon", "2026-02-26T12:00:00+01:00", "2026-02-31T12:00:00.000Z", None, 5])
async def test_what_is_no_instant_stays_what_it_is(store, value):
    await settled(store, "k", done(Upsert("active_shipments", "x", {"lastEventAt": value})))

    assert (await store.get("active_shipments", "x"))["lastEventAt"] == value


async def test_documents_are_found_by_their_instants(store):
    await settled(store, "k", done(moved(currentState="there")))
    document = await store.get("active_shipments", "shp-1")
    where = {"currentState": "there", "updatedAt": document["updatedAt"]}

    found = await store.find_records(RecordQuery(collection="active_shipments", where=where), Page(10))

    assert found.items == [document]


async def test_what_was_before_1970_has_its_place_among_the_newest(parcels):
    years = (1968, 1969, 1970, 1971)
    await parcels.apply([Upsert("parcel_slips", f"of {year}", {"at": f"{year}-06-01T00:00:00.001Z"}) for year in years])
    query = RecordQuery(collection="parcel_slips", newest_by="at")
    cursor, found = None, []
    for _ in years:
        page = await parcels.find_records(query, Page(1, cursor))
        cursor, found = page.next, [*found, *(each["slip"] for each in page.items)]

    assert found == ["of 1971", "of 1970", "of 1969", "of 1968"]
    assert cursor is None


async def test_an_object_that_looks_like_a_reference_is_an_object(store):
    odd = {"$ref": "elsewhere", "$id": {"$ref": "x", "$id": 1}, "list": [{"$ref": "y", "$id": 2}], "a.b": 1, "$c": 2}
    await settled(store, "k", done(moved(metadata=odd)))

    assert (await store.get("active_shipments", "shp-1"))["metadata"] == odd
    await settled(store, "l", done(Upsert("active_shipments", "shp-1", {"orderId": "o"})))
    assert (await store.get("active_shipments", "shp-1"))["metadata"] == odd


async def test_a_document_that_was_there_before_us_keeps_its_identity(store, database):
    there = ObjectId()
    await database.active_shipments.insert_one({"_id": there, "shipmentId": "shp-1", "colour": "blue"})

    await settled(store, "k", done(moved(orderId="o")))

    shipment = await database.active_shipments.find_one()
    assert (shipment["_id"], shipment["colour"], shipment["orderId"]) == (there, "blue", "o")


def nest(depth):
    value = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "effect",
    [
        Upsert("active_shipments", "x", {"n": 2**63}),
        Upsert("active_shipments", "x", {"a": "x" * 9_000_000, "b": "x" * 9_000_000}),
        Upsert("active_shipments", "x", {"deep": nest(101)}),
        Upsert("active_shipments", "x", {"_id": 5}),
        Upsert("active_shipments", "x", {}, {"_id": 5}),
        Upsert("active_shipments", "x", {"$set": {"a": 1}}),
        Upsert("active_shipments", "x", {"shipmentId": "y"}),
        Upsert("active_shipments", "x", {"nul\0": 1}),
        Upsert("active_shipments", "x", {"a": {"nul\0": 1}}),
        Upsert("active_shipments", "x", {"a": {1: 2}}),
    ],
    ids=["number", "large", "deep", "id", "id at first", "operator", "other key", "NUL", "NUL inside", "no text"],
)
async def test_an_effect_that_mongodb_cannot_hold_is_refused_by_name(store, database, effect):
    await store.record([an_event("good"), an_event("bad"), an_event("after")])
    good, bad, after = [await claimed(store, key) for key in ("good", "bad", "after")]
    fine = [settlement(good, done(moved("x", orderId="1"))), settlement(after, done(moved("x", orderId="2")))]

    with pytest.raises(EffectRefused) as refused:
        await store.settle([fine[0], settlement(bad, done(effect)), fine[1]])

    assert refused.value.job_id == "id-bad"
    assert await database.active_shipments.count_documents({}) == 0
    assert [each.status for each in await store.settle(fine)] == [Status.PROCESSED] * 2


async def test_a_document_may_hold_whatever_json_and_64_bits_can(store):
    value = {"n": 2**63 - 1, "m": -(2**63), "deep": nest(90), "": "empty", "x.y": 1}
    await settled(store, "k", done(moved(metadata=value)))

    assert (await store.get("active_shipments", "shp-1"))["metadata"] == value


async def test_a_deleted_document_is_gone(store, database):
    await settled(store, "a", done(moved("x"), moved("y")))
    await settled(store, "b", done(Delete("active_shipments", "x"), Delete("active_shipments", "never")))

    assert [each["shipmentId"] async for each in database.active_shipments.find()] == ["y"]


async def test_no_more_documents_of_all_collections_together_are_pruned_than_asked(make_store):
    atlas = Collection("atlas", key="place", instants=("until",), expires="until")
    store = make_store([Parcels()], collections=[atlas])
    await store.open()
    soon = {"until": isoformat(await store.now() + DAY)}  # so that the server's own TTL does not delete them now
    slips = [Upsert("parcel_slips", f"s{number}", soon) for number in range(3)]
    await store.apply([Upsert("atlas", "rome", soon), *slips])
    store.link.clock.skew = 2 * DAY

    assert [(await store.prune(2)).records for _ in range(3)] == [2, 2, 0]


async def test_what_the_address_says_about_durability_does_not_count(mongo, make_store, mongo_database):
    weak = make_store(uri=f"{mongo.uri}&w=0&readPreference=secondary&readConcernLevel=local&retryWrites=false")
    await weak.open()

    (answer,) = await weak.record([an_event()])

    assert answer.recorded_as is RecordedAs.NEW
    assert weak.link.database.write_concern.document == {"w": "majority", "j": True}
    async with AsyncMongoClient(mongo.uri, readConcernLevel="majority") as client:
        assert await client[mongo_database].processed_events.count_documents({}) == 1


# --- the dead-letter queue ----------------------------------------------------------------------------------------


async def test_a_letter_that_a_restored_queue_has_again_is_unpublished_again(store):
    await store.detect_queue_reset("one")
    await settled(store, "k", dead_lettered())
    letter = dead_lettered().letter_id
    await store.review([letter], actor="ana", reason="seen")
    await store.close([letter], actor="ana", reason="done")
    assert await store.letters_to_unpublish("courier", 10) == [letter]
    await store.mark_unpublished([letter])
    assert await store.letters_to_unpublish("courier", 10) == []

    await store.detect_queue_reset("two")  # the queue was restored from an old copy: it has the letter again

    assert await store.letters_to_unpublish("courier", 10) == [letter]
    await store.mark_unpublished([letter])
    assert await store.letters_to_unpublish("courier", 10) == []
    assert await store.letters_to_publish("courier", 10) == []


async def test_letters_to_publish_or_unpublish_are_found_without_reading_others(store, database):
    await store.detect_queue_reset("one")
    for number in range(20):
        await settled(store, f"k{number}", dead_lettered(f"k{number}"))
    letters = [dead_lettered(f"k{number}").letter_id for number in range(20)]
    assert await store.mark_published(letters, "one")

    for status, published in (("pending", {"$ne": "one"}), ("closed", {"$ne": "-one"})):
        where = {"reviewStatus": {"$in": [status]}, "publishedTo": published}
        look = {"find": "dead_letter_events", "filter": where, "sort": {"createdAt": 1, "_id": 1}}
        plan = await database.command("explain", look, verbosity="executionStats")
        assert plan["executionStats"]["totalDocsExamined"] == 0
