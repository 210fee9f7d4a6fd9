"""The collections, fields and indexes of the specification, by its own names. Frequent queries use an index."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Collection
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.ledger import NewEntry, Status
from holdfast.contracts.queries import EntryQuery, Page, RecordQuery
from holdfast.features.courier.contract import ActiveShipment
from holdfast.features.courier.workload import Courier
from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore, entries, ledger
from holdfast.stores.sqlite.records import RecordTable
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
    "active_shipments": set(ActiveShipment.model_fields) - {"source"},
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


DRAWER = Collection("drawer", key="slipId", indexes=(("owner", "at"),), instants=("at", "until"), expires="until")


@pytest.fixture
async def query():
    database = Database(None, now=ManualClock().ms)
    await SqliteStore(database, [Courier()], collections=[DRAWER]).open()

    async def run(statement, parameters=()):
        return await database.read(lambda connection: connection.execute(statement, parameters).fetchall())

    yield run
    await database.close()


@pytest.mark.parametrize("name", FIELDS)
async def test_the_fields_of_the_specification_can_be_read_by_their_names(query, name):
    columns = {row[1] for row in await query(f"PRAGMA table_xinfo('{name}')")}

    assert FIELDS[name] - columns == set()
    await query(f"SELECT {', '.join(FIELDS[name])} FROM {name}")  # noqa: S608 - names from above


@pytest.mark.parametrize(("statement", "index"), LOOKUPS.values(), ids=LOOKUPS)
async def test_the_indexes_of_the_specification_are_used(query, statement, index):
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


# --- what runs often must be a lookup ---------------------------------------------------------------------------


async def plan_of(query, statement, parameters):
    return [row[3] for row in await query(f"EXPLAIN QUERY PLAN {statement}", parameters)]


async def test_the_end_of_a_fairness_key_is_one_lookup(query):
    plan = await plan_of(query, entries._ENDS, {"workload": "w", "fairness_keys": "[]"})

    assert [step for step in plan if "ledger_entries" in step] == [
        "SEARCH ledger_entries USING INDEX ledger_lanes (workload=? AND lane=?)",
    ]


async def test_the_front_of_the_fairness_keys_is_one_lookup(query):
    plan = await plan_of(query, entries._FRONT, {"workload": "w"})

    assert [step for step in plan if "ledger_entries" in step] == [
        "SEARCH ledger_entries USING INDEX ledger_front (workload=?)",
        "SEARCH ledger_entries USING INDEX ledger_next (workload=?)",
    ]


@pytest.mark.parametrize("in_work", [1, 0])
async def test_a_long_fairness_key_costs_what_a_short_one_costs(in_work):
    costs = []
    for length in (2, 500):
        database = Database(None, now=ManualClock().ms)
        store = SqliteStore(database, [Courier()])
        await store.open()
        jobs = [standing(place) for place in range(length)]
        await store.record(jobs)
        taken = [job.job_id for job in jobs[:in_work]]
        await store.claim("courier", taken, worker="w", lease=timedelta(hours=1), max_attempts=5)
        costs.append(await database.read(steps_of_lines))
        await database.close()

    assert costs[0] == costs[1]


def standing(place):
    return NewEntry(
        workload="courier",
        key=f"k{place}",
        job_id=f"j{place}",
        body="{}",
        fingerprint="",
        fairness_key="a",
        priority=place,
    )


def steps_of_lines(connection):
    return steps_of(connection, lambda: entries.queue_places(connection, "courier", ["a", "b"]))


def steps_of(connection, ask):
    """How many steps SQLite's machine takes for the question."""
    steps = []
    connection.set_progress_handler(lambda: steps.append(1), 1)
    ask()
    connection.set_progress_handler(None, 1)
    return len(steps)


async def test_a_job_without_a_fairness_key_is_in_no_index_of_the_fairness_keys(query):
    indexes = await query("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql LIKE '%lane%'")

    assert {name for name, _ in indexes} == {"ledger_lanes", "ledger_front", "ledger_next"}
    assert all("WHERE lane IS NOT NULL" in sql for _, sql in indexes)


@pytest.mark.parametrize(
    "statement",
    [
        *(entries._CANCEL, entries._ASKED_TO_STOP, entries._ENDED, entries._REDACT, entries._REDACT_LETTERS),
        ledger._NOTE_PROGRESS,
    ],
)
async def test_jobs_that_are_named_are_looked_up(query, statement):
    parameters = {"workload": "w", "job_ids": "[]", "bodies": "{}", "now": 1, "running": 1, "leases": "[]"}
    parameters |= {"keys": "[]", "rows": "[]"}

    plan = await plan_of(query, statement, {name: each for name, each in parameters.items() if f":{name}" in statement})

    assert [step for step in plan if step.startswith(("SCAN ledger_entries", "SCAN e", "SCAN dead_letters"))] == []
    assert [step for step in plan if step.startswith("SEARCH")] != []
    assert [step for step in plan if "AUTOMATIC" in step] == []


NOON = datetime(2026, 2, 26, 12, tzinfo=UTC)
SPAN = {"seen_after": NOON, "seen_before": NOON + timedelta(hours=1)}
SHIPMENT = {"labels": {"shipmentId": "s"}}
BY_SHIPMENT = "workload=? AND <expr>=?"
LISTINGS = {
    "all": ({}, "ledger_seen (workload=?"),
    "status": ({"status": Status.FAILED}, "ledger_status_seen (workload=? AND status=?"),
    "time": (SPAN, "ledger_seen (workload=?"),
    "status and time": ({"status": Status.FAILED, **SPAN}, "ledger_status_seen (workload=? AND status=?"),
    "label": (SHIPMENT, f"ledger_label_shipmentId ({BY_SHIPMENT}"),
    "label and time": ({**SHIPMENT, **SPAN}, f"ledger_label_shipmentId ({BY_SHIPMENT}"),
    "label of processed jobs": ({**SHIPMENT, "status": Status.PROCESSED}, f"ledger_label_shipmentId ({BY_SHIPMENT}"),
    "label of failed jobs": ({**SHIPMENT, "status": Status.FAILED}, "ledger_status_seen (workload=? AND status=?"),
}


@pytest.mark.parametrize("with_cursor", [False, True], ids=["first page", "next page"])
@pytest.mark.parametrize(("conditions", "index"), LISTINGS.values(), ids=LISTINGS)
async def test_entries_are_listed_in_the_order_of_an_index(query, conditions, index, with_cursor):
    wanted = EntryQuery(workload="courier", **conditions)
    given = entries._conditions(wanted) | ({entries._AFTER: (5, 5)} if with_cursor else {})
    values = [value for each in given.values() for value in each]

    (plan,) = await plan_of(query, entries._listing(entries._index_for(None, wanted), given), (*values, 10))

    assert plan.startswith(f"SEARCH ledger_entries USING INDEX {index}"), plan
    if with_cursor or "seen_after" in conditions:
        assert "first_seen_at" in plan


async def test_few_keys_with_one_beginning_are_sorted_and_many_are_not():
    database = Database(None, now=ManualClock().ms)
    store = SqliteStore(database, [Courier()])
    await store.open()
    await store.record([standing(place) for place in range(entries._MOST_TO_SORT + 2)])

    def index_for(prefix):
        wanted = EntryQuery(workload="courier", key_prefix=prefix)
        return database.read(lambda connection: entries._index_for(connection, wanted))

    assert await index_for("k1") == "ledger_key"
    assert await index_for("k") == "ledger_seen"
    found = await store.find(EntryQuery(workload="courier", key_prefix="k"), Page(3))
    assert [entry.key for entry in found.items] == [f"k{entries._MOST_TO_SORT + 1 - n}" for n in range(3)]
    await database.close()


@pytest.mark.parametrize("conditions", [each for each, _ in LISTINGS.values()], ids=LISTINGS)
async def test_a_list_costs_nothing_for_the_jobs_of_other_workloads(conditions):
    costs = []
    for others in (1, 500):
        database = Database(None, now=ManualClock().ms)
        store = SqliteStore(database, [Courier()])
        await store.open()
        await store.record([standing(0)])
        await store.record([replace(standing(place), workload="another") for place in range(1, others + 1)])
        wanted = EntryQuery(workload="courier", **conditions)
        costs.append(
            await database.read(
                lambda connection, wanted=wanted: steps_of(
                    connection, lambda: entries.find(connection, wanted, Page(50), {"shipmentId"})
                )
            )
        )
        await database.close()

    assert costs[0] == costs[1]


# --- names of workloads -----------------------------------------------------------------------------------------


class Named(Courier):
    """A workload with this name."""

    def __init__(self, name, **changes):
        super().__init__()
        facts = {"name": name, "ledger_name": None, "letters_name": None, "collections": ()}
        vars(self).update(facts | changes)


async def test_a_name_with_a_hyphen_has_views_of_its_own():
    database = Database(None, now=ManualClock().ms)
    longest = "a" * 60
    names = ["order-sync", "order_sync", "Order--Sync-", longest]
    store = SqliteStore(database, [Named(name) for name in names])
    await store.open()
    for name in names:
        await store.record([replace(standing(0), workload=name, key=f"of {name}", labels={"shipmentId": "s"})])

    for name in names:
        statement = f'SELECT idempotencyKey, status FROM "{name}_jobs"'  # noqa: S608 - a name from above
        seen = await database.read(lambda c, statement=statement: c.execute(statement).fetchall())
        assert seen == [(f"of {name}", "received")]
        statement = f'SELECT count(*) FROM "{name}_dead_letters"'  # noqa: S608 - a name from above
        assert await database.read(lambda c, statement=statement: c.execute(statement).fetchall()) == [(0,)]
        found = await store.find(EntryQuery(workload=name, labels={"shipmentId": "s"}), Page(10))
        assert [entry.key for entry in found.items] == [f"of {name}"]
    await database.close()


@pytest.mark.parametrize(
    "workloads",
    [
        [Named("sync"), Named("Sync")],
        [Named("sync"), Named("other", letters_name="SYNC_jobs")],
        [Named("queue")],
        [Named("sqlite_sync")],
        [Named("a b")],
        [Named('x" AS SELECT 1; --')],
        [Named("x" * 80)],
        [Named("sync", collections=[Collection("sync_jobs", key="k")])],
        [Named("sync", collections=[Collection("Ledger_Entries", key="k")])],
        [Named("sync", collections=[Collection("a-b", key="k")])],
        [Named("sync", collections=[Collection("ab", key="k-y")])],
        [Named("a", indexed_labels=["x"]), Named("b", indexed_labels=["X"])],
        [Named("a", indexed_labels=["x-y"])],
    ],
    ids=lambda workloads: " and ".join(each.name for each in workloads),
)
async def test_names_that_cannot_work_are_refused_at_the_start(workloads):
    database = Database(None, now=ManualClock().ms)

    async def start():
        await SqliteStore(database, workloads).open()

    with pytest.raises(ConfigurationError):
        await start()
    await database.close()


async def test_a_label_that_several_workloads_index_is_one_index(query):
    indexes = await query("SELECT name FROM sqlite_master WHERE type = 'index' AND sql LIKE '%labels ->>%'")

    assert indexes == [("ledger_label_shipmentId",)]


async def test_a_label_can_be_indexed_later_and_the_index_of_an_earlier_version_goes():
    database = Database(None, now=ManualClock().ms)
    plain, indexed = Courier(), Courier()
    plain.indexed_labels = ()
    store = SqliteStore(database, [plain])
    await store.open()
    await store.record([replace(standing(place), labels={"shipmentId": f"s{place % 2}"}) for place in range(4)])
    await database.write(
        lambda c: c.execute('CREATE INDEX "ledger_courier_shipmentId" ON ledger_entries (workload, labels)')
    )

    store = SqliteStore(database, [indexed])
    await store.open()

    found = await store.find(EntryQuery(workload="courier", labels={"shipmentId": "s1"}), Page(10))
    assert [entry.key for entry in found.items] == ["k3", "k1"]
    names = await database.read(lambda c: c.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall())
    assert ("ledger_courier_shipmentId",) not in names
    await database.close()


async def test_the_newest_documents_of_somebody_are_listed_from_the_index(query):
    statement = RecordTable(DRAWER).listing(RecordQuery(collection="drawer", where={"owner": "ana"}, newest_by="at"))

    (plan,) = await plan_of(query, statement, ("z", "", "ana", 10))

    assert plan.startswith("SEARCH drawer USING INDEX drawer_by_owner_at (owner=? AND (at")


async def test_documents_to_forget_are_looked_up(query):
    plan = await plan_of(query, RecordTable(DRAWER).prune, ("2026", 10))

    assert "SEARCH drawer USING INDEX drawer_expiring (until<?)" in plan
    assert [step for step in plan if step.startswith("SCAN drawer") or "TEMP B-TREE" in step] == []
