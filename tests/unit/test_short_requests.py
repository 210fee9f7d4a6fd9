"""Requests that are answered without ASGI: the same answers, and the same limits, as with it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket

import pytest
import uvloop

from holdfast.api.asgi import Shortcut
from holdfast.wiring import RandomIds
from holdfast.wiring.serving import server_of
from holdfast.wiring.short_requests import MOST_BYTES
from tests.support.settings import Settings
from tests.support.waiting import eventually

PATH = b"/short"


class Both:
    """An app with a shortcut. Its answers have the way that the request took, the body, and a header of their own."""

    def __init__(self, *, later: float | None = 0.0, most_bytes: int = 1_000_000) -> None:
        self.shortcuts = {PATH: Shortcut(self.take, most_bytes)}
        self.taken: list[tuple[str, bytes]] = []
        self.waiting: list[asyncio.TimerHandle] = []
        self._later = later

    def leave(self) -> None:
        pass

    def take(self, headers, body, reply) -> None:
        self.taken.append(("short", body))
        loop = asyncio.get_running_loop()
        if self._later is None:
            reply(202, b"short " + body, "trace", [(b"retry-after", b"1")])
        else:
            loop.call_later(self._later, reply, 202, b"short " + body, "trace")

    async def __call__(self, scope, receive, send) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            if not message.get("more_body"):
                break
        self.taken.append(("asgi", body))
        answer = b"asgi " + body[:20]
        headers = [(b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


def post(body: bytes, *headers: bytes, version: bytes = b"1.1", path: bytes = PATH) -> bytes:
    lines = [b"POST %s HTTP/%s" % (path, version), b"Host: holdfast", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


@contextlib.asynccontextmanager
async def served(app, **settings):
    server = server_of(app, Settings(**settings), RandomIds())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await server.up.wait()
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            yield reader, writer, server
        finally:
            writer.close()
            server.should_exit = True
            await serving


async def answer(reader) -> tuple[bytes, dict[bytes, bytes], bytes]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    status, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    headers = dict(line.split(b": ", 1) for line in lines)
    return status, headers, await reader.readexactly(int(headers[b"content-length"]))


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("later", [None, 0.0, 0.05], ids=["at once", "soon", "later"])
def test_a_connection_is_kept_and_each_request_gets_its_answer(factory, later):
    async def scenario() -> None:
        app = Both(later=later)
        async with served(app) as (reader, writer, _):
            for number in range(3):
                writer.write(post(b"%d" % number))
                status, headers, body = await answer(reader)
                assert (status, body) == (b"HTTP/1.1 202 Accepted", b"short %d" % number)
                assert re.fullmatch(rb"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", headers.pop(b"date"))
                assert headers.pop(b"retry-after", None) == (b"1" if later is None else None)
                assert headers == {
                    b"content-type": b"application/json",
                    b"content-length": b"7",
                    b"x-request-id": b"trace",
                }

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scenario())


@pytest.mark.parametrize(
    "request_",
    [
        post(b"x", path=PATH + b"?a=b"),
        post(b"x", path=b"/sh%6frt"),
        post(b"x", path=b"/other"),
        b"PUT" + post(b"x").removeprefix(b"POST"),
        post(b"x" * (MOST_BYTES + 1)),
        post(b"x", b"Expect: 100-continue"),
        b"POST /short HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    ],
    ids=["query", "escaped", "another path", "PUT", "large", "expect", "chunked"],
)
async def test_a_request_in_another_form_goes_through_asgi(request_):
    app = Both()
    async with served(app) as (reader, writer, _):
        writer.write(request_)
        if b"Expect" in request_:
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert (await answer(reader))[2].startswith(b"asgi x")
        writer.write(post(b"after"))
        assert (await answer(reader))[2] == b"short after"


async def test_a_body_beyond_the_limit_of_the_endpoint_goes_through_asgi_which_refuses_it_unread():
    app = Both(most_bytes=10)
    async with served(app) as (reader, writer, _):
        writer.write(post(b"x" * 10) + post(b"y" * 11))
        assert (await answer(reader))[2] == b"short " + b"x" * 10
        assert (await answer(reader))[2] == b"asgi " + b"y" * 11


@pytest.mark.parametrize("later", [None, 0.0, 0.05], ids=["at once", "soon", "later"])
async def test_answers_come_in_the_order_of_the_requests(later):
    app = Both(later=later)
    asks = [post(b"%02d" % n) if n % 3 else post(b"%02d" % n, path=b"/other") for n in range(12)]
    async with served(app) as (reader, writer, _):
        writer.write(b"".join(asks))
        answers = [(await answer(reader))[2] for _ in asks]
        assert [each[-2:] for each in answers] == [b"%02d" % n for n in range(12)]
    assert [body for _, body in app.taken] == [b"%02d" % n for n in range(12)]


async def test_a_body_that_comes_byte_by_byte_is_put_together():
    app = Both()
    async with served(app) as (reader, writer, _):
        for byte in post(b"slowly"):
            writer.write(bytes([byte]))
            await asyncio.sleep(0.001)
        assert (await answer(reader))[2] == b"short slowly"


@pytest.mark.parametrize("later", [None, 0.0], ids=["at once", "soon"])
@pytest.mark.parametrize(
    "request_", [post(b"x", b"Connection: close"), post(b"x", version=b"1.0")], ids=["close", "HTTP/1.0"]
)
async def test_the_last_answer_of_a_connection_says_so_and_what_follows_is_not_taken(request_, later):
    app = Both(later=later)
    async with served(app) as (reader, writer, _):
        writer.write(request_ + post(b"after"))
        status, headers, body = await answer(reader)
        assert (status, headers[b"connection"], body) == (b"HTTP/1.1 202 Accepted", b"close", b"short x")
        assert await reader.read() == b""
    assert app.taken == [("short", b"x")]


async def test_a_body_that_stops_is_refused_and_never_taken():
    app = Both()
    async with served(app, api_stall_timeout_ms=100) as (reader, writer, _):
        writer.write(post(b"whole")[:-2])
        assert (await answer(reader))[0] == b"HTTP/1.1 408 Request Timeout"
        assert await reader.read() == b""
    assert app.taken == []


async def test_nothing_is_sent_to_a_client_that_is_gone():
    app = Both(later=0.2)
    async with served(app) as (_, writer, server):
        writer.write(post(b"x"))
        await eventually(lambda: app.taken)
        writer.transport.abort()
        await eventually(lambda: not server.server_state.connections)
        await asyncio.sleep(0.3)


async def test_a_process_that_stops_answers_what_it_has_taken_and_closes():
    app = Both(later=0.3)
    async with served(app) as (reader, writer, server):
        writer.write(post(b"x"))
        await eventually(lambda: app.taken)
        server.should_exit = True
        _, headers, body = await answer(reader)
        assert (headers[b"connection"], body) == (b"close", b"short x")
        assert await reader.read() == b""


async def test_a_malformed_request_behind_a_short_one_is_refused_after_its_answer():
    async with served(Both(later=0.1)) as (reader, writer, _):
        writer.write(post(b"x") + b"GET / HTTP/1.1\r\n\r\n")
        assert (await answer(reader))[2] == b"short x"
        assert (await answer(reader))[0] == b"HTTP/1.1 400 Bad Request"
        assert await reader.read() == b""


async def test_a_client_that_does_not_read_is_not_served_without_end():
    """Beyond the limits of the transport, requests go through ASGI, which waits until the client has read."""
    app = Both(later=None)
    async with served(app) as (_, writer, _server):
        writer.transport.pause_reading()
        body = b"x" * 60_000
        for _ in range(400):
            writer.write(post(body))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(writer.drain(), 0.01)
        await asyncio.sleep(0.2)
        assert len(app.taken) < 400
