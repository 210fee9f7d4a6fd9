"""What the broker does beyond the port: failures of Redis, and what BullMQ's users rely on."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta

import pytest
import redis.asyncio

from holdfast.brokers.bullmq import BullmqBroker
from holdfast.brokers.bullmq.keys import QueueKeys, has_hash_tag
from holdfast.brokers.bullmq.scripts import load_scripts, shipped_text
from holdfast.contracts.errors import BrokerUnavailable, ConfigurationError
from holdfast.contracts.queues import Acknowledgement, Again, Depth, Failed, Finished, QueueJob
from tests.bullmq.requests import is_a
from tests.support.waiting import eventually

QUEUE = "things"
HOUR = timedelta(hours=1)
NO_WAIT = timedelta(0)
LONG_WAIT = timedelta(seconds=30)


@pytest.fixture
def keys(redis_place):
    return QueueKeys(redis_place.prefix, QUEUE)


def jobs(*ids, **changes):
    return [QueueJob(job_id, "{}", **changes) for job_id in ids]


async def take(broker, limit=50, wait=NO_WAIT, lease=HOUR):
    return await broker.take(QUEUE, limit, wait=wait, lease=lease)


async def settle(broker, handling, deliveries):
    await broker.settle([Acknowledgement(each, handling) for each in deliveries])


# --- scripts --------------------------------------------------------------------------------------------------


def test_bullmqs_scripts_are_used_as_they_are():
    scripts = load_scripts()

    for script, shipped in (
        (scripts.take, ["moveToActive"]),
        (scripts.publish, ["addStandardJob", "addDelayedJob", "addPrioritizedJob"]),
        (scripts.settle, ["moveToFinished", "moveToDelayed", "retryJob", "moveJobFromActiveToWait"]),
        (scripts.recover, ["moveStalledJobsToWait"]),
        (scripts.renew, ["extendLocks"]),
        (scripts.remove, ["removeJob"]),
        (scripts.pause, ["pause"]),
    ):
        for name in shipped:
            assert shipped_text(name) in script.source


async def test_scripts_that_redis_forgot_are_sent_again(broker, brokers, valkey, raw):
    await broker.publish(QUEUE, jobs("a"))
    await raw.script_flush()
    held = await take(broker)
    await raw.script_flush()
    await settle(broker, Finished(), held)

    assert [each.job_id for each in held] == ["a"]
    assert await broker.depth(QUEUE) == Depth(0, 0, 0, paused=False)


# --- ids and names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("job_id", ["", "a:b", "42", "wait", "meta", "id", "stalled-check", "line\nbreak", "x" * 201])
async def test_an_id_that_bullmq_would_confuse_is_refused(broker, raw, keys, job_id):
    with pytest.raises(ConfigurationError, match="cannot be a job id"):
        await broker.publish(QUEUE, [*jobs("good"), QueueJob(job_id, "{}")])

    assert await raw.exists(keys["good"]) == 0


def test_a_queue_with_a_colon_is_what_node_opens_with_a_longer_prefix():
    keys = QueueKeys("bull", "email:send")

    assert keys["wait"] == "bull:email:send:wait"
    assert keys.client_name == "bull:email:c2VuZA=="


@pytest.mark.parametrize(
    ("prefix", "tagged"), [("bull", False), ("{bull}", True), ("a{b}c", True), ("{}", False), ("}{", False)]
)
def test_a_hash_tag_keeps_a_queue_on_one_node(prefix, tagged):
    assert has_hash_tag(prefix) is tagged


# --- retention and replays ------------------------------------------------------------------------------------


async def test_finished_and_failed_jobs_are_kept_up_to_a_bound(brokers, raw, keys):
    broker = await brokers(keep_completed=5, keep_failed=3)
    await broker.publish(QUEUE, jobs(*(f"j{n}" for n in range(40))))
    held = await take(broker)

    await settle(broker, Finished('{"ok":true}'), held[:20])
    await settle(broker, Failed("GONE: no"), held[20:])

    assert await raw.zcard(keys["completed"]) == 5
    assert await raw.zcard(keys["failed"]) == 3
    left = [key async for key in raw.scan_iter(f"{keys.base}j*")]
    assert len(left) == 8


async def test_what_is_kept_is_bounded_by_default(broker, raw, keys):
    await broker.publish(QUEUE, jobs(*(f"j{n}" for n in range(1_030))))
    while held := await take(broker, 50):
        await settle(broker, Finished(), held)

    assert await raw.zcard(keys["completed"]) == 1_000


@pytest.mark.parametrize("handling", [Finished(), Failed("GONE: no")], ids=["completed", "failed"])
async def test_a_job_that_is_published_again_after_its_end_runs_again_from_the_start(broker, raw, keys, handling):
    await broker.publish(QUEUE, [QueueJob("a", '{"try":1}')])
    await settle(broker, handling, await take(broker))

    await broker.publish(QUEUE, [QueueJob("a", '{"try":2}')])

    (again,) = await take(broker)
    assert again.data == '{"try":2}'
    job = await raw.hgetall(keys["a"])
    assert not {"failedReason", "returnvalue", "finishedOn", "atm", "stacktrace"} & set(job)
    assert await raw.zcard(keys["failed"]) == await raw.zcard(keys["completed"]) == 0


@pytest.mark.parametrize("handling", [Finished(), Failed("GONE: no")], ids=["completed", "failed"])
async def test_a_finished_job_is_not_published_again_without_revive(broker, raw, keys, handling):
    await broker.publish(QUEUE, jobs("a", revive=False))
    await settle(broker, handling, await take(broker))

    await broker.publish(QUEUE, jobs("a", revive=False))

    assert await take(broker) == []
    assert await raw.exists(keys["a"]) == 1


async def test_the_tracebacks_of_the_last_ten_failures_are_kept(broker, raw, keys):
    await broker.publish(QUEUE, jobs("a"))
    for number in range(11):
        await settle(broker, Again(reason="boom", stacktrace=f"line {number}\né"), await take(broker))
    await settle(broker, Again(), await take(broker))  # released: nothing failed
    await settle(broker, Again(reason="without a traceback"), await take(broker))
    await settle(broker, Failed("boom", stacktrace="the last"), await take(broker))

    kept = json.loads((await raw.hgetall(keys["a"]))["stacktrace"])
    assert kept == [*(f"line {number}\né" for number in range(3, 11)), "without a traceback", "the last"]


async def test_failures_are_collected_as_node_keeps_them(broker, raw, keys):
    await broker.publish(QUEUE, jobs("a"))
    await settle(broker, Again(reason="HTTP_503: first"), await take(broker))
    await settle(broker, Again(timedelta(milliseconds=1), reason="HTTP_503: second"), await take(broker))
    await settle(broker, Failed("HTTP_503: third"), await take(broker, wait=LONG_WAIT))

    job = await raw.hgetall(keys["a"])
    assert job["failedReason"] == "HTTP_503: third"
    assert json.loads(job["stacktrace"]) == ["HTTP_503: first", "HTTP_503: second", "HTTP_503: third"]
    assert (job["atm"], job["ats"]) == ("3", "3")


async def test_releasing_a_job_costs_no_attempt(broker, raw, keys):
    await broker.publish(QUEUE, jobs("a"))
    await settle(broker, Again(), await take(broker))
    await settle(broker, Again(timedelta(milliseconds=1)), await take(broker))
    await settle(broker, Again(), await take(broker, wait=LONG_WAIT))

    assert "atm" not in await raw.hgetall(keys["a"])


async def test_a_released_job_with_a_priority_wakes_a_taker(broker, brokers):
    await broker.publish(QUEUE, jobs("a", priority=3))
    held = await take(broker)
    elsewhere = await brokers()
    waiting = asyncio.create_task(take(elsewhere, wait=LONG_WAIT))
    await asyncio.sleep(0.1)  # the taker should be blocking by then; if it is not, the test only proves less

    await settle(broker, Again(), held)

    assert [each.job_id for each in await waiting] == ["a"]


# --- waiting --------------------------------------------------------------------------------------------------


async def blocked(raw):
    """The names of the clients that wait in BZPOPMIN."""
    return [each["name"] for each in await raw.client_list() if each["cmd"].lower() == "bzpopmin" and each["name"]]


async def test_a_waiting_worker_shows_under_the_name_that_bullmq_looks_for(broker, brokers, raw, keys):
    waiting = [asyncio.create_task(take(broker, wait=LONG_WAIT)) for _ in range(2)]

    async def seen():
        return keys.client_name in await blocked(raw)

    await eventually(seen)

    assert (await blocked(raw)).count(keys.client_name) == 1  # two takers, one waiting connection
    await broker.publish(QUEUE, jobs("a"))
    await eventually(lambda: _any_done(waiting))
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def _any_done(tasks):
    return any(task.done() for task in tasks)


async def test_a_wait_survives_a_connection_that_is_cut(broker, raw, keys):
    waiting = asyncio.create_task(take(broker, wait=LONG_WAIT))

    async def seen():
        return keys.client_name in await blocked(raw)

    await eventually(seen)
    (client,) = [each for each in await raw.client_list() if each["name"] == keys.client_name]
    await raw.client_kill_filter(_id=client["id"])
    with pytest.raises(BrokerUnavailable):
        await waiting

    await broker.publish(QUEUE, jobs("a"))

    assert [each.job_id for each in await take(broker, wait=LONG_WAIT)] == ["a"]


async def test_a_delayed_job_comes_at_its_time_while_others_are_later(broker):
    await broker.publish(QUEUE, jobs("late", delay=HOUR))
    await broker.publish(QUEUE, jobs("soon", delay=timedelta(milliseconds=150)))

    assert [each.job_id for each in await take(broker, wait=LONG_WAIT)] == ["soon"]


async def test_delays_use_the_clock_of_redis(broker, monkeypatch):
    away = time.time() - 86_400
    monkeypatch.setattr(time, "time", lambda: away)
    await broker.publish(QUEUE, jobs("soon", delay=timedelta(milliseconds=50)))

    (held,) = await take(broker, wait=LONG_WAIT)
    await settle(broker, Again(timedelta(milliseconds=50), reason="X: y"), [held])

    assert len(await take(broker, wait=LONG_WAIT)) == 1


# --- replies that are lost ------------------------------------------------------------------------------------


async def test_a_batch_whose_reply_was_lost_is_taken_up_again(broker, proxied, proxy):
    await broker.publish(QUEUE, jobs("a", "b", "c"))
    proxy.lose_reply("take", is_a(load_scripts().take))

    found = await take(proxied, 2)

    assert proxy.seen["take"] == 1
    assert sorted(each.job_id for each in found) == ["a", "b"]
    assert await proxied.renew(found, HOUR) == []
    assert [each.job_id for each in await take(proxied)] == ["c"]
    assert await take(proxied) == []


async def test_a_batch_is_found_again_by_the_next_take_when_the_connection_stays_cut(broker, proxied, proxy):
    await broker.publish(QUEUE, jobs("a", "b", "c"))
    proxy.lose_reply("take", is_a(load_scripts().take))
    proxy.lose_reply("readopt", is_a(load_scripts().readopt))
    with pytest.raises(BrokerUnavailable):
        await take(proxied, 2)
    assert await broker.depth(QUEUE) == Depth(1, 0, 2, paused=False)

    found = await take(proxied, 2)

    assert proxy.seen["readopt"] == 1
    assert sorted(each.job_id for each in found) == ["a", "b"]
    assert await proxied.renew(found, HOUR) == []


async def test_only_our_own_lost_jobs_are_taken_up(broker, brokers, proxied, proxy):
    await broker.publish(QUEUE, jobs("theirs", "ours"))
    theirs = await take(await brokers(), 1)
    proxy.lose_reply("take", is_a(load_scripts().take))

    assert [each.job_id for each in await take(proxied)] == ["ours"]
    assert await broker.renew(theirs, HOUR) == []


async def test_a_take_that_was_given_up_leaves_nothing_behind(broker, proxied, proxy):
    await broker.publish(QUEUE, jobs("a", "b"))
    proxy.lose_reply("take", is_a(load_scripts().take), silent=True)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(take(proxied, 1), 0.3)

    assert [each.job_id for each in await take(proxied, 1)] == ["a"]


async def test_connections_that_the_server_closed_in_the_meantime_are_no_trouble(broker, valkey, redis_place):
    if not redis_place.ours:
        pytest.skip("only the clients of our own server may be cut off")
    await broker.publish(QUEUE, jobs("a"))
    server = redis.asyncio.Redis.from_url(valkey.url)

    async def cut():
        await server.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    await cut()
    held = await take(broker)
    await cut()
    await settle(broker, Again(), held)
    await cut()
    assert await broker.recover(QUEUE) == 0
    await cut()
    await broker.publish(QUEUE, jobs("b"))
    assert sorted(each.job_id for each in await take(broker)) == ["a", "b"]
    await server.aclose()


@pytest.mark.parametrize("handling", [Finished(), Failed("X: y"), Again(), Again(reason="X: y"), Again(HOUR)], ids=repr)
async def test_settling_whose_reply_was_lost_is_repeated_without_harm(broker, proxied, proxy, raw, keys, handling):
    await broker.publish(QUEUE, jobs("a"))
    held = await take(proxied)
    proxy.lose_reply("settle", is_a(load_scripts().settle))

    await settle(proxied, handling, held)

    depth = await broker.depth(QUEUE)
    counted = await raw.hget(keys["a"], "atm")
    expected = {Finished(): "1", Failed("X: y"): "1", Again(): None, Again(reason="X: y"): "1", Again(HOUR): None}
    assert proxy.seen["settle"] == 1
    assert depth.active == 0
    assert depth.ready + depth.delayed == int(isinstance(handling, Again))
    assert counted == expected[handling]


async def test_publishing_whose_reply_was_lost_adds_one_job(broker, proxied, proxy):
    proxy.lose_reply("publish", is_a(load_scripts().publish))

    await proxied.publish(QUEUE, jobs("a", "b"))

    assert await broker.depth(QUEUE) == Depth(2, 0, 0, paused=False)


# --- a server that is away ------------------------------------------------------------------------------------


async def test_an_unreachable_server_and_a_refusal_have_different_errors_and_no_secret_is_shown():
    broker = BullmqBroker("redis://:sesame@127.0.0.1:1/0")
    await broker.open()

    with pytest.raises(BrokerUnavailable) as raised:
        await broker.publish(QUEUE, jobs("a"))

    assert "cannot be reached" in raised.value.message
    assert "sesame" not in raised.value.message
    await broker.close()


async def test_a_broker_that_was_opened_without_its_server_works_when_it_comes(tmp_path):
    from holdfast.cli.servers import free_port, start_valkey

    port = free_port()
    broker = BullmqBroker(f"redis://127.0.0.1:{port}/0")
    await broker.open()
    with pytest.raises(BrokerUnavailable):
        await broker.ping()

    server = await asyncio.to_thread(start_valkey, tmp_path, port=port)
    await broker.publish(QUEUE, jobs("a"))
    before = await broker.epoch()
    await asyncio.to_thread(server.stop)
    with pytest.raises(BrokerUnavailable):
        await take(broker)
    await asyncio.to_thread(server.start)

    assert await broker.depth(QUEUE) == Depth(0, 0, 0, paused=False)
    assert await broker.epoch() != before
    await broker.close()
    server.stop()


async def test_a_restart_is_another_epoch_even_when_the_data_came_back(tmp_path):
    from holdfast.cli.servers import start_valkey

    server = await asyncio.to_thread(start_valkey, tmp_path, options=["--appendonly", "yes"])
    broker = BullmqBroker(server.url)
    await broker.open()
    await broker.publish(QUEUE, jobs("a"))
    before = await broker.epoch()

    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)

    assert (await broker.depth(QUEUE)).ready == 1
    assert await broker.epoch() != before  # the restarted server may have read old data
    await broker.close()
    server.stop()


async def test_the_facts_for_doctor_come_from_the_server(broker):
    facts = await broker.facts()

    assert {"redis_version", "maxmemory_policy", "aof_enabled", "cluster_enabled"} <= set(facts)
