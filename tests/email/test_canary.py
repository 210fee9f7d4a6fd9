"""The canary run on one SQLite file: no personal data is left in a wrong place (I14)."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import httpx
import pytest

from tests.email import canary
from tests.support.processes import Fleet
from tests.support.smtp_server import SmtpServer

QUEUE = "email:send"
PLANT = """
INSERT INTO queue_jobs (queue, job_id, name, data, priority, state) VALUES (?, ?, 'email', ?, 0, 'ready')
"""
UNSETTLED = """
SELECT (SELECT count(*) FROM ledger_entries WHERE status NOT IN ('processed', 'dead_lettered', 'expired'))
     + (SELECT count(*) FROM queue_jobs WHERE queue = ?)
"""


def query(path, statement, *values):
    with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection, connection:
        return connection.execute(statement, values).fetchall()


def columns(path) -> dict[str, bytes]:
    """The content of every column of every table."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        names = [name.decode() for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {}
        for table in names:
            rows = connection.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - names out of the schema
            titles = [each[0] for each in rows.description]
            for row in rows:
                for title, value in zip(titles, row, strict=True):
                    place = f"{table}.{title}"
                    found[place] = (
                        found.get(place, b"") + (value if isinstance(value, bytes) else b"%r" % value) + b"\n"
                    )
    return found


@pytest.mark.slow
@pytest.mark.chaos
async def test_a_canary_run_leaves_no_trace_in_one_file(tmp_path):
    folder = tmp_path / "data"
    path = folder / "holdfast.db"
    (tmp_path / "logs").mkdir()
    with SmtpServer() as server:
        settings = canary.environment(folder, server)
        async with Fleet(settings, tmp_path / "logs") as fleet:
            run = await canary.prepare(folder, server, fleet, settings)

            async def plant(job, job_id):
                query(path, PLANT, QUEUE, job_id, json.dumps(job))

            await canary.fly(run, plant, lambda: query(path, UNSETTLED, QUEUE)[0][0] == 0)
            assert_it_flew(run, dict(query(path, "SELECT status, count(*) FROM ledger_entries GROUP BY status")))

            before = columns(path)
            body = before.pop("ledger_entries.body")
            assert run.found({"ledger_entries.body": body}, people=False) == []
            assert canary.LOCAL_PART.encode() in body  # the job itself: the one place that may tell whom it is for
            assert run.found(before, people=True) == []

            await erase_two(run, lambda: columns(path))
            await canary.stop(run)
    assert run.found({who: text.encode() for who, text in run.said.items()}, people=True) == []
    files = {each.name: each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    assert "holdfast.db" in files
    assert run.found(files, people=False) == []
    for person in (run.everybody[0], run.everybody[10]):
        assert [name for name, content in files.items() if person.address.encode() in content] == []


def assert_it_flew(run, statuses) -> None:
    """Check that the run had every kind of ending."""
    assert sum(statuses.values()) == canary.EMAILS + len(run.planted)
    assert statuses["dead_lettered"] >= canary.REFUSED + len(run.planted)
    assert statuses["processed"] > max(canary.EMAILS - 100, canary.EMAILS * 0.6)
    assert "z***@c***.example" in run.said["API"]
    assert "VALIDATION_FAILED" in run.said["holdfast dlq"]


async def erase_two(run, look) -> None:
    """Erase a person whose email was sent and one whose email failed. Then no data is left but duplicates are found."""
    for person in (run.everybody[0], run.everybody[10]):
        marks = [each.encode() for each in (person.address, person.name, f'"{person.external_id}"')]
        assert any(mark in content for content in look().values() for mark in marks)
        erase = ("privacy", "erase", "--recipient", person.address, "--yes", "--json")
        first, second = json.loads(await run.command(*erase)), json.loads(await run.command(*erase))
        assert (first["recipients"], first["emails"], first["jobs"], first["inWork"]) == (1, 1, 1, [])
        assert second.pop("logEmptied") is first["logEmptied"]
        assert not any(second.values())
        async with httpx.AsyncClient(base_url=run.address, timeout=60) as client:
            key = {"idempotency-key": f"key-{person.external_id}"}
            serial = run.everybody.index(person)
            answer = await client.post("/v1/email/send", json=canary.an_email(person, serial), headers=run.tenant | key)
        run.keep("API", answer.text)
        assert answer.status_code == 202, answer.text
        assert (answer.json()["outboxId"], answer.json()["duplicate"]) == (run.outbox_ids[person.external_id], True)
        assert [place for place, content in look().items() if any(mark in content for mark in marks)] == []
