"""What the worker and maintenance ask of SQLite is found by an index: no cost grows with what is stored or waits."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta

from holdfast import Done, Reject, Retry
from holdfast.contracts.ledger import Status
from tests.support.gateway import assembled, lose_the_queue
from tests.support.waiting import eventually
from tests.support.workloads import Parcels

LARGE = ("ledger_entries", "dead_letters", "queue_jobs")
"""The tables that grow with the jobs."""
OPEN = "USING INDEX ledger_due"
"""This index has only the entries that are not settled: after a queue was lost, all of them are due."""
READS_OR_CHANGES = ("SELECT", "UPDATE", "DELETE", "INSERT")


@asynccontextmanager
async def watched(gateway):
    """Collect the statements that run during the body, with their values."""
    statements = []
    connection = gateway.database._writer._connection
    connection.set_trace_callback(statements.append)
    try:
        yield statements
    finally:
        connection.set_trace_callback(None)


async def scans(gateway, statements):
    """The statements that read a whole large table, and how."""
    found = {}

    def explain(connection):
        for statement in dict.fromkeys(statements):
            if statement.lstrip().startswith(READS_OR_CHANGES):
                plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
                bad = [line for line in plan if any(f"SCAN {table}" in line for table in LARGE) and OPEN not in line]
                if bad:
                    found[statement] = bad

    await gateway.database.read(explain)
    return found


async def test_no_round_of_maintenance_reads_a_whole_table():
    def script(job):
        return {"g": Reject("GONE"), "r": Retry("BUSY")}.get(job.data.id[0], Done())

    async with assembled(Parcels(script)) as gateway:
        for name in ("a", "g1", "g2", "r1"):
            await gateway.accept(name)
        async with gateway.working():
            await gateway.until("a", Status.PROCESSED)
            await gateway.until("g2", Status.DEAD_LETTERED)
            await gateway.until("r1", Status.FAILED)
        await gateway.accept("waits")
        async with watched(gateway) as statements:
            await gateway.maintenance.round()
            gateway.clock.advance(timedelta(hours=1))
            await gateway.maintenance.round()
            await lose_the_queue(gateway.database)
            await gateway.broker.open()
            await gateway.maintenance.round()
            gateway.clock.advance(timedelta(days=200))
            await gateway.maintenance.round()

        assert len(statements) > 50
        statements = [each for each in statements if each != "DELETE FROM queue_jobs"]  # the test's own
        assert await scans(gateway, statements) == {}


async def test_no_step_of_a_worker_reads_a_whole_table():
    async with assembled() as gateway, watched(gateway) as statements:
        for number in range(3):
            await gateway.accept(f"p{number}")
        async with gateway.working():
            await eventually(lambda: _all_done(gateway))

        assert await scans(gateway, statements) == {}


async def _all_done(gateway):
    return all([await gateway.status(f"p{number}") is Status.PROCESSED for number in range(3)])
