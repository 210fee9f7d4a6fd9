"""Seed 002's collections, fields and indexes, by the seed's own names."""

from __future__ import annotations

import pytest

from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore
from holdfast.workloads.courier import Courier
from tests.support.clock import ManualClock

FIELDS = {
    "processed_events": {
        "idempotencyKey",
        "eventId",
        "eventType",
        "status",
        "attemptCount",
        "lastErrorCode",
        "lastErrorMessage",
        "firstSeenAt",
        "updatedAt",
        "expiresAt",
    },
    "dead_letter_events": {
        "eventId",
        "idempotencyKey",
        "eventType",
        "terminalReasonCode",
        "terminalReasonMessage",
        "attemptCount",
        "attemptHistory",
        "payloadSnapshot",
        "reviewStatus",
        "createdAt",
        "expiresAt",
    },
    "active_shipments": {"shipmentId", "orderId", "currentState", "updatedAt"},
}

LOOKUPS = {
    "unique idempotencyKey": ("SELECT * FROM ledger_entries WHERE workload = 'courier' AND key = 'k'", "ledger_key"),
    "(status, updatedAt)": (
        "SELECT * FROM ledger_entries WHERE workload = 'courier' AND status = 'failed' ORDER BY updated_at",
        "ledger_status",
    ),
    "entries by expiresAt": ("SELECT * FROM ledger_entries WHERE expires_at <= 5", "ledger_expiry"),
    "shipments by orderId": ("SELECT * FROM active_shipments WHERE orderId = 'o'", "active_shipments_by_orderId"),
    "shipments by (currentState, updatedAt)": (
        "SELECT * FROM active_shipments WHERE currentState = 's' ORDER BY updatedAt",
        "active_shipments_by_currentState_updatedAt",
    ),
    "(reviewStatus, createdAt)": (
        "SELECT * FROM dead_letters WHERE review_status = 'pending' ORDER BY created_at",
        "letters_review",
    ),
    "(createdAt)": ("SELECT * FROM dead_letters WHERE created_at > 5", "letters_created"),
    "letters by expiresAt": ("SELECT * FROM dead_letters WHERE expires_at <= 5", "letters_expiry"),
}


@pytest.fixture
async def query():
    database = Database(None, now=ManualClock().ms)
    await SqliteStore(database, [Courier()]).open()

    async def run(statement):
        return await database.read(lambda connection: connection.execute(statement).fetchall())

    yield run
    await database.close()


@pytest.mark.parametrize("name", FIELDS)
async def test_the_fields_of_the_seed_can_be_read_by_their_names(query, name):
    columns = {row[1] for row in await query(f"PRAGMA table_xinfo('{name}')")}

    assert FIELDS[name] - columns == set()
    await query(f"SELECT {', '.join(FIELDS[name])} FROM {name}")  # noqa: S608 - names from above


@pytest.mark.parametrize(("statement", "index"), LOOKUPS.values(), ids=LOOKUPS)
async def test_the_indexes_of_the_seed_are_used(query, statement, index):
    plan = " ".join(row[3] for row in await query(f"EXPLAIN QUERY PLAN {statement}"))

    assert plan.startswith("SEARCH")
    assert index in plan
    assert "USE TEMP B-TREE" not in plan


async def test_what_must_be_unique_is_unique(query):
    unique = {
        tuple(row[0] for row in await query(f"SELECT name FROM pragma_index_info('{name}')"))  # noqa: S608 - from the schema
        for table in ("ledger_entries", "dead_letters", "active_shipments")
        for (name,) in await query(f"SELECT name FROM pragma_index_list('{table}') WHERE \"unique\"")  # noqa: S608 - above
    }

    assert {("workload", "key"), ("workload", "job_id"), ("workload", "key", "generation"), ("shipmentId",)} <= unique
