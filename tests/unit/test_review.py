"""Review: people decide about dead letters, and nothing happens by itself (I9)."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from holdfast import Reject
from holdfast.contracts.dead_letters import ReviewStatus
from holdfast.contracts.errors import BrokerUnavailable, InvalidQuery, NotFound, ReviewRefused, StoreUnavailable
from holdfast.contracts.ledger import Status
from holdfast.contracts.queries import LetterQuery, Page
from holdfast.engine.review import Review
from holdfast.telemetry import events
from tests.support.gateway import GRACE, assembled
from tests.support.workloads import Parcel, Parcels, deliver

ANA = {"actor": "ana", "reason": "the place was closed"}


class Renamed(Parcels):
    """Replays a job as another one, as documents do (rule D24)."""

    def replayed(self, letter):
        data = json.loads(letter.body)
        return Parcel(id=f"{data['id']}-again", place=data["place"])


@pytest.fixture
async def gateway():
    async with assembled(Parcels(lambda job: Reject("CLOSED", "nobody there"))) as made:
        yield made


async def dead(gateway, *names, review=False):
    """Jobs that were dead-lettered, and the ids of their letters."""
    for name in names:
        await gateway.accept(name)
    async with gateway.working():
        for name in names:
            await gateway.until(name, Status.DEAD_LETTERED)
    letters = [(await gateway.letters(key=f"parcel:{name}"))[0].id for name in names]
    if review:
        for letter in letters:
            await gateway.review.review(letter, **ANA)
    return letters


async def test_a_letter_is_reviewed_replayed_and_closed(gateway):
    (letter,) = await dead(gateway, "p")
    assert (await gateway.review.review(letter, **ANA)).review_status is ReviewStatus.REVIEWED
    assert (await gateway.review.replay(letter, **ANA)).review_status is ReviewStatus.REPLAYED
    assert await gateway.status("p") is Status.RECEIVED

    gateway.workload.script = deliver
    async with gateway.working():
        entry = await gateway.until("p", Status.PROCESSED)

    assert (entry.generation, entry.attempt_count) == (2, 1)
    closed = await gateway.review.close(letter, **ANA)
    assert [(each.step, each.actor) for each in closed.decisions] == [
        (ReviewStatus.REVIEWED, "ana"),
        (ReviewStatus.REPLAYED, "ana"),
        (ReviewStatus.CLOSED, "ana"),
    ]


async def test_a_replayed_job_is_queued_at_once_and_its_letter_leaves_the_queue(gateway):
    (letter,) = await dead(gateway, "p", review=True)
    assert (await gateway.broker.depth("parcels-dead")).ready == 1

    await gateway.review.replay(letter, **ANA)

    ((job_id, data),) = await gateway.queued("parcels-main")
    assert (job_id, Parcel.model_validate_json(data)) == ("parcel.p", Parcel(id="p"))
    assert (await gateway.broker.depth("parcels-dead")).ready == 0


async def test_a_closed_letter_leaves_the_queue(gateway):
    (letter,) = await dead(gateway, "p", review=True)

    await gateway.review.close(letter, **ANA)

    assert (await gateway.broker.depth("parcels-dead")).ready == 0
    assert await gateway.status("p") is Status.DEAD_LETTERED
    assert await gateway.queued("parcels-main") == []


@pytest.mark.parametrize("step", ["replay", "close"])
async def test_an_unreviewed_letter_can_only_be_reviewed(gateway, step):
    (letter,) = await dead(gateway, "p")

    with pytest.raises(ReviewRefused, match="pending"):
        await getattr(gateway.review, step)(letter, **ANA)

    assert await gateway.status("p") is Status.DEAD_LETTERED


async def test_a_letter_is_replayed_once(gateway):
    (letter,) = await dead(gateway, "p", review=True)

    results = await asyncio.gather(
        *(gateway.review.replay(letter, **ANA) for _ in range(10)),
        return_exceptions=True,
    )

    assert sum(isinstance(result, ReviewRefused) for result in results) == 9
    assert (await gateway.entry("p")).generation == 2
    assert len(await gateway.queued("parcels-main")) == 1


@pytest.mark.parametrize("step", ["show", "review", "replay", "close"])
async def test_a_letter_that_is_not_there_is_not_found(gateway, step):
    with pytest.raises(NotFound):
        await getattr(gateway.review, step)("dl_never", **({} if step == "show" else ANA))


async def test_a_replay_needs_no_queue(gateway):
    (letter,) = await dead(gateway, "p", review=True)
    gateway.broker.break_down(BrokerUnavailable(), "publish", "remove")

    await gateway.review.replay(letter, **ANA)

    gateway.broker.repair()
    gateway.clock.advance(GRACE)
    report = await gateway.maintenance.round()
    assert (report.republished, report.letters_unpublished) == (1, 1)
    assert len(await gateway.queued("parcels-main")) == 1


async def test_a_replay_that_could_not_be_committed_did_not_happen(gateway):
    (letter,) = await dead(gateway, "p", review=True)
    gateway.store.fail("replay", StoreUnavailable())

    with pytest.raises(StoreUnavailable):
        await gateway.review.replay(letter, **ANA)

    assert (await gateway.review.show(letter)).review_status is ReviewStatus.REVIEWED
    assert await gateway.queued("parcels-main") == []


async def test_a_workload_may_replay_as_a_new_job():
    async with assembled(Renamed(lambda job: Reject("CLOSED"))) as gateway:
        (letter,) = await dead(gateway, "p", review=True)

        replayed = await gateway.review.replay(letter, **ANA)

        assert replayed.replayed_as == "parcel:p-again"
        entry = await gateway.entry("p-again")
        assert (entry.status, entry.replay_of, entry.generation) == (Status.RECEIVED, "parcel:p", 1)
        assert await gateway.status("p") is Status.DEAD_LETTERED
        assert [job_id for job_id, _ in await gateway.queued("parcels-main")] == ["parcel.p-again"]


async def test_a_workload_that_cannot_make_a_new_job_refuses_the_replay(gateway):
    (letter,) = await dead(gateway, "p", review=True)
    gateway.workload.replayed = lambda letter: 1 / 0

    with pytest.raises(ReviewRefused):
        await gateway.review.replay(letter, **ANA)

    assert (await gateway.review.show(letter)).review_status is ReviewStatus.REVIEWED


async def test_a_letter_of_a_workload_that_does_not_run_here_can_be_closed_but_not_replayed(gateway):
    (letter,) = await dead(gateway, "p", review=True)
    elsewhere = Review(gateway.store, gateway.broker, {})

    with pytest.raises(ReviewRefused, match="parcels"):
        await elsewhere.replay(letter, **ANA)

    assert (await elsewhere.close(letter, **ANA)).review_status is ReviewStatus.CLOSED


# --- many at once -----------------------------------------------------------------------------------------------


async def test_a_replay_by_filter_takes_the_oldest_reviewed_letters(gateway):
    letters = await dead(gateway, *"abcde", review=True)
    (pending,) = await dead(gateway, "f")

    report = await gateway.review.replay_where(LetterQuery(reason_code="CLOSED"), limit=3, **ANA)

    assert (report.matched, report.moved, report.skipped) == (5, letters[:3], [])
    assert sorted(job_id for job_id, _ in await gateway.queued("parcels-main")) == ["parcel.a", "parcel.b", "parcel.c"]
    assert (await gateway.review.show(pending)).review_status is ReviewStatus.PENDING


async def test_a_dry_run_changes_nothing(gateway):
    letters = await dead(gateway, "a", "b", review=True)

    report = await gateway.review.replay_where(LetterQuery(workload="parcels"), limit=10, dry_run=True, **ANA)

    assert (report.matched, report.moved) == (2, letters)
    assert [(await gateway.review.show(letter)).review_status for letter in letters] == [ReviewStatus.REVIEWED] * 2
    assert await gateway.queued("parcels-main") == []


async def test_a_replay_of_more_than_a_page_replays_each_once(gateway):
    names = [f"p{n}" for n in range(230)]
    letters = await dead(gateway, *names, review=True)
    told = []

    chosen = await gateway.review.choose(ReviewStatus.REPLAYED, LetterQuery(workload="parcels"), limit=1000)
    report = await gateway.review.move(chosen, progress=lambda *each: told.append(each), **ANA)

    assert sorted(report.moved) == sorted(letters)
    assert told == [(100, 230), (200, 230), (230, 230)]
    assert await gateway.store.counts("parcels") == {"received": 230}


@pytest.mark.parametrize(
    "query",
    [LetterQuery(), *(LetterQuery(review_status=status) for status in ReviewStatus if status.value != "reviewed")],
)
async def test_a_filter_must_say_something_and_cannot_skip_the_review(gateway, query):
    await dead(gateway, "p", review=True)

    with pytest.raises(InvalidQuery):
        await gateway.review.replay_where(query, limit=1, **ANA)

    assert await gateway.status("p") is Status.DEAD_LETTERED


async def test_a_letter_that_somebody_else_replays_meanwhile_is_skipped(gateway):
    first, second = await dead(gateway, "a", "b", review=True)

    async def meanwhile(replays, **options):
        gateway.store.before("replay", _nothing)
        await gateway.store.replay([(first, None)], actor="bo", reason="faster")

    gateway.store.before("replay", meanwhile)
    report = await gateway.review.replay_where(LetterQuery(workload="parcels"), limit=10, **ANA)

    assert (report.matched, report.moved, report.skipped) == (2, [second], [first])


async def test_a_letter_that_cannot_be_replayed_holds_back_no_other():
    class Particular(Renamed):
        def replayed(self, letter):
            return Parcel.model_validate({"id": None}) if letter.key == "parcel:b" else super().replayed(letter)

    async with assembled(Particular(lambda job: Reject("CLOSED"))) as gateway:
        first, second, third = await dead(gateway, "a", "b", "c", review=True)

        report = await gateway.review.replay_where(LetterQuery(workload="parcels"), limit=10, **ANA)

        assert (report.moved, report.skipped, list(report.refused)) == ([first, third], [], [second])
        assert "no job of parcels" in report.refused[second]
        assert "id: must be a string" in report.refused[second]
        assert (await gateway.review.show(second)).review_status is ReviewStatus.REVIEWED


async def test_what_was_chosen_is_moved_and_nothing_that_came_later(gateway, seen):
    first, second = await dead(gateway, "a", "b")
    chosen = await gateway.review.choose(ReviewStatus.REVIEWED, LetterQuery(), limit=10)
    (late,) = await dead(gateway, "c")
    await gateway.review.review(second, **ANA)

    report = await gateway.review.move(chosen, **ANA)

    assert (report.moved, report.skipped) == ([first], [second])
    assert (await gateway.review.show(late)).review_status is ReviewStatus.PENDING
    decided = [fields["letter"] for event, fields in seen if event == events.LETTER_DECIDED]
    assert decided == [second, first]


async def test_reviewed_and_replayed_letters_are_closed_oldest_first(gateway):
    first, second, third = await dead(gateway, "a", "b", "c", review=True)
    (pending,) = await dead(gateway, "d")
    await gateway.review.replay(second, **ANA)

    chosen = await gateway.review.choose(ReviewStatus.CLOSED, LetterQuery(workload="parcels"), limit=2)
    report = await gateway.review.move(chosen, **ANA)

    assert (chosen.matched, chosen.unreviewed, report.moved) == (3, 1, [first, second])
    assert (await gateway.review.show(third)).review_status is ReviewStatus.REVIEWED
    assert (await gateway.review.show(pending)).review_status is ReviewStatus.PENDING


async def _nothing(*arguments, **options):
    return None


async def test_letters_are_listed_and_counted(gateway):
    letters = await dead(gateway, "a", "b", "c")

    found = await gateway.review.list(LetterQuery(workload="parcels"), Page(2))

    assert [letter.id for letter in found.items] == letters[:2]
    assert await gateway.review.count(LetterQuery(workload="parcels")) == 3
    assert (await gateway.review.show(letters[0])).created_at <= gateway.clock.now() + timedelta(0)
