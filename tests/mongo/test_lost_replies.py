"""A reply is lost after the server has done the work: the repeated call does nothing twice."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.contracts.errors import StoreUnavailable
from holdfast.contracts.ledger import Cancelled, Claimed, Interrupted, Lease, RecordedAs, Status
from holdfast.contracts.transitions import Proceed, RetryLater
from tests.mongo.steps import DAY, an_event, claimed, dead_lettered, done, moved, settled, settlement
from tests.support.tcp_proxy import TcpProxy

NEW = RecordedAs.NEW


@pytest.fixture
def mongo_database(emptied_mongo_database) -> str:
    """A database with its collections: creating them is tested elsewhere."""
    return emptied_mongo_database


@pytest.fixture
async def proxy(mongo):
    """A proxy to the server that can lose replies."""
    async with TcpProxy(mongo.members[0].port) as proxy:
        yield proxy


@pytest.fixture
async def proxied_store(proxy, make_store):
    """A store that uses the proxy."""
    store = make_store(uri=f"mongodb://127.0.0.1:{proxy.port}/?directConnection=true")
    await store.open()
    return store


def command(name, collection=None):
    """Requests with this command, found by the beginning of their BSON."""
    if collection is None:
        return lambda data: name.encode() + b"\0" in data
    start = b"\2" + name.encode() + b"\0" + (len(collection) + 1).to_bytes(4, "little") + collection.encode() + b"\0"
    return lambda data: start in data


INSERT = command("insert", "processed_events")
UPDATE = command("update", "processed_events")
COMMIT = command("commitTransaction")
STEP = command("update", "dead_letter_events")


@pytest.mark.parametrize("silent", [False, True], ids=["cut", "silent"])
async def test_a_recorded_job_is_new_though_its_first_answer_was_lost(proxy, proxied_store, silent):
    await proxied_store.record([an_event("there")])
    proxy.lose_reply("insert", INSERT, silent=silent)

    answers = await proxied_store.record([an_event("a"), an_event("there"), an_event("b"), an_event("a")])

    assert proxy.seen["insert"] == 1
    assert [each.recorded_as for each in answers] == [NEW, RecordedAs.DUPLICATE, NEW, RecordedAs.DUPLICATE]
    assert await proxied_store.counts("courier") == {"received": 3}


@pytest.mark.parametrize("silent", [False, True], ids=["cut", "silent"])
async def test_a_job_is_claimed_once_though_the_first_answer_was_lost(proxy, proxied_store, silent):
    await proxied_store.record([an_event(f"k{n}") for n in range(20)])
    proxy.lose_reply("claim", UPDATE, silent=silent)

    claims = await proxied_store.claim(
        "courier", [f"id-k{n}" for n in range(20)], worker="w", lease=DAY, max_attempts=5
    )

    assert proxy.seen["claim"] == 1
    assert {type(each) for each in claims} == {Claimed}
    assert {(each.attempt, each.fence) for each in claims} == {(1, 1)}
    assert (await proxied_store.entry("courier", "k7")).attempt_count == 1


@pytest.mark.parametrize("silent", [False, True], ids=["cut", "silent"])
async def test_a_commit_counts_once_though_its_answer_was_lost(proxy, proxied_store, silent):
    await proxied_store.record([an_event("a"), an_event("b"), an_event("c")])
    a, b, c = [await claimed(proxied_store, key) for key in ("a", "b", "c")]
    proxy.lose_reply("commit", COMMIT, silent=silent)

    answers = await proxied_store.settle(
        [
            settlement(a, done(moved(at="2026-02-26T12:00:00.000Z"))),
            settlement(b, done(moved(at="2026-02-26T11:00:00.000Z"))),
            settlement(c, dead_lettered("c")),
        ],
    )

    assert proxy.seen["commit"] == 1
    assert [(each.status, each.note) for each in answers] == [
        (Status.PROCESSED, None),
        (Status.PROCESSED, "ignored_stale"),
        (Status.DEAD_LETTERED, None),
    ]
    assert (await proxied_store.entry("courier", "a")).attempt_count == 1
    assert await proxied_store.letter(dead_lettered("c").letter_id) is not None


# The driver itself repeats a commit whose connection was cut. When the connection stays silent, we start again.
@pytest.mark.parametrize("silent", [False, True], ids=["cut", "silent"])
async def test_a_job_with_effects_is_new_though_its_commit_was_not_answered(proxy, proxied_store, silent):
    await proxied_store.record([an_event("there")])
    proxy.lose_reply("commit", COMMIT, silent=silent)

    answers = await proxied_store.record(
        [
            an_event("a", effects=[moved("a", orderId="first")]),
            an_event("there", effects=[moved("there")]),
            an_event("a", effects=[moved("a", orderId="again")]),
            an_event("b", effects=[moved("b")]),
            an_event("c", job_id="id-a", effects=[moved("a", orderId="taken")]),
        ],
    )

    duplicate, conflict = RecordedAs.DUPLICATE, RecordedAs.CONFLICT
    assert proxy.seen["commit"] == 1
    assert [each.recorded_as for each in answers] == [NEW, duplicate, duplicate, NEW, conflict]
    assert await proxied_store.counts("courier") == {"received": 3}
    assert (await proxied_store.get("active_shipments", "a"))["orderId"] == "first"
    assert await proxied_store.get("active_shipments", "b") is not None
    assert await proxied_store.get("active_shipments", "there") is None


@pytest.mark.parametrize("silent", [False, True], ids=["cut", "silent"])
async def test_a_job_proceeds_once_though_its_commit_was_not_answered(proxy, proxied_store, silent):
    await proxied_store.apply([moved()])
    late = moved(at="2026-01-01T00:00:00.000Z")
    await settled(
        proxied_store, "a", RetryLater(timedelta(0), "X", "x", [late])
    )  # the stale effect leaves a note on the entry
    await proxied_store.record([an_event("b")])
    a, b = await claimed(proxied_store, "a"), await claimed(proxied_store, "b")
    proxy.lose_reply("commit", COMMIT, silent=silent)

    answers = await proxied_store.settle(
        [settlement(a, Proceed([moved(state="of a")])), settlement(b, done(moved(state="of b, which came later")))],
    )

    assert proxy.seen["commit"] == 1
    assert [(each.status, each.note) for each in answers] == [(Status.PROCESSING, None), (Status.PROCESSED, None)]
    assert (await proxied_store.get("active_shipments", "shp-1"))["state"] == "of b, which came later"
    assert await proxied_store.renew("courier", [Lease(a.job_id, a.fence)], DAY) == []
    proxied_store.link.clock.skew = 2 * DAY
    (lost,) = await proxied_store.claim("courier", ["id-a"], worker="w", lease=DAY, max_attempts=5)
    assert isinstance(lost, Interrupted)


async def test_a_job_is_cancelled_though_the_answer_was_lost(proxy, proxied_store):
    await proxied_store.record([an_event("a"), an_event("b")])
    await claimed(proxied_store, "b")
    proxy.lose_reply("cancel", UPDATE)

    assert await proxied_store.cancel("courier", ["id-a", "id-b"]) == [Cancelled.ENDS, Cancelled.TOO_LATE]
    assert proxy.seen["cancel"] == 1


@pytest.mark.parametrize("lost", [UPDATE, COMMIT, INSERT], ids=["update", "commit", "insert"])
async def test_whatever_is_lost_on_the_way_everything_happens_once(proxy, proxied_store, lost):
    proxy.lose_reply("some", lost, times=3)

    for number in range(3):
        (answer,) = await proxied_store.record([an_event(f"k{number}")])
        claim = await claimed(proxied_store, f"k{number}")
        (first,) = await proxied_store.settle([settlement(claim, RetryLater(timedelta(0), "X", "x"))])
        (second,) = await proxied_store.settle([settlement(await claimed(proxied_store, f"k{number}"), done())])
        assert (answer.recorded_as, first.status, second.status) == (NEW, Status.FAILED, Status.PROCESSED)
        assert (await proxied_store.entry("courier", f"k{number}")).attempt_count == 2

    assert proxy.seen["some"] == 3


async def test_a_letter_takes_its_steps_once_though_answers_were_lost(proxy, proxied_store):
    await settled(proxied_store, "k", dead_lettered())
    letter = dead_lettered().letter_id
    proxy.lose_reply("review", STEP)
    assert await proxied_store.review([letter], actor="ana", reason="seen") == [letter]
    proxy.lose_reply("replay", COMMIT)

    assert await proxied_store.replay([(letter, None)], actor="ana", reason="mended") == [letter]

    assert (proxy.seen["review"], proxy.seen["replay"]) == (1, 1)
    assert (await proxied_store.entry("courier", "k")).generation == 2
    assert len((await proxied_store.letter(letter)).decisions) == 2


async def test_a_sweep_reports_what_it_has_postponed_though_the_answer_was_lost(proxy, proxied_store):
    await proxied_store.record([an_event()])
    proxied_store.link.clock.skew = DAY
    proxy.lose_reply("due", UPDATE)

    assert [each.job_id for each in await proxied_store.due("courier", 10, again_after=DAY)] == ["id-k"]
    assert proxy.seen["due"] == 1


async def test_a_silent_server_is_unavailable_and_no_call_waits_for_ever(proxy, proxied_store):
    async with proxy.blackhole(), asyncio.timeout(60):
        with pytest.raises(StoreUnavailable):
            await proxied_store.ping()
        with pytest.raises(StoreUnavailable):
            await proxied_store.record([an_event()])

    await proxied_store.ping()
    (answer,) = await proxied_store.record([an_event()])
    assert answer.recorded_as in {NEW, RecordedAs.DUPLICATE}  # the delayed request arrived in the end


async def test_connections_that_are_cut_all_the_time_lose_nothing(proxy, proxied_store):
    stop = asyncio.Event()

    async def cut():
        while not stop.is_set():
            proxy.reset()
            await asyncio.sleep(0.03)

    async def live(number):
        while True:
            try:
                return await proxied_store.record([an_event(f"k{number}")])
            except StoreUnavailable:
                continue

    cutting = asyncio.create_task(cut())
    answers = [await live(number) for number in range(60)]
    stop.set()
    await cutting

    assert proxy.seen["resets"] > 0
    assert [each.recorded_as for (each,) in answers] == [NEW] * 60
    assert await proxied_store.counts("courier") == {"received": 60}
