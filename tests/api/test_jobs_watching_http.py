"""Waits and streams of jobs: their limits, and what ends them early."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from unittest.mock import patch

import pytest

from holdfast.contracts.transitions import Complete
from holdfast.telemetry import events
from tests.api.courier_api import OPERATOR, _client, app_of
from tests.api.document_api import events_in
from tests.support.waiting import eventually

ERRANDS = "/v1/jobs/errands"
LONG_ANSWERS = [(f"{ERRANDS}/milk", b"wait=60"), (f"{ERRANDS}/milk/events", b"")]


class Asking:
    """A client that asks, may go away, and keeps what it got."""

    def __init__(self, app, path: str, query: bytes, headers) -> None:
        self._app = app
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._scope = {"type": "http", "method": "GET", "path": path, "query_string": query, "headers": pairs}
        self._asked = False
        self.gone = asyncio.Event()
        self.status = None
        self.body = b""

    @asynccontextmanager
    async def asking(self):
        running = asyncio.create_task(self._app(self._scope, self._receive, self._send))
        try:
            yield running
        finally:
            self.gone.set()
            await running

    async def _receive(self):
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self.body += message.get("body", b"")


@pytest.fixture
async def acme(api):
    """The key of a tenant with a job that waits."""
    key = await api.key_of("acme")
    answer = await api.client.post(ERRANDS, json={"errand": "milk"}, headers=key)
    assert answer.status_code == 202
    return key


def streams_of(api) -> int:
    return sum(each.streams for each in api.services.limits._senders.values())


@pytest.mark.parametrize(("path", "query"), LONG_ANSWERS)
async def test_an_answer_ends_when_the_client_goes_away(api, acme, path, query):
    client = Asking(app_of(api.services, api.options), path, query, acme)
    async with client.asking() as running:
        await eventually(lambda: streams_of(api))
        client.gone.set()
        await running
    assert streams_of(api) == 0
    assert api.services.waiting._waits == {}


@pytest.mark.parametrize(("path", "query"), LONG_ANSWERS)
async def test_an_answer_ends_when_the_process_is_about_to_stop(api, acme, path, query):
    app = app_of(api.services, api.options)
    client = Asking(app, path, query, acme)
    async with client.asking() as running:
        await eventually(lambda: streams_of(api))
        app.leave()
        await running
    assert client.status == 200
    assert b"event: end" not in client.body, "the job has not ended"


@pytest.mark.parametrize(("path", "query"), LONG_ANSWERS)
async def test_a_key_that_is_revoked_meanwhile_sees_no_more(api, acme, path, query):
    client = Asking(app_of(api.services, api.options), path, query, acme)
    async with client.asking() as running:
        await eventually(lambda: streams_of(api))
        (key,) = await api.services.tenants.keys()
        await api.services.tenants.revoke(key.key_id)
        company_id = (await api.services.tenants.named("acme")).company_id
        await api.settle("errands", f"{company_id}:milk", Complete(timedelta(days=1), result={"secret": "answer"}))
        api.services.waiting.notify("errands", [f"{company_id}:milk"])
        await running
    assert b"secret" not in client.body
    assert client.status == (401 if query else 200)


@pytest.mark.parametrize(("path", "query"), LONG_ANSWERS)
async def test_the_long_answers_of_a_process_are_limited(api, acme, path, query):
    module = "holdfast.api.jobs.watching"
    before = events.refusals().get("streams", 0)
    with patch(f"{module}._MOST_WAITS", 0), patch(f"{module}._MOST_STREAMS", 0):
        async with _client(api.services, api.options) as client:
            answer = await client.get(path, params=query.decode(), headers=acme)
            assert (await client.get(f"{ERRANDS}/milk", headers=acme)).status_code == 200, "without a wait"
    assert (answer.status_code, answer.json()["errorCode"]) == (429, "TOO_MANY_REQUESTS")
    assert events.refusals()["streams"] == before + 1


async def test_a_stream_shows_each_change_once(api):
    await api.client.post(ERRANDS, json={"errand": "milk"}, headers=OPERATOR)
    client = Asking(app_of(api.services, api.options), f"{ERRANDS}/milk/events", b"", OPERATOR)
    with patch("holdfast.api.jobs.watching._LOOK_EVERY", timedelta(milliseconds=5)):
        async with client.asking() as running:
            await eventually(lambda: b"received" in client.body)
            await api.settle("errands", "milk", Complete(timedelta(days=1), result={"milk": 1}))
            await running
    states = [(name, data["status"], data["result"]) for name, data in events_in(client.body.decode()) if data]
    done = {"milk": 1}
    assert states[0] == ("progress", "received", None)
    assert states[-2:] == [("progress", "processed", done), ("end", "processed", done)]
    # The stream may have looked while the job was in work.
    assert states[1:-2] in ([], [("progress", "processing", None)])


@pytest.mark.parametrize("wait", ["-1", "61", "soon", "nan", "inf"])
async def test_a_wait_has_a_limit(api, wait):
    answer = await api.client.get(f"{ERRANDS}/milk", params={"wait": wait}, headers=OPERATOR)
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_QUERY")
    assert answer.json()["details"][0]["field"] == "wait"
