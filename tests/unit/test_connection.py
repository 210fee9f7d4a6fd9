"""The limits of connections, and what they rely on in uvicorn."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import os
import resource
import socket
import time

import pytest
import uvicorn
import uvloop
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from holdfast.wiring import RandomIds, connection
from holdfast.wiring.connection_limits import ConnectionCount, ConnectionLimits, most_connections, sender_of
from holdfast.wiring.serving import server_of
from tests.support.settings import Settings
from tests.support.waiting import eventually

PROTOCOL = {
    # called by us, or called by uvicorn, the parser and the transport, and overridden by us
    "connection_made",
    "connection_lost",
    "data_received",
    "on_message_begin",
    "on_headers_complete",
    "on_body",
    "on_message_complete",
    "on_response_complete",
    "send_400_response",
}
PROTOCOL_STATE = {
    "client",
    "cycle",
    "expect_100_continue",
    "flow",
    "headers",
    "loop",
    "parser",
    "pipeline",
    "server_state",
    "transport",
    "url",
}
CYCLE_STATE = {
    "disconnected",
    "keep_alive",
    "message_event",
    "response_complete",
    "response_started",
    "waiting_for_100_continue",
}


def attributes_set_in(kind: type) -> set[str]:
    tree = ast.parse(inspect.getsource(kind))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }


def test_uvicorn_still_has_what_we_rely_on():
    assert set(dir(HttpToolsProtocol)) >= PROTOCOL
    assert attributes_set_in(HttpToolsProtocol) >= PROTOCOL_STATE
    assert attributes_set_in(RequestResponseCycle) >= CYCLE_STATE
    assert attributes_set_in(FlowControl) >= {"read_paused", "write_paused"}
    assert attributes_set_in(ServerState) >= {"default_headers"}
    assert {"startup", "shutdown", "capture_signals"} <= set(dir(uvicorn.Server))


def test_we_rely_on_nothing_else_in_uvicorn():
    theirs = {name for kind in (HttpToolsProtocol, RequestResponseCycle) for name in attributes_set_in(kind)}
    theirs |= {name for name in dir(HttpToolsProtocol) if not name.startswith("__")}
    used = {node.attr for node in ast.walk(ast.parse(inspect.getsource(connection))) if isinstance(node, ast.Attribute)}
    other_things = {"body", "connections", "default_headers"}  # of a refusal, our limits, and uvicorn's ServerState
    assert (used & theirs) - other_things <= PROTOCOL | PROTOCOL_STATE | CYCLE_STATE


class Patient:
    """An app whose answers wait until the client is gone."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.left: list[str] = []

    def leave(self) -> None:
        pass

    async def __call__(self, scope, receive, send) -> None:
        self.asked.append(scope["path"])
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.append(scope["path"])


@contextlib.asynccontextmanager
async def served(app, **settings):
    server = server_of(app, Settings(**settings), RandomIds())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await server.up.wait()
        try:
            yield listener
        finally:
            server.should_exit = True
            await serving


def ask(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: holdfast\r\n\r\n".encode()


async def test_a_request_that_others_wait_behind_learns_that_its_client_is_gone():
    """uvicorn tells only the last request of a connection: a stream before it would go on for nobody."""
    app = Patient()
    async with served(app) as listener:
        _, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(ask("/first") + ask("/second"))
        await eventually(lambda: app.asked == ["/first"])
        writer.transport.abort()
        await eventually(lambda: app.left == ["/first"])
    assert app.asked == ["/first"]


async def test_a_request_whose_body_stops_is_ended():
    app = Patient()
    async with served(app, api_stall_timeout_ms=100) as listener:
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"POST /half HTTP/1.1\r\nHost: holdfast\r\nContent-Length: 10\r\n\r\nhalf")
        assert (await reader.read()).startswith(b"HTTP/1.1 408")
        await eventually(lambda: app.left == ["/half"])
        writer.close()


async def test_while_an_answer_is_awaited_nothing_is_asked_of_the_client():
    app = Patient()
    limits = {"api_header_timeout_ms": 100, "api_idle_timeout_ms": 100, "api_stall_timeout_ms": 100}
    async with served(app, **limits) as listener:
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(ask("/long"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.5)
        assert app.left == []
        writer.close()
        await eventually(lambda: app.left == ["/long"])


async def test_a_client_that_waits_until_we_read_is_not_too_slow():
    class Busy(Patient):
        async def __call__(self, scope, receive, send) -> None:
            await asyncio.sleep(0.6)
            while (await receive()).get("more_body"):
                pass
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    async with served(Busy(), api_stall_timeout_ms=200, api_least_rate=1_000) as listener:
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"POST /large HTTP/1.1\r\nHost: holdfast\r\nContent-Length: 9000000\r\n\r\n" + b"x" * 9_000_000)
        assert (await reader.readline()).startswith(b"HTTP/1.1 204")
        writer.close()


async def test_after_the_last_answer_of_a_connection_nothing_is_asked_of_the_app():
    class Quick(Patient):
        async def __call__(self, scope, receive, send) -> None:
            self.asked.append(scope["path"])
            await send({"type": "http.response.start", "status": 204, "headers": [(b"connection", b"close")]})
            await send({"type": "http.response.body", "body": b""})

    app = Quick()
    async with served(app) as listener:
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"POST /first HTTP/1.1\r\nHost: holdfast\r\nContent-Length: 4\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 204")  # our half is closed, and the client may go on
        writer.write(b"body" + ask("/second"))
        await writer.drain()
        _, other = await asyncio.open_connection(*listener.getsockname())
        other.write(ask("/third"))
        await eventually(lambda: "/third" in app.asked)
        await asyncio.sleep(0.1)  # what came before is long read
        writer.close()
        other.close()
    assert app.asked == ["/first", "/third"]


async def test_the_kernel_ends_connections_of_clients_that_vanished():
    async with served(Patient()) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000


async def test_a_server_that_stops_does_not_wait_for_clients_that_it_refused():
    loop = asyncio.get_running_loop()
    async with served(Patient(), api_max_connections=1) as listener:
        lines = [await asyncio.open_connection(*listener.getsockname()) for _ in range(2)]
        assert (await lines[1][0].readline()).startswith(b"HTTP/1.1 503")
        began = loop.time()
    assert loop.time() - began < 10
    for _, writer in lines:
        writer.close()


# --- a process that was busy ------------------------------------------------------------------------------------------


class Polite(Patient):
    """An app that reads the whole body, and answers."""

    async def __call__(self, scope, receive, send) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@contextlib.contextmanager
def busy_before_a_look(during, seconds):
    """The next sweep looks only after the loop was busy for so long. ``during`` is called in that time, once."""
    original, waiting = asyncio.sleep, [during]

    async def sleep(delay, *more):
        await original(delay, *more)
        if delay and asyncio.current_task().get_coro().__name__ == "sweep" and waiting:
            waiting.pop()()
            time.sleep(seconds)  # noqa: ASYNC251 - the loop is to be busy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "sleep", sleep)
        yield waiting


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(
    ("before", "during"),
    [
        (b"", ask("/all")),
        (b"GET /half", b" HTTP/1.1\r\nHost: holdfast\r\n\r\n"),
        (b"POST /body HTTP/1.1\r\nHost: holdfast\r\nContent-Length: 8\r\n\r\nhalf", b"rest"),
    ],
    ids=["nothing", "half a header", "half a body"],
)
def test_a_request_that_arrived_while_the_process_was_busy_is_answered(factory, before, during):
    async def scenario() -> bytes:
        times = {"api_header_timeout_ms": 400, "api_stall_timeout_ms": 400}
        async with served(Polite(), **times) as listener:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(before)
            await writer.drain()
            own = writer.get_extra_info("socket").fileno()
            with busy_before_a_look(lambda: os.write(own, during), 0.6) as waiting:
                answer = await reader.readline()
            assert not waiting
            writer.close()
            return answer

    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(scenario()).startswith(b"HTTP/1.1 204")


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_time_in_which_the_process_was_busy_does_not_count_for_a_body(factory):
    async def scenario() -> bytes:
        async with served(Polite(), api_stall_timeout_ms=1_000) as listener:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"POST /body HTTP/1.1\r\nHost: holdfast\r\nContent-Length: 8\r\n\r\nhalf")
            await writer.drain()
            with busy_before_a_look(lambda: None, 1.5) as waiting:
                await eventually(lambda: not waiting)
            for _ in range(10):  # the sweep looks
                await asyncio.sleep(0)
            writer.write(b"rest")
            answer = await reader.readline()
            writer.close()
            return answer

    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(scenario()).startswith(b"HTTP/1.1 204")


# --- counting ---------------------------------------------------------------------------------------------------------


def limits(**given):
    return ConnectionLimits.of(Settings(**given))


def test_by_default_one_address_gets_half_of_what_the_files_allow(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert (limits().connections, limits().per_address) == (768, 384)
    assert limits(api_max_connections=5_000).connections == 768
    assert limits(api_max_connections=100).per_address == 50
    assert limits(api_max_connections_per_address=768).per_address == 768


@pytest.mark.parametrize(("files", "most"), [(64, 16), (400, 144), (100_000, 10_000), (resource.RLIM_INFINITY, 10_000)])
def test_the_file_limit_decides_how_many_connections_there_are(monkeypatch, files, most):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert most_connections() == most


def test_connections_are_counted_in_all_and_for_each_sender():
    count = ConnectionCount(limits(api_max_connections=3, api_max_connections_per_address=2))
    assert [count.add(b"a") for _ in range(3)] == [None, None, "connections_per_address"]
    assert [count.add(b"b") for _ in range(2)] == [None, "connections"]
    count.remove(b"a")
    assert count.add(b"b") is None
    for sender in (b"a", b"b", b"b"):
        count.remove(sender)
    assert not count._senders


def test_a_network_of_ipv6_is_one_sender_and_an_address_of_ipv4_is_the_same_in_both_writings():
    assert sender_of("2001:db8::1") == sender_of("2001:db8::ffff:1")
    assert sender_of("2001:db8::1") != sender_of("2001:db8:0:1::1")
    assert sender_of("fe80::1%eth0") == sender_of("fe80::2")
    assert sender_of("::ffff:192.0.2.1") == sender_of("192.0.2.1") != sender_of("192.0.2.2")
    assert sender_of("::1") != sender_of("127.0.0.1")
