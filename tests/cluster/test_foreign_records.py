"""The program on a MongoDB that another system has filled: what it says, before and after ``holdfast migrate``."""

from __future__ import annotations

import pytest
from pymongo import MongoClient

from tests.support.foreign_records import DATES, NodeRecords


@pytest.fixture(params=DATES)
def database(request, mongo, mongo_database):
    """What the other system left: an event in each state, a dead letter and a shipment."""
    node = NodeRecords(request.param)
    with MongoClient(mongo.uri) as client:
        database = client[mongo_database]
        database.processed_events.create_index("idempotencyKey", unique=True)
        database.processed_events.insert_many(
            [node.event("e1", "processed", 1), node.event("e2", "dead_lettered", 2), node.event("e3", "failed", 1)]
        )
        database.dead_letter_events.insert_one(node.letter("e2"))
        database.active_shipments.create_index("shipmentId", unique=True)
        database.active_shipments.insert_one(node.shipment("e1"))
        yield database


def other_systems(said) -> list[str]:
    return [each["message"] for each in said.json["checks"] if each["check"] == "other systems"]


def read(program) -> list[str]:
    """Everything that people read, and the id of the one dead letter."""
    listed = program("events", "list", "--json")
    assert {each["key"]: each["status"] for each in listed.json["items"]} == {
        "courier-x:e1": "processed",
        "courier-x:e2": "dead_lettered",
        "courier-x:e3": "failed",
    }
    assert program("events", "show", "courier-x:e2").code == 0
    attempts = program("events", "show", "courier-x:e2", "--json").json["attemptHistory"]
    assert [each["worker"] for each in attempts] == ["another system"] * 2
    letters = program("dlq", "list", "--json").json["items"]
    assert [each["terminalReasonCode"] for each in letters] == ["ETIMEDOUT_EXHAUSTED"]
    shown = program("dlq", "show", letters[0]["id"])
    assert (shown.code, "shp_e2" in shown.out) == (0, True)
    return [each["id"] for each in letters]


def test_records_of_another_system_are_read_named_and_brought_over(program, database):
    said = program("doctor", "--json")
    assert other_systems(said) == [
        "processed_events has 2 settled records of another system.",
        "dead_letter_events has 1 dead letters of another system.",
        "processed_events has 1 unsettled records of another system.",
    ]
    assert "`holdfast migrate` brings them over." in said.out
    before = read(program)

    migrated = program("migrate", "--json")

    assert migrated.code == 0
    assert "Brought over 1 records of another system in dead_letter_events." in migrated.json["done"]
    assert read(program) == before
    said = program("doctor", "--json")
    assert (said.code, other_systems(said)) == (0, ["processed_events has 1 unsettled records of another system."])
    assert program("migrate", "--json").json["done"] == []


def test_a_dead_letter_of_another_system_is_reviewed_before_anything_was_brought_over(program, database):
    (letter,) = read(program)

    reviewed = program("dlq", "review", letter, "--reason", "the courier has mended it", "--json")

    assert reviewed.code == 0, reviewed.err
    assert program("dlq", "list", "--status", "reviewed", "--json").json["items"][0]["id"] == letter
    replayed = program("dlq", "replay", letter, "--reason", "once more", "--json")
    assert replayed.code == 0, replayed.err
    assert program("events", "show", "courier-x:e2", "--json").json["status"] == "received"
