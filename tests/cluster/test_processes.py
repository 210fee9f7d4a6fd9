"""The processes of a cluster: they start whatever is away, share the work, and stop without losing any."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import httpx
import pytest
from redis import Redis

from holdfast.cli.servers import free_port, start_replica_set, start_valkey
from tests.cli.commands import APP, assert_no_secrets
from tests.support.program import Server, is_alive, ran, started, started_later, stop, wait_until

CANARY = "canary-Nq5wTz8rKv3xJm7y"


@pytest.fixture
def beside(program, monkeypatch):
    """The program, next to a running server of the same cluster."""

    def near(server: Server):
        monkeypatch.setenv("API_PORT", server.address.rpartition(":")[2])
        return program

    return near


def entries(program, *options: str) -> list[dict]:
    said = program("events", "list", "--limit", "1000", "--json", *options)
    return said.json["items"] if said.code == 0 else []


def settled(program, key: str, *options: str) -> dict:
    """The job, once it is settled."""

    def look():
        shown = program("events", "show", key, "--json", *options)
        return shown.code == 0 and shown.json["status"] in {"processed", "dead_lettered"} and shown.json

    return wait_until(look)


# --- every command ----------------------------------------------------------------------------------------------------


def test_every_command_works_on_a_cluster(environment, home, beside):
    with started(home, environment, "up", "--app", APP, "--json") as server:
        told = server.told
        assert (told["data"], told["database"]) == (None, environment["MONGO_DB_NAME"])
        assert told["redis"] == environment["REDIS_URL"]
        program = beside(server)

        sent = program("send", "--shipment", "shp_1", "--order", "ord_1", "--event-id", "evt_1", "--json")
        assert (sent.json["queued"], sent.json["duplicate"]) == (True, False)
        assert settled(program, "courier-x:evt_1")["attemptCount"] == 1
        assert "shp_1" in program("events", "show", "courier-x:evt_1").out
        assert [each["key"] for each in entries(program)] == ["courier-x:evt_1"]

        assert program("queue", "pause", "parcels", "--app", APP).code == 0
        assert program("submit", "parcels", '{"number": "13", "broken": true}').code == 0
        depths = {each["queue"]: each for each in program("queue", "status", "--app", APP, "--json").json}
        assert depths["parcels-main"]["paused"] is True
        assert depths["parcels-main"]["ready"] == 1
        assert program("queue", "resume", "--app", APP).code == 0

        assert settled(program, "parcel/13", "--workload", "parcels", "--app", APP)["status"] == "dead_lettered"
        (letter,) = program("dlq", "list", "--where", "key=parcel/13", "--app", APP, "--json").json["items"]
        assert program("dlq", "show", letter["id"], "--app", APP).code == 0
        assert program("dlq", "review", letter["id"], "--reason", "Seen.", "--app", APP).code == 0
        assert program("dlq", "replay", letter["id"], "--reason", "Mended.", "--yes", "--app", APP).code == 0
        entry = settled(program, "parcel/13", "--workload", "parcels", "--app", APP)
        assert (entry["status"], entry["generation"]) == ("processed", 2)
        assert program("dlq", "close", letter["id"], "--reason", "Done.", "--app", APP).code == 0

        assert program("doctor", "--app", APP, "--json").json["failed"] == 0
        assert program("migrate", "--app", APP, "--json").json["done"] == []
        assert_no_secrets(stop(server) + server.log.read_text())
    assert not server.data.exists(), "a cluster needs no data folder"


def test_a_database_without_a_ledger_is_no_good_news(program, environment):
    for command in (("events", "list"), ("dlq", "list"), ("queue", "status")):
        said = program(*command)
        assert said.code == 2
        assert environment["MONGO_DB_NAME"] in said.err
        assert "MONGO_DB_NAME" in said.err


# --- several processes ------------------------------------------------------------------------------------------------


def test_workers_share_the_work_and_survive_each_other(environment, home, beside):
    arguments = ("up", "--processes", "2", "--api-processes", "2", "--json")
    with started(home, environment | {"WORKER_LEASE_SECONDS": "2"}, *arguments) as server:
        program = beside(server)
        assert len(server.pids("api")) == 2
        assert program("send", "--count", "100").code == 0
        os.kill(server.pids("worker")[0], signal.SIGKILL)
        assert program("send", "--count", "100").code == 0
        wait_until(lambda: len(entries(program, "--status", "processed")) == 200)
        (lost,) = server.heard("process.lost")
        assert (lost["process"], lost["exit_code"]) == ("worker", -9)
        pids = [each["pid"] for each in server.told["processes"]]
        stop(server)
        assert not any(map(is_alive, pids))


def test_a_rolling_restart_under_load_loses_nothing_and_costs_no_attempt(environment, home, beside):
    with started(home, environment, "up", "--processes", "1", "--json") as server:
        program = beside(server)
        server.process.send_signal(signal.SIGHUP)
        sent = 0
        while not server.heard("restart.done"):
            said = program("send", "--count", "20", "--json")
            assert (said.code, said.json["accepted"]) == (0, 20), said
            sent += 20
        assert server.heard("process.lost") == []
        wait_until(lambda: len(entries(program, "--status", "processed")) == min(sent, 1000))
        assert {each["attemptCount"] for each in entries(program)} == {1}
        old = [each["pid"] for each in server.told["processes"]]
        assert not any(map(is_alive, old))
        stop(server)


# --- servers that are away --------------------------------------------------------------------------------------------


def test_without_redis_the_api_starts_and_accepts_and_redis_gets_the_jobs_later(environment, home, beside):
    port = free_port()
    settings = environment | {"REDIS_URL": f"redis://127.0.0.1:{port}/0", "PUBLISH_GRACE_MS": "50"}
    with started(home, settings, "up", "--processes", "1", "--json") as server:
        program = beside(server)
        sent = program("send", "--event-id", "early", "--json")
        assert (sent.code, sent.json["queued"]) == (0, False)
        assert httpx.get(f"{server.address}/ready").json() == {"ready": True, "store": "ok", "queue": "unavailable"}
        redis = start_valkey(home / "redis", port=port)
        try:
            assert settled(program, "courier-x:early")["status"] == "processed"
            stop(server)
        finally:
            redis.stop()


def test_mongo_is_waited_for(environment, home):
    port = free_port()
    settings = environment | {"MONGO_URI": f"mongodb://127.0.0.1:{port}/?replicaSet=holdfast"}
    mongo = None
    try:
        with started_later(home, settings, "worker", "--json") as server:
            wait_until(lambda: server.heard("store.unavailable"))
            mongo = start_replica_set(home / "mongo", ports=[port])
            assert server.process.stdout.readline().startswith('{"ready": true')
            stop(server)
    finally:
        if mongo is not None:
            mongo.stop()


def test_who_waits_for_mongo_can_still_be_stopped(environment, home):
    settings = environment | {"MONGO_URI": f"mongodb://127.0.0.1:{free_port()}/"}
    with started_later(home, settings, "up", "--processes", "2") as server:
        wait_until(lambda: server.heard("store.unavailable"))
        stop(server)
        assert len(server.heard("process.started")) == 1


def test_a_mongo_that_stays_away_is_exit_code_1(environment):
    uri = f"mongodb://ana:{CANARY}@127.0.0.1:{free_port()}/?replicaSet=rs"
    impatient = "from holdfast.wiring import running\nrunning.STORE_PATIENCE *= 0"
    said = ran(environment | {"MONGO_URI": uri}, "up", first=impatient)
    assert said.returncode == 1
    assert "Is MongoDB running at mongodb://********@127.0.0.1" in said.stderr
    assert CANARY not in said.stderr


def test_a_redis_cluster_without_a_hash_tag_is_refused(environment, home, program, settle_environment):
    redis = start_valkey(home / "redis", options=("--cluster-enabled", "yes", "--cluster-port", str(free_port())))
    try:
        settle_environment({"REDIS_URL": redis.url})
        said = program("worker")
        assert said.code == 2
        assert "QUEUE_PREFIX={bull}" in said.err
    finally:
        redis.stop()


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_the_password_of_redis_is_in_no_log(environment, home):
    redis = start_valkey(home / "redis")
    try:
        with closing(Redis(port=redis.port)) as client:
            client.config_set("requirepass", CANARY)
        wrong = environment | {"REDIS_URL": f"redis://:not-{CANARY}@127.0.0.1:{redis.port}/0"}
        with started(home, wrong, "up", "--json") as server:
            wait_until(lambda: server.heard("queue.unavailable"))
            assert CANARY not in server.first_line
            assert CANARY not in stop(server) + server.log.read_text()
        right = environment | {"REDIS_URL": f"redis://:{CANARY}@127.0.0.1:{redis.port}/0"}
        with started(home, right, "up", "--json") as server:
            assert httpx.get(f"{server.address}/ready").json()["queue"] == "ok"
            assert server.told["redis"] == f"redis://********@127.0.0.1:{redis.port}/0"
            assert CANARY not in stop(server) + server.log.read_text()
    finally:
        redis.stop()
