"""``documents list``, ``show``, ``text``, ``cancel``: what operators see in the store."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.wiring import open_system
from tests.cli.commands import settings


@pytest.fixture
def data(program, home):
    program("tenants", "add", "Acme")
    program("tenants", "add", "Other")
    return home / "holdfast-data"


def hand_in(data, tenant, *job_ids, claim=False):
    """Jobs that name a URL, admitted as by the API; with ``claim`` a worker has claimed them."""

    async def live():
        async with open_system(settings(data)) as system:
            company_id = (await system.tenants.named(tenant)).company_id
            workload = system.service("documents").workload
            for job_id in job_ids:
                asked = {
                    "job_id": job_id,
                    "job_type": "OCR",
                    "input_type": "PDF",
                    "url": "https://example.com/letter.pdf?token=hunter2hunter2",
                    "metadata": {"case": 42},
                }
                admitted = await system.service("documents").admission.admit(
                    asked, company_id=company_id, received_at=datetime.now(UTC)
                )
                await system.intake.accept(workload, admitted.data, effects=admitted.effects)
                if claim:
                    (claimed,) = await system.store.claim(
                        workload.name, [admitted.data.key], worker="w", lease=timedelta(minutes=1), max_attempts=3
                    )
                    await system.store.apply([workload.records.began(admitted.data, claimed.attempt)])

    asyncio.run(live())


def test_jobs_are_listed_newest_first_narrowed_and_in_pages(program, data):
    assert program("documents", "list").err == "There are no documents yet.\n"
    hand_in(data, "Acme", "a-1", "a-2")
    hand_in(data, "Other", "o-1")
    assert program("documents", "cancel", "a-2").code == 0

    def listed(*arguments):
        return [each["job_id"] for each in program("documents", "list", "--json", *arguments).json["items"]]

    assert listed() == ["o-1", "a-2", "a-1"]
    assert listed("--tenant", "Acme") == ["a-2", "a-1"]
    assert listed("--status", "CANCELLED") == ["a-2"]
    assert listed("--tenant", "Other", "--status", "PENDING") == ["o-1"]
    first = program("documents", "list", "--limit", "2", "--json").json
    assert listed("--limit", "2", "--cursor", first["next"]) == ["a-1"]
    table = program("documents", "list").out
    for words in ("o-1", "PENDING", "CANCELLED", "PDF"):
        assert words in table
    assert program("documents", "list", "--status", "FAILED").err == "There is no such job.\n"
    assert program("documents", "list", "--status", "LOST").code == 2
    assert program("documents", "list", "--tenant", "Nobody").code == 1


def test_a_job_that_waits_is_shown_cancelled_and_stays_so(program, data):
    hand_in(data, "Acme", "a-1")
    shown = program("documents", "show", "a-1")
    for words in ("PENDING", "OCR of PDF", '{"case": 42}', "0 of 3", "No worker has claimed it."):
        assert words in shown.out
    assert "hunter2" not in shown.out
    missing = program("documents", "text", "a-1")
    assert (missing.code, missing.out) == (1, "")
    assert "PENDING: there is no text yet." in missing.err
    assert program("documents", "cancel", "a-1", "--json").json == {
        "job_id": "a-1",
        "status": "CANCELLED",
        "cancel_requested": False,
    }
    again = program("documents", "cancel", "a-1")
    assert (again.code, again.err) == (0, "a-1 will not be read.\n")
    assert program("documents", "show", "a-1", "--json").json["result"]["status"] == "CANCELLED"
    assert "CANCELLED: there is no text." in program("documents", "text", "a-1").err


def test_a_job_in_work_is_asked_to_stop(program, data):
    hand_in(data, "Acme", "a-1", claim=True)
    said = program("documents", "cancel", "a-1")
    assert said.code == 0
    assert "in progress" in said.err
    shown = program("documents", "show", "a-1", "--json").json
    assert (shown["status"], shown["cancel_requested"]) == ("PROCESSING", True)
    assert [each["attempt"] for each in shown["attempt_history"]] == [1]
    assert "PROCESSING (asked to stop)" in program("documents", "show", "a-1").out


@pytest.mark.parametrize("command", ["show", "text", "cancel"])
def test_an_unknown_job_is_told(program, data, command):
    said = program("documents", command, "nobody-knows-it")
    assert said.code == 1
    assert "holdfast documents list" in said.err


def test_where_nothing_has_run_and_where_nothing_can(program, data, monkeypatch):
    assert "There is no ledger" in program("documents", "list", "--data", "elsewhere").err
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    said = program("documents", "list")
    assert said.code == 2
    assert "pip install 'holdfast-gateway[documents]'" in said.err
    assert "rapidocr" in said.err


def test_two_tenants_may_have_a_job_of_the_same_id(program, data):
    hand_in(data, "Acme", "same")
    hand_in(data, "Other", "same")
    both = program("documents", "show", "same")
    assert (both.code, both.err) == (2, "Error: Several tenants have a job with this id: add --tenant.\n")
    assert program("documents", "cancel", "same", "--tenant", "Acme").code == 0
    status = {who: program("documents", "show", "same", "--tenant", who, "--json").json for who in ("Acme", "Other")}
    assert {who: (each["job_id"], each["status"]) for who, each in status.items()} == {
        "Acme": ("same", "CANCELLED"),
        "Other": ("same", "PENDING"),
    }
