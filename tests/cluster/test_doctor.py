"""``doctor`` and ``migrate`` on a cluster: each thing that can be wrong, and what to do about it."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from pymongo import MongoClient
from redis import Redis

from holdfast.cli.servers import free_port, start_valkey
from tests.support.program import ran

CANARY = "canary-Wd6kRt2pXs9bHn4c"


def checks(said, level) -> dict[str, dict]:
    return {each["check"]: each for each in said.json["checks"] if each["verdict"] == level}


@pytest.fixture
def redis(home, environment, settle_environment):
    """A Redis that the test may configure."""
    server = start_valkey(home / "redis", options=("--appendonly", "yes"))
    settle_environment({"REDIS_URL": server.url})
    with closing(Redis(port=server.port)) as client:
        yield client
    server.stop()


@pytest.fixture
def database(mongo, mongo_database):
    with MongoClient(mongo.uri) as client:
        yield client[mongo_database]


# --- doctor -----------------------------------------------------------------------------------------------------------


def test_before_the_first_start_nothing_is_broken_and_nothing_is_created(program, redis, database, home):
    said = program("doctor", "--json")
    assert said.code == 0
    fine = checks(said, "OK")
    assert {"redis", "redis memory", "redis disk", "ledger", "clock, mongo", "clock, redis"} <= set(fine)
    assert "holdfast migrate" in fine["ledger"]["message"]
    assert "of 1" in checks(said, "WARN")["mongo"]["message"], "one member is no safety"
    assert database.list_collection_names() == []
    assert not (home / "holdfast-data").exists()
    assert "data folder" not in fine, "there is none in a cluster"


def test_a_ledger_that_is_well(program, redis, database):
    assert program("migrate").code == 0
    said = program("doctor", "--json")
    assert (said.code, said.json["failed"]) == (0, 0)
    fine = checks(said, "OK")
    assert {"indexes", "ledger, courier", "leases, courier", "queue, courier-events-main", "dead letters"} <= set(fine)


def test_an_index_that_is_missing_stops_the_start_and_migrate_makes_it(program, redis, database):
    assert program("migrate").code == 0
    database["processed_events"].insert_one({"_id": "a", "idempotencyKey": "a"})
    database["processed_events"].drop_index("idempotencyKey_1")
    said = program("doctor", "--json")
    assert said.code == 1
    assert "idempotencyKey" in checks(said, "FAIL")["indexes"]["message"]
    assert "holdfast migrate" in checks(said, "FAIL")["indexes"]["advice"]

    refused = program("worker")
    assert refused.code == 2
    assert "holdfast migrate" in refused.err

    mended = program("migrate", "--json")
    assert mended.code == 0
    assert any("idempotencyKey" in sentence for sentence in mended.json["done"])
    database["processed_events"].delete_many({})
    assert program("doctor", "--json").code == 0


def test_a_redis_that_may_forget_jobs(program, redis):
    redis.config_set("maxmemory-policy", "allkeys-lru")
    said = program("doctor", "--json")
    assert said.code == 1
    found = checks(said, "FAIL")["redis memory"]
    assert "allkeys-lru" in found["message"]
    assert "noeviction" in found["advice"]


def test_a_redis_without_an_append_only_file(program, redis):
    redis.config_set("appendonly", "no")
    said = program("doctor", "--json")
    assert said.code == 0
    assert "appendonly yes" in checks(said, "WARN")["redis disk"]["advice"]


def test_a_redis_that_is_a_replica(program, redis):
    redis.replicaof("127.0.0.1", free_port())
    said = program("doctor", "--json")
    assert said.code == 1
    assert "replica" in checks(said, "FAIL")["redis role"]["message"]


def test_a_redis_that_is_away(program, settle_environment):
    assert program("migrate").code == 0
    settle_environment({"REDIS_URL": f"redis://ana:{CANARY}@127.0.0.1:{free_port()}/0"})
    said = program("doctor", "--json")
    assert said.code == 1
    assert "redis://********@127.0.0.1" in checks(said, "FAIL")["redis"]["message"]
    assert "queue, courier-events-main" in checks(said, "WARN"), "the ledger is looked at all the same"
    assert CANARY not in said.out + said.err


def test_a_redis_cluster_needs_a_hash_tag(home, program, settle_environment):
    server = start_valkey(home / "redis", options=("--cluster-enabled", "yes", "--cluster-port", str(free_port())))
    try:
        settle_environment({"REDIS_URL": server.url})
        said = program("doctor", "--json")
        assert said.code == 1
        assert "QUEUE_PREFIX={bull}" in str(checks(said, "FAIL")["redis"])
    finally:
        server.stop()


def test_a_mongo_that_is_away(environment):
    uri = f"mongodb://ana:{CANARY}@127.0.0.1:{free_port()}/?replicaSet=rs"
    said = ran(environment | {"MONGO_URI": uri}, "doctor", "--json")
    assert said.returncode == 1
    found = {each["check"]: each for each in json.loads(said.stdout)["checks"]}
    assert found["mongo"]["verdict"] == "FAIL"
    assert "mongodb://********@127.0.0.1" in found["mongo"]["message"]
    assert found["redis"]["verdict"] == "OK", "the other one is looked at all the same"
    assert CANARY not in said.stdout + said.stderr


# --- migrate ----------------------------------------------------------------------------------------------------------


def test_migrate_creates_everything_once(program, database):
    said = program("migrate", "--json")
    assert said.code == 0
    assert {"processed_events", "dead_letter_events", "active_shipments"} <= set(database.list_collection_names())
    assert any("processed_events" in sentence for sentence in said.json["done"])
    assert program("migrate", "--json").json["done"] == []
    assert "nothing to do" in program("migrate").err


def test_migrate_knows_the_users_own_workloads(program, database):
    assert program("migrate", "--app", "tests.cli.parcels:app").code == 0
    assert {"parcels_jobs", "parcels_dead_letters"} <= set(database.list_collection_names())
