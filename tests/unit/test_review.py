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
from tests.support.stage import GRACE, a_stage
from tests.support.workloads import Parcel, Parcels, deliver

ANA = {"actor": "ana", "reason": "the place was closed"}


class Renamed(Parcels):
    """Replays a job as another one, as documents do (rule D24)."""

    def replayed(self, letter):
        data = json.loads(letter.body)
        return Parcel(id=f"{data['id']}-again", place=data["place"])


@pytest.fixture
async def stage():
    async with a_stage(Parcels(lambda job: Reject("CLOSED", "nobody there"))) as made:
        yield made


async def dead(stage, *names, review=False):
    """Jobs that were dead-lettered, and the ids of their letters."""
    for name in names:
        await stage.accept(name)
    async with stage.working():
        for name in names:
            await stage.until(name, Status.DEAD_LETTERED)
    letters = [(await stage.letters(key=f"parcel:{name}"))[0].id for name in names]
    if review:
        for letter in letters:
            await stage.review.review(letter, **ANA)
    return letters


async def test_a_letter_is_reviewed_replayed_and_closed(stage):
    (letter,) = await dead(stage, "p")
    assert (await stage.review.review(letter, **ANA)).review_status is ReviewStatus.REVIEWED
    assert (await stage.review.replay(letter, **ANA)).review_status is ReviewStatus.REPLAYED
    assert await stage.status("p") is Status.RECEIVED

    stage.workload.script = deliver
    async with stage.working():
        entry = await stage.until("p", Status.PROCESSED)

    assert (entry.generation, entry.attempt_count) == (2, 1)
    closed = await stage.review.close(letter, **ANA)
    assert [(each.step, each.actor) for each in closed.decisions] == [
        (ReviewStatus.REVIEWED, "ana"),
        (ReviewStatus.REPLAYED, "ana"),
        (ReviewStatus.CLOSED, "ana"),
    ]


async def test_a_replayed_job_is_queued_at_once_and_its_letter_leaves_the_queue(stage):
    (letter,) = await dead(stage, "p", review=True)
    assert (await stage.broker.depth("parcels-dead")).ready == 1

    await stage.review.replay(letter, **ANA)

    ((job_id, data),) = await stage.queued("parcels-main")
    assert (job_id, Parcel.model_validate_json(data)) == ("parcel.p", Parcel(id="p"))
    assert (await stage.broker.depth("parcels-dead")).ready == 0


async def test_a_closed_letter_leaves_the_queue(stage):
    (letter,) = await dead(stage, "p", review=True)

    await stage.review.close(letter, **ANA)

    assert (await stage.broker.depth("parcels-dead")).ready == 0
    assert await stage.status("p") is Status.DEAD_LETTERED
    assert await stage.queued("parcels-main") == []


@pytest.mark.parametrize("step", ["replay", "close"])
async def test_an_unreviewed_letter_can_only_be_reviewed(stage, step):
    (letter,) = await dead(stage, "p")

    with pytest.raises(ReviewRefused, match="pending"):
        await getattr(stage.review, step)(letter, **ANA)

    assert await stage.status("p") is Status.DEAD_LETTERED


async def test_a_letter_is_replayed_once(stage):
    (letter,) = await dead(stage, "p", review=True)

    results = await asyncio.gather(
        *(stage.review.replay(letter, **ANA) for _ in range(10)),
        return_exceptions=True,
    )

    assert sum(isinstance(result, ReviewRefused) for result in results) == 9
    assert (await stage.entry("p")).generation == 2
    assert len(await stage.queued("parcels-main")) == 1


@pytest.mark.parametrize("step", ["show", "review", "replay", "close"])
async def test_a_letter_that_is_not_there_is_not_found(stage, step):
    with pytest.raises(NotFound):
        await getattr(stage.review, step)("dl_never", **({} if step == "show" else ANA))


async def test_a_replay_needs_no_queue(stage):
    (letter,) = await dead(stage, "p", review=True)
    stage.broker.break_down(BrokerUnavailable(), "publish", "remove")

    await stage.review.replay(letter, **ANA)

    stage.broker.repair()
    stage.clock.advance(GRACE)
    report = await stage.maintenance.round()
    assert (report.republished, report.letters_unpublished) == (1, 1)
    assert len(await stage.queued("parcels-main")) == 1


async def test_a_replay_that_could_not_be_committed_did_not_happen(stage):
    (letter,) = await dead(stage, "p", review=True)
    stage.store.fail("replay", StoreUnavailable())

    with pytest.raises(StoreUnavailable):
        await stage.review.replay(letter, **ANA)

    assert (await stage.review.show(letter)).review_status is ReviewStatus.REVIEWED
    assert await stage.queued("parcels-main") == []


async def test_a_workload_may_replay_as_a_new_job():
    async with a_stage(Renamed(lambda job: Reject("CLOSED"))) as stage:
        (letter,) = await dead(stage, "p", review=True)

        replayed = await stage.review.replay(letter, **ANA)

        assert replayed.replayed_as == "parcel:p-again"
        entry = await stage.entry("p-again")
        assert (entry.status, entry.replay_of, entry.generation) == (Status.RECEIVED, "parcel:p", 1)
        assert await stage.status("p") is Status.DEAD_LETTERED
        assert [job_id for job_id, _ in await stage.queued("parcels-main")] == ["parcel.p-again"]


async def test_a_workload_that_cannot_make_a_new_job_refuses_the_replay(stage):
    (letter,) = await dead(stage, "p", review=True)
    stage.workload.replayed = lambda letter: 1 / 0

    with pytest.raises(ReviewRefused):
        await stage.review.replay(letter, **ANA)

    assert (await stage.review.show(letter)).review_status is ReviewStatus.REVIEWED


async def test_a_letter_of_a_workload_that_does_not_run_here_can_be_closed_but_not_replayed(stage):
    (letter,) = await dead(stage, "p", review=True)
    elsewhere = Review(stage.store, stage.broker, {})

    with pytest.raises(ReviewRefused, match="parcels"):
        await elsewhere.replay(letter, **ANA)

    assert (await elsewhere.close(letter, **ANA)).review_status is ReviewStatus.CLOSED


# --- many at once -----------------------------------------------------------------------------------------------


async def test_a_replay_by_filter_takes_the_oldest_reviewed_letters(stage):
    letters = await dead(stage, *"abcde", review=True)
    (pending,) = await dead(stage, "f")

    report = await stage.review.replay_where(LetterQuery(reason_code="CLOSED"), limit=3, **ANA)

    assert (report.matched, report.moved, report.skipped) == (5, letters[:3], [])
    assert sorted(job_id for job_id, _ in await stage.queued("parcels-main")) == ["parcel.a", "parcel.b", "parcel.c"]
    assert (await stage.review.show(pending)).review_status is ReviewStatus.PENDING


async def test_a_dry_run_changes_nothing(stage):
    letters = await dead(stage, "a", "b", review=True)

    report = await stage.review.replay_where(LetterQuery(workload="parcels"), limit=10, dry_run=True, **ANA)

    assert (report.matched, report.moved) == (2, letters)
    assert [(await stage.review.show(letter)).review_status for letter in letters] == [ReviewStatus.REVIEWED] * 2
    assert await stage.queued("parcels-main") == []


async def test_a_replay_of_more_than_a_page_replays_each_once(stage):
    names = [f"p{n}" for n in range(230)]
    letters = await dead(stage, *names, review=True)
    told = []

    chosen = await stage.review.choose(ReviewStatus.REPLAYED, LetterQuery(workload="parcels"), limit=1000)
    report = await stage.review.move(chosen, progress=lambda *each: told.append(each), **ANA)

    assert sorted(report.moved) == sorted(letters)
    assert told == [(100, 230), (200, 230), (230, 230)]
    assert await stage.store.counts("parcels") == {"received": 230}


@pytest.mark.parametrize(
    "query",
    [LetterQuery(), *(LetterQuery(review_status=status) for status in ReviewStatus if status.value != "reviewed")],
)
async def test_a_filter_must_say_something_and_cannot_skip_the_review(stage, query):
    await dead(stage, "p", review=True)

    with pytest.raises(InvalidQuery):
        await stage.review.replay_where(query, limit=1, **ANA)

    assert await stage.status("p") is Status.DEAD_LETTERED


async def test_a_letter_that_somebody_else_replays_meanwhile_is_skipped(stage):
    first, second = await dead(stage, "a", "b", review=True)

    async def meanwhile(replays, **options):
        stage.store.before("replay", _nothing)
        await stage.store.replay([(first, None)], actor="bo", reason="faster")

    stage.store.before("replay", meanwhile)
    report = await stage.review.replay_where(LetterQuery(workload="parcels"), limit=10, **ANA)

    assert (report.matched, report.moved, report.skipped) == (2, [second], [first])


async def test_a_letter_that_cannot_be_replayed_holds_back_no_other():
    class Particular(Renamed):
        def replayed(self, letter):
            return Parcel.model_validate({"id": None}) if letter.key == "parcel:b" else super().replayed(letter)

    async with a_stage(Particular(lambda job: Reject("CLOSED"))) as stage:
        first, second, third = await dead(stage, "a", "b", "c", review=True)

        report = await stage.review.replay_where(LetterQuery(workload="parcels"), limit=10, **ANA)

        assert (report.moved, report.skipped, list(report.refused)) == ([first, third], [], [second])
        assert "no job of parcels" in report.refused[second]
        assert "id: must be a string" in report.refused[second]
        assert (await stage.review.show(second)).review_status is ReviewStatus.REVIEWED


async def test_what_was_chosen_is_moved_and_nothing_that_came_later(stage, seen):
    first, second = await dead(stage, "a", "b")
    chosen = await stage.review.choose(ReviewStatus.REVIEWED, LetterQuery(), limit=10)
    (late,) = await dead(stage, "c")
    await stage.review.review(second, **ANA)

    report = await stage.review.move(chosen, **ANA)

    assert (report.moved, report.skipped) == ([first], [second])
    assert (await stage.review.show(late)).review_status is ReviewStatus.PENDING
    decided = [fields["letter"] for event, fields in seen if event == events.LETTER_DECIDED]
    assert decided == [second, first]


async def test_reviewed_and_replayed_letters_are_closed_oldest_first(stage):
    first, second, third = await dead(stage, "a", "b", "c", review=True)
    (pending,) = await dead(stage, "d")
    await stage.review.replay(second, **ANA)

    chosen = await stage.review.choose(ReviewStatus.CLOSED, LetterQuery(workload="parcels"), limit=2)
    report = await stage.review.move(chosen, **ANA)

    assert (chosen.matched, chosen.unreviewed, report.moved) == (3, 1, [first, second])
    assert (await stage.review.show(third)).review_status is ReviewStatus.REVIEWED
    assert (await stage.review.show(pending)).review_status is ReviewStatus.PENDING


async def _nothing(*arguments, **options):
    return None


async def test_letters_are_listed_and_counted(stage):
    letters = await dead(stage, "a", "b", "c")

    found = await stage.review.list(LetterQuery(workload="parcels"), Page(2))

    assert [letter.id for letter in found.items] == letters[:2]
    assert await stage.review.count(LetterQuery(workload="parcels")) == 3
    assert (await stage.review.show(letters[0])).created_at <= stage.clock.now() + timedelta(0)
