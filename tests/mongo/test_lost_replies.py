"""A reply that is lost after the server has done the work: asked again, nothing is done twice."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.contracts.errors import StoreUnavailable
from holdfast.contracts.ledger import Claimed, Interrupted, Lease, RecordedAs, Status
from holdfast.contracts.transitions import Proceed, RetryLater
from tests.mongo.steps import DAY, an_event, claimed, dead_lettered, done, moved, settled, settlement
from tests.support.tcp_proxy import TcpProxy

NEW = RecordedAs.NEW


@pytest.fixture
def mongo_database(emptied_mongo_database) -> str:
    """How collections come to be is tested elsewhere."""
    return emptied_mongo_database


@pytest.fixture
async def line(mongo):
    """A troubled line to the server."""
    async with TcpProxy(mongo.members[0].port) as proxy:
        yield proxy


@pytest.fixture
async def far_store(line, make_store):
    """A store at the other end of it."""
    store = make_store(uri=f"mongodb://127.0.0.1:{line.port}/?directConnection=true")
    await store.open()
    return store


def command(name, collection=None):
    """Requests with this command, as BSON begins it."""
    if collection is None:
        return lambda data: name.encode() + b"\0" in data
    start = b"\2" + name.encode() + b"\0" + (len(collection) + 1).to_bytes(4, "little") + collection.encode() + b"\0"
    return lambda data: start in data


INSERT = command("insert", "processed_events")
UPDATE = command("update", "processed_events")
COMMIT = command("commitTransaction")
STEP = command("update", "dead_letter_events")


@pytest.mark.parametrize("silent", [False, True], ids=["cut", "silent"])
async def test_a_recorded_job_is_new_though_its_first_answer_was_lost(line, far_store, silent):
    await far_store.record([an_event("there")])
    line.lose_reply("insert", INSERT, silent=silent)

    answers = await far_store.record([an_event("a"), an_event("there"), an_event("b"), an_event("a")])

    assert line.seen["insert"] == 1
    assert [each.recorded_as for each in answers] == [NEW, RecordedAs.DUPLICATE, NEW, RecordedAs.DUPLICATE]
    assert await far_store.counts("courier") == {"received": 3}


@pytest.mark.parametrize("silent", [False, True], ids=["cut", "silent"])
async def test_a_job_is_claimed_once_though_the_first_answer_was_lost(line, far_store, silent):
    await far_store.record([an_event(f"k{n}") for n in range(20)])
    line.lose_reply("claim", UPDATE, silent=silent)

    claims = await far_store.claim("courier", [f"id-k{n}" for n in range(20)], worker="w", lease=DAY, max_attempts=5)

    assert line.seen["claim"] == 1
    assert {type(each) for each in claims} == {Claimed}
    assert {(each.attempt, each.fence) for each in claims} == {(1, 1)}
    assert (await far_store.entry("courier", "k7")).attempt_count == 1


@pytest.mark.parametrize("silent", [False, True], ids=["cut", "silent"])
async def test_a_commit_counts_once_though_its_answer_was_lost(line, far_store, silent):
    await far_store.record([an_event("a"), an_event("b"), an_event("c")])
    a, b, c = [await claimed(far_store, key) for key in ("a", "b", "c")]
    line.lose_reply("commit", COMMIT, silent=silent)

    answers = await far_store.settle(
        [
            settlement(a, done(moved(at="2026-02-26T12:00:00.000Z"))),
            settlement(b, done(moved(at="2026-02-26T11:00:00.000Z"))),
            settlement(c, dead_lettered("c")),
        ],
    )

    assert line.seen["commit"] == 1
    assert [(each.status, each.note) for each in answers] == [
        (Status.PROCESSED, None),
        (Status.PROCESSED, "ignored_stale"),
        (Status.DEAD_LETTERED, None),
    ]
    assert (await far_store.entry("courier", "a")).attempt_count == 1
    assert await far_store.letter(dead_lettered("c").letter_id) is not None


# The driver itself asks again for a commit whose line was cut. One that stays silent makes us begin anew.
@pytest.mark.parametrize("silent", [False, True], ids=["cut", "silent"])
async def test_a_job_with_effects_is_new_though_its_commit_was_not_answered(line, far_store, silent):
    await far_store.record([an_event("there")])
    line.lose_reply("commit", COMMIT, silent=silent)

    answers = await far_store.record(
        [
            an_event("a", effects=[moved("a", orderId="first")]),
            an_event("there", effects=[moved("there")]),
            an_event("a", effects=[moved("a", orderId="again")]),
            an_event("b", effects=[moved("b")]),
            an_event("c", job_id="id-a", effects=[moved("a", orderId="taken")]),
        ],
    )

    duplicate, conflict = RecordedAs.DUPLICATE, RecordedAs.CONFLICT
    assert line.seen["commit"] == 1
    assert [each.recorded_as for each in answers] == [NEW, duplicate, duplicate, NEW, conflict]
    assert await far_store.counts("courier") == {"received": 3}
    assert (await far_store.get("active_shipments", "a"))["orderId"] == "first"
    assert await far_store.get("active_shipments", "b") is not None
    assert await far_store.get("active_shipments", "there") is None


@pytest.mark.parametrize("silent", [False, True], ids=["cut", "silent"])
async def test_a_job_proceeds_once_though_its_commit_was_not_answered(line, far_store, silent):
    await far_store.apply([moved()])
    late = moved(at="2026-01-01T00:00:00.000Z")
    await settled(far_store, "a", RetryLater(timedelta(0), "X", "x", [late]))  # it leaves a note on the entry
    await far_store.record([an_event("b")])
    a, b = await claimed(far_store, "a"), await claimed(far_store, "b")
    line.lose_reply("commit", COMMIT, silent=silent)

    answers = await far_store.settle(
        [settlement(a, Proceed([moved(state="of a")])), settlement(b, done(moved(state="of b, which came later")))],
    )

    assert line.seen["commit"] == 1
    assert [(each.status, each.note) for each in answers] == [(Status.PROCESSING, None), (Status.PROCESSED, None)]
    assert (await far_store.get("active_shipments", "shp-1"))["state"] == "of b, which came later"
    assert await far_store.renew("courier", [Lease(a.job_id, a.fence)], DAY) == []
    far_store._link.clock.skew = 2 * DAY
    (lost,) = await far_store.claim("courier", ["id-a"], worker="w", lease=DAY, max_attempts=5)
    assert isinstance(lost, Interrupted)


async def test_a_job_is_cancelled_though_the_answer_was_lost(line, far_store):
    await far_store.record([an_event("a"), an_event("b")])
    await claimed(far_store, "b")
    line.lose_reply("cancel", UPDATE)

    assert await far_store.cancel("courier", ["id-a", "id-b"]) == [True, False]
    assert line.seen["cancel"] == 1


@pytest.mark.parametrize("lost", [UPDATE, COMMIT, INSERT], ids=["update", "commit", "insert"])
async def test_whatever_is_lost_on_the_way_everything_happens_once(line, far_store, lost):
    line.lose_reply("some", lost, times=3)

    for number in range(3):
        (answer,) = await far_store.record([an_event(f"k{number}")])
        claim = await claimed(far_store, f"k{number}")
        (first,) = await far_store.settle([settlement(claim, RetryLater(timedelta(0), "X", "x"))])
        (second,) = await far_store.settle([settlement(await claimed(far_store, f"k{number}"), done())])
        assert (answer.recorded_as, first.status, second.status) == (NEW, Status.FAILED, Status.PROCESSED)
        assert (await far_store.entry("courier", f"k{number}")).attempt_count == 2

    assert line.seen["some"] == 3


async def test_a_letter_takes_its_steps_once_though_answers_were_lost(line, far_store):
    await settled(far_store, "k", dead_lettered())
    letter = dead_lettered().letter_id
    line.lose_reply("review", STEP)
    assert await far_store.review([letter], actor="ana", reason="seen") == [letter]
    line.lose_reply("replay", COMMIT)

    assert await far_store.replay([(letter, None)], actor="ana", reason="mended") == [letter]

    assert (line.seen["review"], line.seen["replay"]) == (1, 1)
    assert (await far_store.entry("courier", "k")).generation == 2
    assert len((await far_store.letter(letter)).decisions) == 2


async def test_a_sweep_reports_what_it_has_postponed_though_the_answer_was_lost(line, far_store):
    await far_store.record([an_event()])
    far_store._link.clock.skew = DAY
    line.lose_reply("due", UPDATE)

    assert [each.job_id for each in await far_store.due("courier", 10, again_after=DAY)] == ["id-k"]
    assert line.seen["due"] == 1


async def test_a_server_that_says_nothing_is_unavailable_and_nobody_waits_for_ever(line, far_store):
    async with line.blackhole(), asyncio.timeout(60):
        with pytest.raises(StoreUnavailable):
            await far_store.ping()
        with pytest.raises(StoreUnavailable):
            await far_store.record([an_event()])

    await far_store.ping()
    (answer,) = await far_store.record([an_event()])
    assert answer.recorded_as in {NEW, RecordedAs.DUPLICATE}  # what the line swallowed arrived in the end


async def test_lines_that_are_cut_all_the_time_lose_nothing(line, far_store):
    stop = asyncio.Event()

    async def cut():
        while not stop.is_set():
            line.reset()
            await asyncio.sleep(0.03)

    async def live(number):
        while True:
            try:
                return await far_store.record([an_event(f"k{number}")])
            except StoreUnavailable:
                continue

    cutting = asyncio.create_task(cut())
    answers = [await live(number) for number in range(60)]
    stop.set()
    await cutting

    assert line.seen["resets"] > 0
    assert [each.recorded_as for (each,) in answers] == [NEW] * 60
    assert await far_store.counts("courier") == {"received": 60}
