"""Redis Cluster, in its smallest form: one node with all slots. The prefix has a hash tag."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

import pytest
import redis

from holdfast.brokers.bullmq import BullmqBroker, RedisLists
from holdfast.cli.servers import ServerMissing, free_port, start_valkey
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.queues import QueueJob, RateLimit
from tests.interop.node_queue import NodeQueue
from tests.interop.our_worker import LEASE, NOW, fail, finish, take, take_now, take_one, try_again
from tests.support.valkey_server import absent
from tests.support.waiting import eventually

HOUR = timedelta(hours=1)
PREFIX = "{bull}"
CLUSTER = ("--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Its address."""
    # By default the nodes of a cluster talk on a port 10,000 above their own, which may be more than there are.
    options = (*CLUSTER, "--cluster-port", str(free_port()))
    try:
        server = start_valkey(tmp_path_factory.mktemp("cluster"), options=options)
    except ServerMissing as error:
        absent(str(error))
    with contextlib.closing(redis.Redis.from_url(server.url, decode_responses=True)) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        server.wait_for(lambda: client.cluster("INFO")["cluster_state"] == "ok", "form a cluster")
    yield server.url
    server.stop()


@pytest.fixture
async def broker(cluster):
    broker = BullmqBroker(cluster, prefix=PREFIX)
    await broker.open()
    yield broker
    await broker.close()


@pytest.fixture
async def jobs(node, cluster, broker):
    """The queue as Node sees it, empty."""
    queue = NodeQueue(node, cluster, PREFIX, "jobs", cluster=True)
    await queue.call("obliterate", {"force": True})
    yield queue
    await node("forget", prefix=PREFIX)
    await node("leave", url=cluster)


async def test_jobs_are_published_taken_tried_again_and_settled_and_node_reads_it(jobs, broker):
    await broker.publish("jobs", [QueueJob(f"job-{n}", f'{{"n":{n}}}') for n in range(120)])
    await broker.publish("jobs", [QueueJob("high", "{}", priority=1), QueueJob("later", "{}", delay=HOUR)])
    assert (await jobs.counts())["waiting"] == 120
    assert (await broker.depth("jobs")).ready == 121

    taken = await take(broker, "jobs", 121)

    assert [each.job_id for each in taken] == [*(f"job-{n}" for n in range(120)), "high"]
    assert await broker.renew(taken, LEASE) == []
    await fail(broker, taken[0], "boom")
    await try_again(broker, taken[1], HOUR)
    await try_again(broker, taken[2])
    for delivery in taken[3:]:
        await finish(broker, delivery)
    assert [await jobs.state(f"job-{n}") for n in range(4)] == ["failed", "delayed", "waiting", "completed"]
    assert (await jobs.job("job-0"))["failedReason"] == "boom"
    assert [each.job_id for each in await take_now(broker, "jobs")] == ["job-2"]
    await broker.remove("jobs", ["later"])
    assert await jobs.job("later") is None


async def test_a_taker_that_waits_is_woken_by_node_and_seen_by_node(jobs, broker):
    for options in ({}, {"priority": 3}, {"delay": 30}):
        waiting = asyncio.create_task(take_one(broker, "jobs"))
        assert await eventually(jobs.has_a_waiting_worker)
        job_id = await jobs.add("greet", **options)
        delivery = await waiting
        assert delivery.job_id == job_id
        await finish(broker, delivery)
        assert (await jobs.job(job_id))["returnvalue"] == {"ok": True}


async def test_a_node_worker_does_what_we_publish(jobs, broker):
    await broker.publish("jobs", [QueueJob("a", '{"n":1}', name="ok")])

    worker = await jobs.work()

    (run,) = await worker.has_run(1)
    assert (run["id"], run["data"]) == ("a", {"n": 1})


async def test_steering_works_as_on_one_server(jobs, broker):
    await broker.publish("jobs", [QueueJob("a", "{}"), QueueJob("b", "{}"), QueueJob("c", "{}")])
    await broker.pause("jobs")
    assert await take_now(broker, "jobs") == []
    await broker.resume("jobs")
    assert len(await broker.take("jobs", 3, wait=NOW, lease=timedelta(milliseconds=100), rate=RateLimit(2, HOUR))) == 2
    assert await eventually(lambda: broker.recover("jobs")) == 2
    await jobs.call("removeRateLimitKey")
    assert len(await take_now(broker, "jobs")) == 3
    assert await broker.epoch() == await broker.epoch()
    await broker.ping()
    assert (await broker.facts())["cluster_enabled"] == "1"


async def test_plain_lists_and_what_belongs_to_them_are_on_one_node(cluster):
    lists = RedisLists(cluster, PREFIX, jobs="doc_jobs", letters="doc_jobs_dead")
    with contextlib.closing(redis.RedisCluster.from_url(cluster)) as client:
        client.lpush("doc_jobs", "one", "two")
        taken = await lists.take(9, timedelta(seconds=10))
        assert (taken, await lists.taken(9)) == ([b"one", b"two"], [b"one", b"two"])
        await lists.remove(taken)
        for _ in range(2):
            assert await lists.send({"dl_1": "letter"}, HOUR)
        assert client.lrange("doc_jobs_dead", 0, -1) == [b"letter"]
    assert await lists.taken(9) == []
    await lists.close()


async def test_a_prefix_without_a_hash_tag_is_refused_with_what_to_do(cluster):
    broker = BullmqBroker(cluster, prefix="bull")

    with pytest.raises(ConfigurationError, match="QUEUE_PREFIX"):
        await broker.open()
    await broker.close()
