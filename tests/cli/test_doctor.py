from __future__ import annotations

import asyncio
import socket
from datetime import timedelta

import pytest

from holdfast.contracts.ledger import NewEntry
from holdfast.contracts.queues import QueueJob
from holdfast.sqlite import Database
from holdfast.sqlite.database import wall_clock_ms
from holdfast.stores.sqlite import SqliteStore
from holdfast.wiring import open_system
from tests.cli.commands import APP, SECRET, settings
from tests.cli.parcels import Parcel, app


@pytest.fixture(autouse=True)
def free_port(home, monkeypatch):
    monkeypatch.setenv("API_PORT", "0")


def findings(said, level):
    return {each["check"]: each for each in said.json["checks"] if each["verdict"] == level}


def test_all_is_well_before_the_first_start(program, home):
    said = program("doctor", "--json")
    assert said.code == 0
    assert said.json["ok"] is True
    checks = {each["check"] for each in said.json["checks"]}
    assert {"config", "secrets", "sqlite", "clock", "port", "data folder", "disk space", "durable commit"} <= checks
    assert list(home.iterdir()) == []
    assert "OK" in program("doctor").out


def test_it_leaves_the_data_folder_as_it_was(program, home, empty_ledger):
    before = {each.name for each in (home / "holdfast-data").iterdir() if not each.name.endswith(("-wal", "-shm"))}
    assert program("doctor", "--json").json["failed"] == 0
    after = {each.name for each in (home / "holdfast-data").iterdir() if not each.name.endswith(("-wal", "-shm"))}
    assert after == before


def test_settings_that_cannot_be_loaded(program, monkeypatch):
    monkeypatch.setenv("RETRY_MAX_ATTEMPTS", "none")
    said = program("doctor", "--json")
    assert said.code == 1
    assert "RETRY_MAX_ATTEMPTS" in findings(said, "FAIL")["config"]["message"]


def test_unsafe_secrets(program, monkeypatch):
    monkeypatch.setenv("OPERATOR_TOKEN", "changeme")
    said = program("doctor", "--json")
    assert said.code == 1
    assert "OPERATOR_TOKEN" in findings(said, "FAIL")["secrets"]["message"]
    assert "holdfast init" in findings(said, "FAIL")["secrets"]["advice"]
    monkeypatch.setenv("HOLDFAST_DEMO", "true")
    said = program("doctor", "--json")
    assert said.code == 0
    assert "secrets" in findings(said, "WARN")


def test_couriers_without_a_secret(program, monkeypatch):
    monkeypatch.delenv("COURIER_SECRETS")
    assert "couriers" in findings(program("doctor", "--json"), "WARN")
    past = f'{{"courier-x": {{"secret": "{SECRET}", "notAfter": "2020-01-01T00:00:00Z"}}}}'
    monkeypatch.setenv("COURIER_SECRETS", past)
    assert "courier-x" in findings(program("doctor", "--json"), "WARN")["couriers"]["message"]


def test_a_config_file_that_others_can_read(program, home):
    (home / "holdfast.toml").write_text("api_host = '127.0.0.1'\n")
    (home / "holdfast.toml").chmod(0o644)
    assert findings(program("doctor", "--json"), "WARN")["config file"]["advice"] == "chmod 600 holdfast.toml"
    (home / "holdfast.toml").chmod(0o600)
    assert "config file" not in findings(program("doctor", "--json"), "WARN")


def test_a_port_that_somebody_else_has(program, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as other:  # it never answers
        monkeypatch.setenv("API_PORT", str(other.getsockname()[1]))
        monkeypatch.setattr("holdfast.cli.doctor.environment._TIMEOUT_SECONDS", 0.2)
        said = program("doctor", "--json")
    assert said.code == 1
    assert "in use" in findings(said, "FAIL")["port"]["message"]
    assert "API_PORT" in findings(said, "FAIL")["port"]["advice"]


@pytest.mark.parametrize("data", ["file", "file/within"])
def test_a_data_folder_that_is_a_file(program, home, data):
    (home / "file").write_text("")
    said = program("doctor", "--json", "--data", data)
    assert said.code == 1
    assert "not a folder" in findings(said, "FAIL")["data folder"]["message"]


def test_a_full_disk(program, monkeypatch):
    class Usage:
        free = 5 * 1024 * 1024

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    said = program("doctor", "--json")
    assert said.code == 1
    assert "5 MiB" in findings(said, "FAIL")["disk space"]["message"]


def test_a_ledger_that_is_broken(program, home):
    (home / "holdfast-data").mkdir()
    (home / "holdfast-data" / "holdfast.db").write_bytes(b"This is not a database, however hard you look. " * 200)
    said = program("doctor", "--json")
    assert said.code == 1
    assert "ledger" in findings(said, "FAIL")


def test_an_app_that_is_none(program):
    said = program("doctor", "--json", "--app", "no_such_module_at_all:app")
    assert said.code == 1
    assert "app" in findings(said, "FAIL")


def test_what_waits_for_people(program, letters):
    said = program("doctor", "--json", "--app", APP)
    assert said.code == 0
    assert "3 wait" in findings(said, "WARN")["dead letters"]["message"]
    assert findings(said, "OK")["ledger, parcels"]["message"] == "3 dead_lettered"


def test_a_paused_queue_and_its_depth(program, home):
    async def prepare() -> None:
        async with open_system(settings(home / "holdfast-data")) as system:
            await system.broker.publish("courier-events-main", [QueueJob("one", "{}"), QueueJob("two", "{}")])
            await system.broker.pause("courier-events-main")

    asyncio.run(prepare())
    found = findings(program("doctor", "--json"), "WARN")["queue, courier-events-main"]
    assert "2 ready" in found["message"]
    assert "queue resume" in found["advice"]


def test_jobs_of_vanished_workers(program, home, monkeypatch):
    async def prepare() -> None:
        async with open_system(settings(home / "holdfast-data"), app) as system:
            await system.intake.accept(system.workloads["parcels"], Parcel(number="1"))
            entry = await system.store.entry("parcels", "parcel/1")
            await system.store.claim(
                "parcels", [entry.job_id], worker="gone", lease=timedelta(milliseconds=1), max_attempts=2
            )

    asyncio.run(prepare())
    assert "leases, parcels" in findings(program("doctor", "--json", "--app", APP), "OK")
    monkeypatch.setattr("holdfast.cli.doctor.ledger._SLACK", timedelta(0))
    found = findings(program("doctor", "--json", "--app", APP), "WARN")["leases, parcels"]
    assert "1 jobs" in found["message"]


def test_a_clock_that_was_set_back(program, home, empty_ledger):
    async def prepare() -> None:
        """Record an entry while the clock is an hour ahead."""
        database = Database(home / "holdfast-data" / "holdfast.db", now=lambda: wall_clock_ms() + 3_600_000)
        try:
            entry = NewEntry(workload="courier", key="k", job_id="k", body="{}", fingerprint="f")
            await SqliteStore(database, []).record([entry])
        finally:
            await database.close()

    assert findings(program("doctor", "--json"), "OK")["clock, courier"]
    asyncio.run(prepare())
    said = program("doctor", "--json")
    assert said.code == 1
    assert " s in the future" in findings(said, "FAIL")["clock, courier"]["message"]
