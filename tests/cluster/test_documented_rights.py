"""docs/operations/ says which rights Holdfast needs. A user with these rights, and no others, can do everything."""

from __future__ import annotations

import re
import secrets
import shlex
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
import redis
from pymongo import MongoClient

from holdfast.brokers.bullmq import BullmqBroker, RedisLists
from holdfast.contracts.errors import BrokerUnavailable
from holdfast.contracts.queues import Acknowledgement, Again, Failed, Finished, QueueJob, RateLimit
from tests.support.waiting import eventually

PAGES = sorted((Path(__file__).parents[2] / "docs" / "operations").glob("*.md"))
OPERATIONS = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
RULES = [
    re.sub(r"\\\n", " ", text).partition("```")[0]
    for text in OPERATIONS.split("ACL SETUSER holdfast on '>PASSWORD' ")[1:]
]
QUEUE = "things"
NOW, MOMENT, MINUTE = timedelta(0), timedelta(milliseconds=50), timedelta(minutes=1)


@pytest.fixture
def account(valkey):
    """Makes a user with the rights of a rule; its address, and the prefix that the rule allows."""
    name, password = f"u{secrets.token_hex(4)}", secrets.token_urlsafe(16)
    prefix = f"hf{secrets.token_hex(6)}"

    def make(rule):
        words = [word.replace("~bull:", f"~{prefix}:") for word in shlex.split(rule)]
        with redis.Redis.from_url(valkey.url) as client:
            client.execute_command("ACL", "SETUSER", name, "on", f">{password}", *words)
        return f"redis://{name}:{quote(password)}@127.0.0.1:{valkey.port}/0", prefix

    yield make
    with redis.Redis.from_url(valkey.url) as client:
        client.execute_command("ACL", "DELUSER", name)
        for key in client.scan_iter(f"{prefix}:*"):
            client.unlink(key)


@pytest.fixture
async def broker_of(account):
    """Makes a broker that has the rights of a rule."""
    made = []

    async def make(rule):
        url, prefix = account(rule)
        made.append(BullmqBroker(url, prefix=prefix))
        await made[-1].open()
        return made[-1]

    yield make
    for broker in made:
        await broker.close()


def test_there_are_two_rules():
    assert len(RULES) == 2


@pytest.mark.parametrize("rule", RULES, ids=["smallest", "wider"])
async def test_a_broker_with_the_documented_rights_can_do_all_of_its_work(rule, broker_of):
    broker = await broker_of(rule)

    async def take(limit=50, lease=MINUTE):
        return await broker.take(QUEUE, limit, wait=NOW, lease=lease, rate=RateLimit(1_000, MOMENT))

    await broker.ping()
    await broker.epoch()
    await broker.facts()
    await broker.publish(
        QUEUE, [QueueJob("a", "{}"), QueueJob("b", "{}", priority=2), QueueJob("c", "{}", delay=MOMENT)]
    )
    await broker.publish(QUEUE, [QueueJob(name, "{}") for name in ("d", "e", "f")])
    held = {each.job_id: each for each in await take()}
    while "c" not in held:
        held |= {each.job_id: each for each in await broker.take(QUEUE, 1, wait=MINUTE, lease=MINUTE)}
    assert await broker.renew(list(held.values()), MINUTE) == []
    endings = {
        "a": Finished(),
        "b": Failed("no"),
        "c": Again(MINUTE, reason="later"),
        "d": Again(),
        "e": Again(reason="now"),
        "f": Again(MINUTE),
    }
    await broker.settle([Acknowledgement(held[name], ending) for name, ending in endings.items()])
    await broker.publish(QUEUE, [QueueJob("a", "{}"), QueueJob("b", "{}")])
    await broker.pause(QUEUE)
    assert (await broker.depth(QUEUE)).paused
    await broker.resume(QUEUE)
    assert len(await take(lease=timedelta(milliseconds=1))) == 4

    async def nothing_is_active():
        await broker.recover(QUEUE)
        return (await broker.depth(QUEUE)).active == 0

    await eventually(nothing_is_active)
    await broker.remove(QUEUE, ["a"])


async def test_a_right_that_is_missing_is_told(broker_of):
    broker = await broker_of(RULES[0].replace("+zadd", ""))

    with pytest.raises(BrokerUnavailable, match="Redis refused"):
        await broker.publish(QUEUE, [QueueJob("a", "{}")])


def test_the_documented_role_of_mongodb_names_actions_that_exist(mongo):
    (actions,) = re.findall(r"actions: \[(.*?)\]", OPERATIONS)

    with MongoClient(mongo.uri) as client:
        database = client[f"hf_{secrets.token_hex(6)}"]
        database.command(
            "createRole",
            "holdfastProcess",
            privileges=[
                {
                    "resource": {"db": database.name, "collection": ""},
                    "actions": [each.strip(' "') for each in actions.split(",")],
                }
            ],
            roles=[],
        )
        database.command("dropRole", "holdfastProcess")


@pytest.mark.parametrize("rule", RULES, ids=["smallest", "wider"])
async def test_plain_lists_need_no_more_than_the_rights_that_are_documented_for_them(rule, account, valkey):
    added = OPERATIONS.split("ACL SETUSER holdfast '~doc_jobs'")[1].partition("\n")[0]
    url, prefix = account(f"{rule} '~doc_jobs' {added}")
    lists = RedisLists(url, prefix, jobs="doc_jobs", letters="doc_jobs_dead")
    with redis.Redis.from_url(valkey.url) as client:
        try:
            client.lpush("doc_jobs", "one", "two")
            taken = await lists.take(9, MINUTE)
            assert (taken, await lists.taken(9)) == ([b"one", b"two"], [b"one", b"two"])
            await lists.remove(taken)
            assert await lists.send({"dl_1": "letter"}, MINUTE)
            assert client.lrange("doc_jobs_dead", 0, -1) == [b"letter"]
        finally:
            await lists.close()
            client.delete("doc_jobs", "doc_jobs_dead", *client.keys("{doc_jobs*"))
