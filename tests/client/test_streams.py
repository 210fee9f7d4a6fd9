"""Progress streams and schedules: what the verbs ask, and what they make of the answers."""

from __future__ import annotations

import json

import pytest

from holdfast.client import Client, NotFound, Unreachable
from tests.client.scripted_server import Resets, Says
from tests.client.test_jobs import JOB, NOON, state
from tests.client.test_retrying import ERROR, RECEIPT


def stream(*events, end=None):
    lines = [f"event: progress\ndata: {json.dumps(each)}\n\n" for each in events]
    if end is not None:
        lines.append(f"event: end\ndata: {json.dumps(end)}\n\n")
    return "".join(["retry: 2000\n\n: still here\n\n", *lines]).encode()


class TestWatching:
    SSE = {"content-type": "text/event-stream"}  # noqa: RUF012

    def test_until_the_end(self, server, caller):
        processing, done = state("processing", progress={"done": 1}), state("processed")
        server.script = [Says(200, raw=stream(processing, done, end=done), headers=self.SSE)]
        found = caller.call(lambda client: client.events(JOB))
        assert [each.status for each in found] == ["processing", "processed"]
        assert server.asked[0].path == "/v1/jobs/invoices/1/events"

    def test_a_stream_that_breaks_off_is_opened_again(self, server, caller):
        first, second, done = state("received"), state("processing"), state("processed")
        head = b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n"
        server.script = [
            Says(200, raw=stream(first), headers=self.SSE),
            Resets(head + stream(first, second)),
            Says(503, ERROR),
            Says(200, raw=stream(done, end=done), headers=self.SSE),
        ]
        found = caller.call(lambda client: client.events(JOB))
        assert [each.status for each in found] == ["received", "processing", "processed"]
        assert len(server.asked) == 4

    def test_a_stream_that_brings_nothing_has_an_end(self, server, caller):
        server.script = [Says(200, raw=b"retry: 2000\n\n", headers=self.SSE)]
        with pytest.raises(Unreachable, match="broke off"):
            caller.call(lambda client: client.events(JOB))
        assert len(server.asked) == 4

    def test_no_such_job(self, server, caller):
        server.script = [Says(404, ERROR)]
        with pytest.raises(NotFound):
            caller.call(lambda client: client.events(JOB))
        assert len(server.asked) == 1

    def test_the_time_is_over(self, server, caller):
        server.script = [Says(200, raw=stream(state("received"), end=state("processed")), headers=self.SSE)]
        with pytest.raises(TimeoutError):
            caller.call(lambda client: client.events(JOB, timeout=0))
        assert len(server.asked) == 1

    def test_whoever_stops_looking_closes_the_stream(self, server):
        server.script = [Says(200, raw=stream(state("received"), state("processing")), headers=self.SSE)]
        with Client(server.url) as client:
            for _ in client.events(JOB):
                break
            assert client._driver.http._transport._pool.connections == []


class TestSchedules:
    def test_they_are_steered(self, server, caller):
        instants = ["2026-11-18T12:00:00.000Z"]
        schedule = {"name": "remind", "workload": "remind", "cron": "0 7 * * 1-5", "paused": True, "next": instants}
        server.script = [Says(200, {"items": [schedule]}), Says(200, schedule), Says(202, RECEIPT)]
        (found,) = caller.call(lambda client: client.schedules.list())
        assert (found.name, found.paused, found.next) == ("remind", True, (NOON,))
        caller.call(lambda client: client.schedules.pause("remind", actor="ana", reason="holidays"))
        caller.call(lambda client: client.schedules.run("remind"))
        assert [each.path for each in server.asked] == [
            "/v1/schedules",
            "/v1/schedules/remind/pause",
            "/v1/schedules/remind/run",
        ]
        assert server.asked[1].json == {"actor": "ana", "reason": "holidays"}

    def test_a_run_is_not_sent_twice(self, server, caller):
        server.script = [Resets()]
        with pytest.raises(Unreachable):
            caller.call(lambda client: client.schedules.run("remind"))
        assert len(server.asked) == 1
