"""Whoever asked to be called back is: once for each end, signed, and again where it did not listen."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio
from standardwebhooks import Webhook

from holdfast.contracts.ledger import Status
from tests.support import file_server as replies
from tests.support.document_client import (
    CLUSTER,
    EMBEDDED,
    SECRET,
    Script,
    document_client_on,
    eventually,
    failed,
    page,
    pages,
    plan,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[EMBEDDED, CLUSTER])
async def client(request, tmp_path_factory):
    async with document_client_on(request.param, request, tmp_path_factory.mktemp("documents")) as client:
        yield client


async def told_once(client, path, job_id):
    """The body of the one callback, whose signature the library of the standard accepts."""
    await eventually(lambda: _entry_is(client, job_id, Status.PROCESSED))
    await client.look_after()
    (request,) = await asyncio.to_thread(client.server.wait_for, path)
    assert (request.method, request.headers["webhook-id"]) == ("POST", f"{await client.key(job_id)}.done")
    return Webhook(SECRET).verify(request.body, request.headers)


async def test_the_end_of_a_job_that_was_read_is_told_with_its_result(client):
    url = client.server.answers("/completed", replies.status(204))
    job_id = await client.handed_in(Script(pages(2)), callback_url=f"{url}?key=receiver", metadata='{"order": 7}')
    told = await told_once(client, "/completed", job_id)

    job, result = await client.job(job_id), await client.result(job_id)
    assert (told["type"], told["timestamp"]) == ("document.completed", job["finished_at"])
    assert told["data"] == {
        "job_id": job_id,
        "status": "COMPLETED",
        "duration_sec": result["duration_sec"],
        "output_path": result["output_path"],
        "pages": 2,
        "units": 2,
        "units_reused": 0,
        "engine": "local",
        "model": "script",
        "language": None,
        "characters": 10,
        "confidence": 0.9,
        "media_seconds": None,
        "warnings": [],
        "cached": False,
        "error": None,
        "finished_at": job["finished_at"],
        "metadata": {"order": 7},
    }
    assert client.companies["acme"] not in str(told)


async def test_the_end_of_a_job_that_failed_is_told_once_after_its_last_attempt(client):
    url = client.server.answers("/failed", replies.status(200))
    script = Script([failed("MODEL_TIMEOUT", detail="120 s")])
    job_id = await client.handed_in(script, callback_url=url)
    told = await told_once(client, "/failed", job_id)

    assert told["type"] == "document.failed"
    assert {name: told["data"][name] for name in ("job_id", "status", "output_path", "pages", "metadata")} == {
        "job_id": job_id,
        "status": "FAILED",
        "output_path": None,
        "pages": 0,
        "metadata": None,
    }
    assert told["data"]["error"]["code"] == "MODEL_TIMEOUT"
    assert len(script.specs) == 3


async def test_the_end_of_a_cancelled_job_is_told_whether_it_had_begun_or_not(client):
    waited, worked = (client.server.answers(path, replies.status(200)) for path in ("/waited", "/worked"))
    async with client.gateway.resting():
        waiting = await client.handed_in(Script(pages(1)), callback_url=waited)
        assert (await client.cancel(waiting)).status_code == 200
    working = await client.handed_in(Script([plan(2), page(0)]), callback_url=worked)
    await client.until(working, "PROCESSING", units_done=1)
    assert (await client.cancel(working)).status_code == 202

    for path, job_id in (("/waited", waiting), ("/worked", working)):
        told = await told_once(client, path, job_id)
        assert (told["type"], told["data"]["status"]) == ("document.cancelled", "CANCELLED")
        assert told["data"]["job_id"] == job_id


async def test_a_result_that_was_there_already_is_told_once_too(client):
    script, url = Script(pages(1)), client.server.answers("/cached", replies.status(200))
    await client.until(await client.handed_in(script), "COMPLETED")
    answer = await client.upload(script.content, callback_url=url)
    assert answer.status_code == 200
    told = await told_once(client, "/cached", answer.json()["job_id"])
    assert (told["type"], told["data"]["cached"], told["data"]["pages"]) == ("document.completed", True, 1)


async def test_a_receiver_that_fails_is_told_again_and_the_document_is_read_once(client):
    url = client.server.answers("/flaky", replies.status(500), replies.reset, replies.status(204))
    script = Script(pages(1))
    job_id = await client.handed_in(script, callback_url=url)
    await eventually(lambda: _entry_is(client, job_id, Status.PROCESSED))

    requests = client.server.to("/flaky")
    assert len(requests) == 3
    assert len({request.body for request in requests}) == 1
    for request in requests:
        assert request.headers["webhook-id"] == f"{await client.key(job_id)}.done"
        Webhook(SECRET).verify(request.body, request.headers)
    assert len(script.specs) == 1


async def test_a_receiver_that_never_listens_costs_the_document_nothing(client):
    url = client.server.answers("/deaf", replies.status(500))
    job_id = await client.handed_in(Script(pages(1)), callback_url=f"{url}?key=receiver")
    await eventually(lambda: _entry_is(client, job_id, Status.DEAD_LETTERED))

    assert len(client.server.to("/deaf")) == 3
    assert (await client.job(job_id))["status"] == "COMPLETED"
    assert (await client.entry(job_id)).status is Status.PROCESSED
    assert await client.letters(job_id) == []


async def _entry_is(client, job_id, status) -> bool:
    entry = await client.gateway.store.entry("document_callbacks", f"{await client.key(job_id)}.done")
    return entry is not None and entry.status is status
