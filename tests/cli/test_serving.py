"""The real program as processes of its own: it starts, takes events, works them, and stops without losing any."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from tests.cli.commands import APP, ENVIRONMENT, SECRET, assert_no_secrets
from tests.support.program import START_SECONDS, Server, is_alive, started, stop, wait_until


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Server]:
    """``holdfast <arguments>`` until the block ends; then SIGTERM, which it must answer with exit code 0."""
    with started(folder, ENVIRONMENT, *arguments) as server:
        yield server
        rest = stop(server)
        assert_no_secrets(rest + server.log.read_text())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("up"), "up", "--json", "--port", "0", "--app", APP) as started:
        yield started


@pytest.fixture
def near(server, program, monkeypatch):
    """The program, next to the running server and on the same folder."""
    monkeypatch.setenv("HOLDFAST_DATA", str(server.data))
    monkeypatch.setenv("API_PORT", server.address.rpartition(":")[2])
    return program


def settled(program, key: str, *options: str) -> dict:
    """The job, once it is settled."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        shown = program("events", "show", key, "--json", *options)
        if shown.code == 0 and shown.json["status"] in {"processed", "dead_lettered"}:
            return shown.json
    raise AssertionError(shown)


# --- up, and what talks to it -----------------------------------------------------------------------------------------


def test_up_says_where_it_is(server):
    said = json.loads(server.first_line)
    assert said["ready"] is True
    assert said["data"] == str(server.data)
    assert httpx.get(f"{server.address}/health").json()["status"] == "ok"


def test_an_event_is_sent_and_processed(near):
    said = near(
        "send", "--shipment", "shp_1", "--order", "ord_1", "--status", "delivered", "--event-id", "evt_1", "--json"
    )
    assert said.code == 0
    assert said.json["idempotencyKey"] == "courier-x:evt_1"
    assert said.json["duplicate"] is False
    entry = settled(near, "courier-x:evt_1")
    assert entry["status"] == "processed"
    assert entry["content"]["payload"] == {"shipmentId": "shp_1", "orderId": "ord_1", "status": "delivered"}
    shown = near("events", "show", "courier-x:evt_1")
    assert "processed" in shown.out
    assert "shp_1" in shown.out


def test_send_for_people(near):
    said = near("send", "--event-id", "evt_people")
    assert said.code == 0
    assert "courier-x:evt_people" in said.out


def test_a_duplicate_and_a_conflict(near):
    now = datetime.now(UTC).isoformat()
    event = ("send", "--event-id", "evt_2", "--occurred-at", now, "--key", "my-key", "--json")
    assert near(*event).json["duplicate"] is False
    again = near(*event)
    assert (again.code, again.json["duplicate"]) == (0, True)
    other = near(*event, "--status", "lost")
    assert other.code == 1
    assert other.json["errorCode"] == "IDEMPOTENCY_CONFLICT"
    assert "409" in other.err


def test_standard_webhooks_and_a_payload_from_a_file(near, home):
    (home / "payload.json").write_text('{"shipmentId": "shp_9", "orderId": "ord_9", "status": "lost", "weight": 3}')
    said = near("send", "--standard-webhooks", "--payload", "@payload.json", "--status", "found", "--event-id", "evt_3")
    assert said.code == 0, said.err
    entry = settled(near, "courier-x:evt_3")
    assert entry["content"]["payload"] == {"shipmentId": "shp_9", "orderId": "ord_9", "status": "found", "weight": 3}


def test_a_body_goes_out_as_it_is(near, home):
    (home / "body.json").write_text('{"source": "courier-x",  "eventId": "raw"}')
    said = near("send", "--body", "@body.json", "--json")
    assert said.code == 1
    assert {each["field"] for each in said.json["details"]} == {"eventType", "occurredAt", "payload"}
    said = near("send", "--body", "not json", "--source", "courier-x")
    assert said.code == 1
    assert "INVALID_PAYLOAD" in said.err


def test_secrets_by_option_and_by_variable(near, monkeypatch):
    assert near("send", "--secret", "another-secret-altogether").code == 1
    assert "INVALID_SIGNATURE" in near("send", "--secret", "another-secret-altogether").err
    monkeypatch.delenv("COURIER_SECRETS")
    monkeypatch.setenv("COURIER_SECRET", SECRET)
    assert near("send", "--source", "courier-x").code == 0


def test_many_events(near):
    said = near("send", "--count", "30", "--event-id", "many", "--json")
    assert said.code == 0
    assert (said.json["accepted"], said.json["refused"]) == (30, {})
    assert settled(near, "courier-x:many-30")["status"] == "processed"
    refused = near("send", "--count", "3", "--secret", "another-secret-altogether")
    assert refused.code == 1
    assert "3 x INVALID_SIGNATURE" in refused.out


def test_submit(near):
    said = near("submit", "parcels", '{"number": "77"}', "--json")
    assert said.code == 0
    assert said.json["key"] == "parcel/77"
    assert settled(near, "parcel/77", "--workload", "parcels")["result"] == {"delivered": True}


def test_submit_needs_no_name_for_the_only_workload(near):
    said = near("submit", '{"number": "78"}', "--app", APP, "--json")
    assert (said.code, said.json["workload"], said.json["key"]) == (0, "parcels", "parcel/78")


def test_submit_with_a_delay_shows_when_the_job_is_due(near):
    said = near("submit", "parcels", '{"number": "79"}', "--delay", "1h", "--json")
    assert said.code == 0
    assert said.json["dueAt"] > said.json["receivedAt"]
    assert "due " in near("jobs", "show", "parcel/79", "--workload", "parcels").out
    assert near("submit", "parcels", "{}", "--delay", "1h", "--delay-ms", "5").code == 2
    assert near("submit", "parcels", "{}", "--delay", "9999d").code == 2
    assert near("jobs", "cancel", "parcel/79", "--app", APP).code == 0


def test_submit_many(near):
    said = near("submit", "parcels", '[{"number": "80"}, {"number": "81"}, {"number": "80"}, {}]')
    assert said.code == 1
    assert [line.split()[0] for line in said.out.splitlines()[2:]] == ["0", "1", "2", "3"]
    assert said.out.count("accepted") == 2
    assert "duplicate" in said.out
    assert "1 of 4 jobs were refused." in said.err
    assert "Job 3: INVALID_PAYLOAD" in said.err
    again = near("submit", "parcels", '[{"number": "80"}]', "--json")
    assert (again.code, again.json["accepted"]) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere", "{}"), "NOT_FOUND"),
        (("no such workload", "{}"), "NOT_FOUND"),
        (("parcels", "{}"), "number"),
        (("parcels", "not json"), "INVALID_PAYLOAD"),
        (("parcels", "{}", "--token", "not-the-token-at-all"), "UNAUTHORIZED"),
    ],
)
def test_a_submission_that_is_refused(near, arguments, words):
    said = near("submit", *arguments)
    assert said.code == 1
    assert words in said.err


def test_a_dead_letter_next_to_the_running_server(near):
    """What the command line replays, the running worker works."""
    assert near("submit", "parcels", '{"number": "13", "broken": true}').code == 0
    assert settled(near, "parcel/13", "--workload", "parcels")["status"] == "dead_lettered"
    (letter,) = near("dlq", "list", "--where", "key=parcel/13", "--json").json["items"]
    assert near("dlq", "review", letter["id"], "--reason", "Seen.").code == 0
    assert near("dlq", "replay", "--where", "key=parcel/13", "--yes", "--app", APP).code == 0
    entry = settled(near, "parcel/13", "--workload", "parcels")
    assert (entry["status"], entry["generation"]) == ("processed", 2)


def test_doctor_knows_its_own(near):
    checks = {each["check"]: each for each in near("doctor", "--json", "--app", APP).json["checks"]}
    assert "is ready" in checks["port"]["message"]


def test_a_second_server_on_the_port_is_told_why_not(near):
    said = near("up")
    assert said.code == 2
    assert "API_PORT" in said.err


# --- without a server -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--url", "http://127.0.0.1:1"), "holdfast up"),
        (("--url", "ftp://example.org"), "--url"),
        (("--url", "http://[oops"), "--url"),
        (("--url", "nonsense"), "--url"),
        (("--source", "courier-z"), "courier-z"),
        (("--payload", "{"), "--payload is not JSON"),
        (("--payload", "[]"), "JSON object"),
        (("--payload", "@missing.json"), "missing.json"),
        (("--body", "{}", "--status", "x"), "--body"),
        (("--body", "{}", "--count", "2"), "--body"),
        (("--key", "k", "--count", "2"), "--key"),
        (("--secret", "whsec_???"), "base64"),
    ],
)
def test_an_event_that_cannot_be_sent(program, arguments, words):
    said = program("send", *arguments)
    assert said.code == 2
    assert words in said.err
    assert not said.out


def test_a_port_that_nobody_can_know(program, monkeypatch):
    monkeypatch.setenv("API_PORT", "0")
    assert "--url" in program("send").err


def test_a_sender_without_any_secret(program, monkeypatch):
    monkeypatch.delenv("COURIER_SECRETS")
    said = program("send")
    assert said.code == 2
    assert "holdfast init" in said.err


def test_a_submission_without_a_token(program, monkeypatch):
    monkeypatch.delenv("OPERATOR_TOKEN")
    said = program("submit", "parcels", "{}")
    assert said.code == 2
    assert "OPERATOR_TOKEN" in said.err


@pytest.mark.parametrize("command", ["up", "api", "worker"])
def test_nothing_starts_with_unsafe_secrets(program, home, monkeypatch, command):
    monkeypatch.setattr("holdfast.cli.serving.run", None)  # a start would fail the test instead of running for ever
    monkeypatch.setenv("OPERATOR_TOKEN", "changeme")
    monkeypatch.setenv("COURIER_SECRETS", '{"courier-x": "short"}')
    said = program(command)
    assert said.code == 2
    assert "OPERATOR_TOKEN" in said.err
    assert "COURIER_SECRETS" in said.err
    assert "holdfast init" in said.err
    assert not (home / "holdfast-data").exists()


def test_api_and_worker_side_by_side(tmp_path_factory, program, monkeypatch):
    folder = tmp_path_factory.mktemp("apart")
    with running(folder, "api", "--port", "0") as api:
        address = api.first_line.split()[2]
        assert f"{address}/docs" in api.first_line
        assert str(api.data) in api.first_line
        monkeypatch.setenv("HOLDFAST_DATA", str(api.data))
        assert program("send", "--url", address, "--event-id", "apart").code == 0
        assert program("events", "show", "courier-x:apart", "--json").json["status"] == "received"
        with running(folder, "worker", "--concurrency", "2", "--json") as worker:
            assert json.loads(worker.first_line)["address"] is None
            assert settled(program, "courier-x:apart")["status"] == "processed"


# --- SIGHUP -----------------------------------------------------------------------------------------------------------


def test_a_single_process_survives_sighup_and_logs_that_it_cannot_reload(tmp_path):
    with running(tmp_path, "up", "--json", "--port", "0") as server:
        server.process.send_signal(signal.SIGHUP)
        (refused,) = wait_until(lambda: server.heard("reload.refused"))
        assert "--processes" in refused["advice"]
        assert refused["level"] == "warning"
        assert httpx.get(f"{server.address}/health").json()["status"] == "ok"


def test_a_child_process_that_gets_sighup_goes_on_and_names_its_parent(tmp_path):
    with started(tmp_path, ENVIRONMENT, "worker", "--processes", "1", "--json") as server:
        (child,) = server.pids("worker")
        os.kill(child, signal.SIGHUP)
        (refused,) = wait_until(lambda: server.heard("reload.refused"))
        assert "parent" in refused["advice"]
        assert is_alive(child)
        stop(server)
        assert server.heard("process.lost") == []


def test_sighup_stays_ignored_for_a_process_that_was_started_to_ignore_it(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does; a child inherits it
    try:
        with running(tmp_path, "worker", "--json") as server:
            server.process.send_signal(signal.SIGHUP)
            assert server.process.poll() is None
        assert server.heard("reload.refused") == []
        assert len(server.heard("worker.stopped")) == 1
    finally:
        signal.signal(signal.SIGHUP, before)
