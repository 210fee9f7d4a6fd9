"""The review of documents' dead letters: only people replay them, once each, and as new jobs (D23, D24, D25)."""

from __future__ import annotations

import json

import pytest
import pytest_asyncio

from holdfast.contracts.dead_letters import ReviewStatus
from holdfast.contracts.errors import ReviewRefused
from holdfast.contracts.ledger import Status
from holdfast.contracts.queries import EntryQuery, LetterQuery, Page
from tests.support.document_client import CLUSTER, EMBEDDED, OCR, document_client_on, eventually
from tests.support.gateway import outcomes
from tests.support.pages import text_pdf

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[EMBEDDED, CLUSTER])
async def client(request, tmp_path_factory):
    async with document_client_on(request.param, request, tmp_path_factory.mktemp("documents")) as client:
        yield client


async def entries(client):
    return (await client.gateway.store.find(EntryQuery(workload="documents"), Page(1_000))).items


async def test_a_letter_is_replayed_once_as_a_new_job_that_knows_the_old_one(client):
    job_id = await client.handed_in(local_path="late.pdf", job_id="late-1", language="en", metadata={"order": 7})
    await client.the_letter(job_id)
    (letter,) = await client.letters(job_id)
    with pytest.raises(ReviewRefused):  # not looked at yet
        await client.gateway.review.replay(letter.id, actor="ana", reason="in a hurry")
    (client.roots / "late.pdf").write_bytes(text_pdf(["Here at last"]))

    replayed = await client.replay(letter)

    new_id = (await client.job(job_id))["replayed_as"]
    assert new_id not in {None, job_id}
    assert (replayed.review_status, replayed.replayed_as) == (ReviewStatus.REPLAYED, await client.key(new_id))
    assert [(each.step, each.actor, each.reason) for each in replayed.decisions] == [
        (ReviewStatus.REVIEWED, "ana", "looked"),
        (ReviewStatus.REPLAYED, "ana", "mended"),
    ]
    new = await client.until(new_id, "COMPLETED")
    assert (new["replay_of"], new["company_id"], new["attempts"], new["metadata"]) == (
        job_id,
        client.companies["acme"],
        1,
        {"order": 7},
    )
    assert b"Here at last" in await client.output(new_id, "text.txt")
    assert (await client.get(job_id)).json()["replayed_as"] == new_id
    assert (await client.get(new_id)).json()["replay_of"] == job_id

    old, entry = await client.job(job_id), await client.entry(new_id)
    assert (old["status"], old["attempts"], (await client.result(job_id))["status"]) == ("FAILED", 3, "FAILED")
    assert (await client.entry(job_id)).status is Status.DEAD_LETTERED
    assert (entry.status, entry.generation, entry.replay_of) == (Status.PROCESSED, 1, await client.key(job_id))
    with pytest.raises(ReviewRefused):
        await client.gateway.review.replay(letter.id, actor="ana", reason="once more")
    await client.look_after()
    assert await client.told(job_id) == []
    key, new_key = await client.key(job_id), await client.key(new_id)
    assert [each.key for each in await entries(client) if each.replay_of == key] == [new_key]


async def test_a_replay_that_fails_too_has_a_letter_of_its_own(client):
    job_id = await client.handed_in(local_path="never.pdf")
    await client.the_letter(job_id)
    (letter,) = await client.letters(job_id)
    await client.replay(letter)
    new_id = (await client.job(job_id))["replayed_as"]

    told = await client.the_letter(new_id)

    assert (told["replay_of"], told["attempts"], told["payload"]) == (job_id, 3, {"local_path": "never.pdf"})
    assert outcomes(await client.entry(new_id)) == [("failed", "FILE_NOT_FOUND")] * 3
    assert len(await client.letters(job_id)) == len(await client.letters(new_id)) == 1


async def test_the_letter_of_an_invalid_job_cannot_be_replayed(client):
    await client.put(
        {"job_id": "broken-1", "job_type": "POETRY", "input_type": "PDF", "payload": {"local_path": "a.pdf"}}
    )
    await client.the_letter("broken-1")
    (letter,) = await client.letters("broken-1")
    await client.gateway.review.review(letter.id, actor="ana", reason="looked")
    before = len(await entries(client))

    with pytest.raises(ReviewRefused, match=r"It cannot be replayed.*job_type: must be 'OCR' or"):
        await client.gateway.review.replay(letter.id, actor="ana", reason="hope")

    await client.look_after()
    (letter,) = await client.letters("broken-1")
    assert letter.review_status is ReviewStatus.REVIEWED
    assert len(await client.told("broken-1")) == 1
    assert len(await entries(client)) == before
    closed = await client.gateway.review.close(letter.id, actor="ana", reason="the sender was told")
    assert closed.review_status is ReviewStatus.CLOSED


async def test_nothing_is_ever_replayed_by_itself(client):
    """Whatever is mended, and however often maintenance and a new worker look."""
    pending = await client.handed_in(local_path="mended.pdf")
    reviewed = await client.handed_in(local_path="mended.pdf", language="en")
    for job_id in (pending, reviewed):
        await client.the_letter(job_id)
    (letter,) = await client.letters(reviewed)
    await client.gateway.review.review(letter.id, actor="ana", reason="looked")
    (client.roots / "mended.pdf").write_bytes(text_pdf(["Mended"]))
    before = json.dumps(sorted(each.key for each in await entries(client)))

    async with client.gateway.resting():
        await client.look_after(rounds=10)
    await client.look_after(rounds=10)

    await eventually(lambda: _quiet(client))
    assert json.dumps(sorted(each.key for each in await entries(client))) == before
    for job_id, status in ((pending, ReviewStatus.PENDING), (reviewed, ReviewStatus.REVIEWED)):
        (letter,) = await client.letters(job_id)
        assert (letter.review_status, letter.replayed_as) == (status, None)
        assert (await client.job(job_id))["status"] == "FAILED"
        assert (await client.entry(job_id)).attempt_count == 3


async def test_letters_are_replayed_by_filter_each_as_a_job_of_its_own(client):
    jobs = [await client.handed_in(local_path=f"many-{number}.pdf") for number in range(3)]
    for job_id in jobs:
        await client.the_letter(job_id)
        (letter,) = await client.letters(job_id)
        if job_id is not jobs[2]:
            await client.gateway.review.review(letter.id, actor="ana", reason="looked")
        (client.roots / f"many-{jobs.index(job_id)}.pdf").write_bytes(text_pdf([f"File {job_id}"]))
    query = LetterQuery(
        workload="documents", labels={"company_id": client.companies["acme"]}, reason_code="FILE_NOT_FOUND"
    )

    report = await client.gateway.review.replay_where(query, limit=50, actor="ana", reason="the folder is back")

    (first,), (second,), (third,) = [await client.letters(job_id) for job_id in jobs]
    assert {first.id, second.id} <= set(report.moved)
    assert third.id not in report.moved
    for job_id in jobs[:2]:
        new_id = (await client.job(job_id))["replayed_as"]
        await client.until(new_id, "COMPLETED")
        assert f"File {job_id}".encode() in await client.output(new_id, "text.txt")
    assert (await client.job(jobs[2])).get("replayed_as") is None


async def test_a_conflicting_job_of_a_external_producer_can_be_replayed_under_an_id_of_its_own(client):
    """Its letter shows its own payload, not that of the job which had the id first and hears nothing of all this."""
    (client.roots / "theirs.pdf").write_bytes(text_pdf(["Theirs"]))
    await client.put({"job_id": "same-id", **OCR, "payload": {"local_path": "theirs.pdf", "language": "pt"}})
    await client.until("same-id", "COMPLETED")
    await client.put({"job_id": "same-id", **OCR, "payload": {"local_path": "theirs.pdf"}})
    told = await client.the_letter("same-id")
    assert (told["error_code"], told["error_type"], told["attempts"]) == ("IDEMPOTENCY_CONFLICT", "VALIDATION", 1)
    assert told["payload"] == {"local_path": "theirs.pdf"}
    assert (await client.job("same-id"))["status"] == "COMPLETED"

    (letter,) = await client.letters("same-id")
    replayed = await client.replay(letter)

    new = await client.until(replayed.replayed_as, "COMPLETED")
    assert (new["replay_of"], new["company_id"], new["language"]) == (None, None, None)
    assert (await client.entry(new["job_id"])).replay_of == letter.key
    assert (await client.job("same-id")).get("replayed_as") is None


async def _quiet(client) -> bool:
    depth = await client.gateway.broker.depth("doc_jobs")
    return (depth.ready, depth.delayed, depth.active) == (0, 0, 0)
