"""Whose job it is: the names of a tenant's job, of its follow-up jobs and of its replays."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from holdfast import Done, Reject, Workload
from holdfast.contracts.admission import InvalidContent
from holdfast.contracts.entries import job_id_for, new_entry, owned_key, owner_of, usable_job_id
from holdfast.contracts.ledger import Status
from holdfast.contracts.tracing import request_labels
from tests.support.gateway import assembled
from tests.support.waiting import eventually

ACME = "5d3f7a52-9c1e-4b77-8f0a-3b1f6f0c2e11"


class Note(BaseModel):
    text: str
    follow: str = ""


class Notes(Workload[Note]):
    """Its job ids and labels are made from the data alone. A note may have a follow-up. A replay is a new note."""

    name = "notes"
    contract = Note
    queue = "notes-main"
    dead_letter_queue = "notes-dead"
    indexed_labels = ("companyId",)

    def key(self, data):
        return data.text

    def job_id(self, key, data):
        return f"note-{data.text}"

    def labels(self, data):
        return {"companyId": "chosen by the sender"}

    def replayed(self, letter):
        return Note(text="again")

    async def handle(self, job, context):
        if job.data.text == "bad":
            return Reject("BAD", "A bad note.")
        if job.data.follow:
            context.submit(self, Note(text=job.data.follow))
        return Done()


@pytest.fixture
async def gateway():
    async with assembled(Notes()) as made:
        yield made


def test_the_names_of_a_tenants_job():
    entry = new_entry(Notes(), Note(text="a"), owner=ACME)
    assert entry.key == owned_key(ACME, "a") == f"{ACME}:a"
    assert entry.job_id == job_id_for(entry.key)
    assert usable_job_id(entry.job_id)
    assert entry.labels == {"companyId": ACME}
    assert new_entry(Notes(), Note(text="a")).job_id == "note-a"


@pytest.mark.parametrize(
    ("key", "labels", "owner"),
    [
        (f"{ACME}:a", {"companyId": ACME}, ACME),
        ("a", {"companyId": ACME}, None),
        (f"{ACME}:a", {}, None),
        (f"{ACME}:a", {"companyId": "another"}, None),
        (f"{ACME}a", {"companyId": ACME}, None),
    ],
)
def test_a_job_is_a_tenants_if_its_label_and_its_key_say_so(key, labels, owner):
    assert owner_of(key, labels) == owner


def test_the_key_of_a_tenants_job_has_the_limit_of_all_keys():
    new_entry(Notes(), Note(text="x" * 363), owner=ACME)
    with pytest.raises(InvalidContent):
        new_entry(Notes(), Note(text="x" * 364), owner=ACME)
    with pytest.raises(InvalidContent):
        new_entry(Notes(), Note(text=""), owner=ACME)


async def test_a_follow_up_job_has_the_owner_and_the_trace_of_the_first(gateway):
    token = request_labels.set({"traceId": "t1", "requestId": "r1"})
    await gateway.intake.accept(gateway.workload, Note(text="first", follow="second"), owner=ACME)
    await gateway.intake.accept(gateway.workload, Note(text="mine", follow="my-second"))
    request_labels.reset(token)
    async with gateway.working():
        for name in (f"{ACME}:first", "mine"):
            await _reached(gateway, name, Status.PROCESSED)
    follow = await gateway.store.entry("notes", f"{ACME}:second")
    assert follow.labels == {"companyId": ACME, "traceId": "t1", "requestId": "r1"}
    assert await gateway.store.entry("notes", "my-second") is not None, "the operator's stays the operator's"


async def test_a_replay_as_a_new_job_has_the_owner_of_the_first(gateway):
    await gateway.intake.accept(gateway.workload, Note(text="bad"), owner=ACME)
    async with gateway.working():
        await _reached(gateway, f"{ACME}:bad", Status.DEAD_LETTERED)
    (letter,) = await gateway.letters()
    await gateway.review.review(letter.id, actor="ana", reason="Look.")
    await gateway.review.replay(letter.id, actor="ana", reason="Again.")
    again = await gateway.store.entry("notes", f"{ACME}:again")
    assert (again.labels["companyId"], again.replay_of) == (ACME, f"{ACME}:bad")


async def _reached(gateway, key, status):
    async def reached():
        entry = await gateway.store.entry("notes", key)
        return entry is not None and entry.status is status

    await eventually(reached)
