"""``GET /v1/documents/{job_id}/events``: the progress stream."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise

import httpx
import pytest

from holdfast.contracts.effects import Delete
from holdfast.contracts.errors import StoreUnavailable
from holdfast.wiring.opening import open_system
from holdfast.wiring.running import run
from tests.api.document_api import DOCUMENTS, ELSEWHERE, document_api, events_in
from tests.support.settings import load
from tests.support.waiting import eventually


@pytest.fixture
async def api(tmp_path):
    async with document_api(tmp_path, streams=2) as made:
        yield made


class Listener:
    """A client that reads the stream as it comes, and may disconnect."""

    def __init__(self, api, job_id: str) -> None:
        self._app = api.app
        headers = [(name.encode(), value.encode()) for name, value in api.bearer().items()]
        path = f"{DOCUMENTS}/{job_id}/events"
        self._scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers}
        self._asked = False
        self._gone = asyncio.Event()
        self.status = None
        self.headers = {}
        self.received = ""
        self.ended = False

    @asynccontextmanager
    async def listening(self):
        running = asyncio.create_task(self._app(self._scope, self._receive, self._send))
        try:
            await eventually(lambda: self.status is not None)
            yield running
        finally:
            self.disconnect()
            await running

    def disconnect(self) -> None:
        self._gone.set()

    def events(self):
        return events_in(self.received)

    async def _receive(self):
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.received += message.get("body", b"").decode()
            self.ended = not message.get("more_body", False)


async def test_a_client_gets_every_change_and_the_end(api):
    job_id = await api.submitted()
    listener = Listener(api, job_id)
    async with listener.listening() as running:
        assert listener.status == 200
        assert listener.headers["content-type"].startswith("text/event-stream")
        assert "content-length" not in listener.headers
        await eventually(lambda: len(listener.events()) == 1)
        assert listener.events()[0] == ("progress", (await api.get(f"/{job_id}")).json())
        lease, data = await api.claim(job_id)
        for done in range(1, 4):
            await api.reach(data, done, 3)
            await eventually(lambda done=done: listener.events()[-1][1]["pages_done"] == done)
        await api.finish(lease, data)
        await running
    assert listener.ended
    events = listener.events()
    assert [name for name, _ in events[:-1]] == ["progress"] * (len(events) - 1)
    last = (await api.get(f"/{job_id}")).json()
    assert events[-2:] == [("progress", last), ("end", last)]
    assert all(before != after for before, after in pairwise(events))


async def test_the_stream_of_a_finished_job_ends_at_once(api):
    job_id = await api.submitted()
    await api.cancel(job_id)
    answer = await api.get(f"/{job_id}/events")
    assert [(name, view["status"]) for name, view in events_in(answer.text)] == [
        ("progress", "CANCELLED"),
        ("end", "CANCELLED"),
    ]


async def test_a_client_that_disconnects_frees_its_stream(api):
    job_id = await api.submitted()
    first, second, third = (Listener(api, job_id) for _ in range(3))
    async with first.listening(), second.listening() as other:
        async with third.listening():
            assert third.status == 429
            assert third.headers["retry-after"]
            assert "TOO_MANY_REQUESTS" in third.received
        second.disconnect()
        await other
        async with Listener(api, job_id).listening() as running:
            assert not running.done()


async def test_a_process_that_stops_breaks_off_the_streams_without_an_end_event(api):
    job_id = await api.submitted()
    listener = Listener(api, job_id)
    async with listener.listening() as running:
        await eventually(listener.events)
        api.app.leave()
        await running
        assert listener.ended
        assert [name for name, _ in listener.events()] == ["progress"]


async def test_a_stream_without_changes_sends_keep_alive_comments(tmp_path):
    async with document_api(tmp_path, stream_keep_alive=timedelta(0)) as api:
        listener = Listener(api, await api.submitted())
        async with listener.listening():
            await eventually(lambda: listener.received.count("\n\n: ") >= 2)
        assert len(listener.events()) == 1


async def test_an_unavailable_store_does_not_break_a_stream(api, monkeypatch):
    job_id = await api.submitted()
    listener = Listener(api, job_id)
    refused = []

    async def away(self, collection, key):
        refused.append(key)
        raise StoreUnavailable

    async with listener.listening() as running:
        await eventually(listener.events)
        with monkeypatch.context() as patch:
            patch.setattr(type(api.system.store), "get", away)
            await eventually(lambda: len(refused) > 2)
        await api.cancel(job_id)
        await running
    assert [name for name, _ in listener.events()] == ["progress", "progress", "end"]


async def test_a_job_whose_record_is_deleted_ends_its_stream(api):
    job_id = await api.submitted()
    listener = Listener(api, job_id)
    async with listener.listening() as running:
        await eventually(listener.events)
        await api.system.store.apply([Delete("document_jobs", job_id)])
        await running
    assert listener.ended
    assert [name for name, _ in listener.events()] == ["progress"]


async def test_a_stream_does_not_delay_the_stop_of_a_process(tmp_path):
    settings = load({"HOLDFAST_DATA": str(tmp_path), "API_PORT": "0", "WORKER_DRAIN_TIMEOUT_MS": "600000"}, tmp_path)
    async with open_system(settings) as system:
        tenant = await system.tenants.add("acme")
        _, key = await system.tenants.create_key(tenant.company_id)
    up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    lifeline, held = os.pipe()
    running = asyncio.create_task(run(settings, api=True, worker=False, ready=up.set_result, lifeline=lifeline))
    try:
        await asyncio.wait({running, up}, return_when=asyncio.FIRST_COMPLETED)
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=up.result(), headers=headers, timeout=30) as client:
            job_id = (await client.post(DOCUMENTS, json=ELSEWHERE)).json()["job_id"]
            async with client.stream("GET", f"{DOCUMENTS}/{job_id}/events") as stream:
                heard = stream.aiter_text()
                assert "retry" in await anext(heard)
                os.close(held)
                rest = "".join([text async for text in heard])
        assert [name for name, _ in events_in(rest)] == ["progress"]
        async with asyncio.timeout(60):
            await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        os.close(lifeline)
