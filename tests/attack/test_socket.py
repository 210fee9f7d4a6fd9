"""Attacks on the sockets of the API: slow, silent, endless, too many, and ambiguous ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast.wiring import RandomIds
from holdfast.wiring.serving import server_of
from tests.api.document_api import BOUNDARY, document_api, part
from tests.cli.commands import ENVIRONMENT
from tests.support.program import started, stop
from tests.support.pulse import pulse
from tests.support.settings import Settings
from tests.support.waiting import eventually

PER_ADDRESS = 200
LIMITS = {
    "API_HEADER_TIMEOUT_MS": "1000",
    "API_IDLE_TIMEOUT_MS": "1500",
    "API_STALL_TIMEOUT_MS": "600",
    "API_LEAST_RATE": "10000",
    "API_MAX_CONNECTIONS": "400",
    "API_MAX_CONNECTIONS_PER_ADDRESS": str(PER_ADDRESS),
}
PATIENCE = 20
"""Seconds. Each limit here is about one second."""

HEALTH = b"GET /health HTTP/1.1\r\nHost: holdfast\r\n\r\n"
EVENT = b"POST /v1/events/courier HTTP/1.1\r\nHost: holdfast\r\nContent-Type: application/json\r\n"
"""This route reads the body of a sender that it does not know: the signature is over the body."""


@pytest.fixture(scope="module")
def port(tmp_path_factory) -> Iterator[int]:
    """The port of a running API with short limits."""
    folder = tmp_path_factory.mktemp("socket")
    with started(folder, ENVIRONMENT | LIMITS, "api", "--port", "0", "--json") as server:
        yield int(server.address.rpartition(":")[2])
        stop(server)
        log = server.log.read_text()
        assert "Traceback" not in log
        assert '"api.unexpected"' not in log


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of an error. It has the shape of all errors."""
        said = json.loads(self.body)
        assert said["acknowledged"] is False
        assert said["traceId"] == self.headers["x-request-id"]
        assert said["message"]
        return said["errorCode"]


class Client:
    """A client that does as it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send_as_far_as_possible(self, *pieces: bytes, every: float = 0.0) -> int:
        """How many pieces the server took before it closed."""
        for number, piece in enumerate(pieces):
            try:
                await self.send(piece)
            except ConnectionError:
                return number
            if every and await self._answered_within(every):
                return number
        return len(pieces)

    async def _answered_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.reader._buffer and not self.reader.at_eof():  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.01)
                return True
        return False

    async def answer(self) -> Answer:
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = (line.partition(":") for line in head[1:] if line)
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            body = await self.reader.readexactly(int(headers["content-length"]))
        return Answer(int(head[0].split(" ")[1]), headers, body)

    async def ended(self) -> bytes:
        """What comes until the server closes."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def how_it_ended(self) -> str:
        try:
            said = await self.reader.read()
        except ConnectionError:
            return "reset"
        return said.split(b" ")[1].decode() if said else "closed"

    async def refusal(self) -> Answer:
        """The last answer on this connection."""
        answer = await self.answer()
        assert answer.headers["connection"] == "close"
        assert await self.ended() == b""
        return answer


@contextlib.asynccontextmanager
async def client(port: int, **options: Any) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def in_parallel(attack, times: int) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(times):
            group.create_task(attack())


# --- too slow ---------------------------------------------------------------------------------------------------------


async def test_a_client_that_sends_nothing_is_closed(port, rounds, tell):
    async def be_silent() -> None:
        async with client(port) as one:
            assert await one.ended() == b""

    async with pulse(port) as taken:
        await in_parallel(be_silent, 30 * rounds if rounds < 5 else PER_ADDRESS - 20)
    tell({"longest wait": f"{taken.longest:.3f} s"})


async def test_empty_lines_do_not_keep_a_connection_open(port):
    async with pulse(port), client(port) as one:
        assert await one.send_as_far_as_possible(*[b"\r\n"] * 100, every=0.1) < 100
        assert await one.ended() == b""


async def test_a_header_that_comes_byte_by_byte_gets_408(port, tell):
    async def drip() -> None:
        async with client(port) as one:
            await one.send_as_far_as_possible(
                *[b"%c" % byte for byte in HEALTH[:-2] + b"X-Slow: " + b"x" * 90], every=0.05
            )
            answer = await one.refusal()
            assert (answer.status, answer.code) == (408, "REQUEST_TIMEOUT")

    async with pulse(port) as taken:
        await in_parallel(drip, 20)
    tell({"longest wait": f"{taken.longest:.3f} s"})


async def test_the_second_header_of_a_connection_has_a_deadline_too(port):
    async with pulse(port), client(port) as one:
        await one.send(HEALTH + HEALTH[:20])
        assert (await one.answer()).status == 200
        assert (await one.refusal()).status == 408


@pytest.mark.parametrize("framing", [b"Content-Length: 1000\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n3e8\r\n{"])
async def test_half_a_body_gets_408(port, framing):
    async def stop_halfway() -> None:
        async with client(port) as one:
            await one.send(EVENT + framing)
            answer = await one.refusal()
            assert (answer.status, answer.code) == (408, "REQUEST_TIMEOUT")

    async with pulse(port):
        await in_parallel(stop_halfway, 20)


@pytest.mark.parametrize(
    ("framing", "piece"),
    [
        (b"Content-Length: 100000\r\n\r\n", b" "),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1;%b\r\n \r\n" % (b"x" * 4000)),  # much, but nothing of the body
    ],
)
async def test_a_body_that_comes_byte_by_byte_gets_408(port, framing, piece):
    async with pulse(port), client(port) as one:
        await one.send(EVENT + framing)
        assert await one.send_as_far_as_possible(*[piece] * 200, every=0.05) < 200
        answer = await one.refusal()
        assert (answer.status, answer.code) == (408, "REQUEST_TIMEOUT")


async def test_a_body_that_nobody_reads_any_more_has_a_deadline(port):
    async with client(port) as one:
        await one.send(b"POST /nowhere HTTP/1.1\r\nHost: holdfast\r\nContent-Length: 10000000\r\n\r\n")
        assert (await one.answer()).status == 404
        assert await one.send_as_far_as_possible(*[b"x" * 1000] * 1000, every=0.05) < 1000
        assert await one.ended() == b""


async def test_an_idle_connection_is_closed(port):
    async with client(port) as one:
        await one.send(HEALTH)
        assert (await one.answer()).status == 200
        assert await one.ended() == b""


async def test_a_client_that_reads_slowly_but_fast_enough_gets_its_whole_answer(port):
    async with client(port, limit=4096) as one:
        await one.send(b"GET /openapi.json HTTP/1.1\r\nHost: holdfast\r\nConnection: close\r\n\r\n")
        size = 0
        while piece := await one.reader.read(8_192):
            size += len(piece)
            await asyncio.sleep(0.02)
        assert size > 100_000


# --- too large --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        ([HEALTH[:-2] + b"X-Large: ", *[b"x" * 1_000_000] * 40], 431, "HEADER_TOO_LARGE"),
        ([HEALTH[:-2], *[b"".join(b"X-%d: y\r\n" % n for n in range(1000))] * 120], 431, "HEADER_TOO_LARGE"),
        ([HEALTH[:-2] + b"X: y\r\n" * 101 + b"\r\n"], 431, "HEADER_TOO_LARGE"),
        ([HEALTH[:-2] + b"X: y\r\nY: " + b"y" * 40_000 + b"\r\n\r\n"], 431, "HEADER_TOO_LARGE"),
        ([b"GET /" + b"x" * 8192 + b" HTTP/1.1\r\nHost: holdfast\r\n\r\n"], 414, "URI_TOO_LONG"),
        ([b"GET /", *[b"x" * 1_000_000] * 40], 414, "URI_TOO_LONG"),
        ([EVENT + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", *[b"X: yyyy\r\n" * 100] * 100], 431, "HEADER_TOO_LARGE"),
        ([EVENT + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ", *[b"y" * 1_000_000] * 40], 431, "HEADER_TOO_LARGE"),
        ([EVENT + b"Transfer-Encoding: chunked\r\n\r\n1;", *[b"y" * 1_000_000] * 40], 431, "HEADER_TOO_LARGE"),
        ([b"\r\n" * 20_000] * 20, 431, "HEADER_TOO_LARGE"),
    ],
    ids=[
        "40 MB header",
        "120,000 headers",
        "101 headers",
        "40 KB header",
        "long URL",
        "40 MB URL",
        "trailers",
        "40 MB trailer",
        "40 MB chunk extension",
        "empty lines",
    ],
)
async def test_what_is_too_large_is_refused_and_the_client_can_read_why(port, request_, status, code):
    async with pulse(port), client(port) as one:
        await one.send_as_far_as_possible(*request_)
        answer = await one.refusal()
        assert (answer.status, answer.code) == (status, code)


async def test_what_is_just_small_enough_is_taken(port):
    long = b"GET /health?" + b"x" * 8000 + b" HTTP/1.1\r\nHost: holdfast\r\n" + b"X: y\r\n" * 90
    async with client(port) as one:
        await one.send(long + b"Y: " + b"y" * 20_000 + b"\r\n\r\n")
        assert (await one.answer()).status in {200, 400}  # the query is none that the route knows


# --- too many ---------------------------------------------------------------------------------------------------------


async def test_ten_thousand_requests_at_once_on_one_connection_are_refused(port):
    async with pulse(port), client(port) as one:
        await one.send_as_far_as_possible(HEALTH * 10_000)
        answers = 0
        while (answer := await one.answer()).status == 200:
            answers += 1
        assert answers == 32
        assert (answer.status, answer.code) == (429, "TOO_MANY_REQUESTS")
        assert await one.ended() == b""


# --- ambiguous --------------------------------------------------------------------------------------------------------

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: holdfast\r\n\r\n"
POST = b"POST /v1/events/courier HTTP/1.1\r\n"
HOST = b"Host: holdfast\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"GET /health HTTP/1.1\r\n\r\n", id="no Host"),
        pytest.param(b"GET /health HTTP/1.1\r\n" + HOST + b"host: other\r\n\r\n", id="two Hosts"),
        pytest.param(b"GET /health HTTP/1.0\r\n" + HOST + HOST + b"\r\n", id="two Hosts in 1.0"),
        pytest.param(b"GET /health HTTP/1.1\r\nHost: a b\r\n\r\n", id="Host with a space"),
        pytest.param(b"GET /health HTTP/1.1\r\nHost: a/b\r\n\r\n", id="Host with a path"),
        pytest.param(b"GET /health HTTP/2.0\r\n" + HOST + b"\r\n", id="HTTP/2"),
        pytest.param(b"POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="chunked in 1.0"),
        pytest.param(POST + HOST + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="CL.TE"),
        pytest.param(POST + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n", id="TE.CL"),
        pytest.param(POST + HOST + b"Content-Length: 0\r\nContent-Length: 43\r\n\r\n", id="two lengths"),
        pytest.param(POST + HOST + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n", id="the same length twice"),
        pytest.param(POST + HOST + b"Content-Length: 0, 0\r\n\r\n", id="list of lengths"),
        pytest.param(POST + HOST + b"Content-Length: +0\r\n\r\n", id="signed length"),
        pytest.param(POST + HOST + b"Content-Length: 0x0\r\n\r\n", id="length in hex"),
        pytest.param(POST + HOST + b"Content-Length: -1\r\n\r\n", id="negative length"),
        pytest.param(POST + HOST + b"Content-Length: 99999999999999999999999\r\n\r\n", id="length beyond 64 bits"),
        pytest.param(POST + HOST + b"Content-Length : 0\r\n\r\n", id="space before the colon"),
        pytest.param(POST + HOST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", id="TE, space before the colon"),
        pytest.param(POST + HOST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", id="xchunked"),
        pytest.param(POST + HOST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", id="chunked not last"),
        pytest.param(POST + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", id="gzip, chunked"),
        pytest.param(
            POST + HOST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", id="two TEs"
        ),
        pytest.param(POST + HOST + b"X: y\r\n Content-Length: 43\r\n\r\n", id="folded header"),
        pytest.param(POST + HOST + b"X: y\nContent-Length: 43\r\n\r\n", id="bare LF"),
        pytest.param(POST + HOST + b"X: y\rContent-Length: 43\r\n\r\n", id="bare CR"),
        pytest.param(POST + HOST + b"X: \x00\r\n\r\n", id="NUL"),
        pytest.param(POST + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", id="size that is no number"),
        pytest.param(POST + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", id="chunk too long"),
        pytest.param(POST + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\na\n0\n\n", id="chunks with bare LF"),
        pytest.param(POST + HOST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\na\r\n0\r\n\r\n", id="negative chunk"),
        pytest.param(
            POST + HOST + b"Transfer-Encoding: chunked\r\n\r\n1 \r\na\r\n0\r\n\r\n", id="space after the size"
        ),
        pytest.param(
            POST + HOST + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 43\r\n\r\n", id="body and Upgrade"
        ),
        pytest.param(b"CONNECT example.com:443 HTTP/1.1\r\n" + HOST + b"\r\n", id="CONNECT"),
        pytest.param(b"NONSENSE / HTTP/1.1\r\n" + HOST + b"\r\n", id="unknown method"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
    ],
)
async def test_an_ambiguous_request_gets_400_and_what_follows_is_not_read(port, request_):
    async with client(port) as one:
        await one.send(request_ + SMUGGLED)
        answer = await one.refusal()
        assert (answer.status, answer.code) == (400, "MALFORMED_REQUEST")


async def test_trailers_do_not_become_headers(port):
    chunked = EVENT + b"x-request-id: mine\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    async with client(port) as one:
        await one.send(chunked + b"x-request-id: theirs\r\n\r\n" + HEALTH)
        assert (await one.answer()).headers["x-request-id"] == "mine"
        assert (await one.answer()).status == 200


async def test_a_request_with_upgrade_is_the_last_of_its_connection(port):
    async with client(port) as one:
        await one.send(HEALTH[:-2] + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n" + SMUGGLED)
        answer = await one.refusal()
        assert answer.status == 200


# --- honest -----------------------------------------------------------------------------------------------------------


async def test_answers_come_in_the_order_of_the_requests_and_a_refusal_after_them(port):
    asks = [HEALTH[:-2] + b"x-request-id: %d\r\n\r\n" % number for number in range(10)]
    async with pulse(port), client(port) as one:
        await one.send(b"".join(asks) + b"GET /health HTTP/1.1\r\n\r\n" + SMUGGLED)
        answers = [await one.answer() for _ in asks]
        assert [each.headers["x-request-id"] for each in answers] == [str(number) for number in range(10)]
        assert (await one.refusal()).status == 400


async def test_a_connection_is_kept_for_further_requests(port):
    async with client(port) as one:
        for number in range(20):
            await one.send(EVENT + b"Content-Length: 2\r\n\r\n{}" if number % 2 else HEALTH)
            assert (await one.answer()).status == (401 if number % 2 else 200)
            await asyncio.sleep(0.05)


async def test_a_client_of_http_1_0_is_answered(port):
    async with client(port) as one:
        await one.send(b"GET /health HTTP/1.0\r\n\r\n")
        assert (await one.refusal()).status == 200


async def test_a_client_that_asks_before_it_sends_its_body_is_told_to_go_on(port):
    async with client(port) as one:
        await one.send(EVENT + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            assert await one.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await one.send(b"{}")
        assert (await one.answer()).status == 401


# --- in this process: on asyncio's own event loop, while the program has uvloop ---------------------------------------


READ = b"GET /read HTTP/1.1\r\nHost: holdfast\r\n\r\n"


class Talker:
    """An app that says more than a client reads; or, at ``/read``, reads what the client sends before it answers."""

    def leave(self) -> None:
        pass

    async def __call__(self, scope, receive, send) -> None:
        while scope["path"] == "/read" and (await receive()).get("more_body"):
            pass
        headers = [(b"content-length", b"0")] if scope["path"] == "/read" else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["path"] == "/endless":
            leaving = asyncio.create_task(_disconnected(receive))
            while not leaving.done():
                await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
                await asyncio.sleep(0.001)
        large = b"x" * 20_000_000 if scope["path"] == "/large" else b""
        await send({"type": "http.response.body", "body": large})


async def _disconnected(receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@contextlib.asynccontextmanager
async def served(app: Any, **limits: int) -> AsyncIterator[int]:
    """The app behind our server."""
    server = server_of(app, Settings(**limits), RandomIds())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await server.up.wait()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


async def test_2000_connections_of_one_address_leave_room_for_the_others(tmp_path, tell):
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, max(files, 8_192)), most))  # for both sides
    limits = {"api_header_timeout_ms": 600_000, "api_max_connections_per_address": PER_ADDRESS}
    async with contextlib.AsyncExitStack() as held:
        api = await held.enter_async_context(document_api(tmp_path))
        port = await held.enter_async_context(served(api.app, **limits))
        taken = await held.enter_async_context(pulse(port))
        attackers = []
        for _ in range(20):
            opening = (held.enter_async_context(client(port)) for _ in range(100))
            attackers += await asyncio.gather(*opening, return_exceptions=True)
        ends = Counter(isinstance(one, ConnectionResetError) and "reset" for one in attackers)
        watched = [asyncio.create_task(one.how_it_ended()) for one in attackers if isinstance(one, Client)]
        await eventually(lambda: sum(each.done() for each in watched) >= len(watched) - PER_ADDRESS)
        async with client(port, local_addr=("127.0.0.3", 0)) as honest:
            await honest.send(HEALTH)
            assert (await honest.answer()).status == 200
        ends += Counter(each.result() for each in watched if each.done())
        assert sum(not each.done() for each in watched) == PER_ADDRESS
        assert ends["503"] >= 1
        assert ends["503"] + ends["reset"] == 2000 - PER_ADDRESS
        for each in watched:
            each.cancel()
    tell({"tried": 2000, "503": ends["503"], "reset": ends["reset"], "longest wait": f"{taken.longest:.3f} s"})


async def test_a_connection_too_many_is_told_so_and_later_gets_in():
    limits = {"api_header_timeout_ms": 600_000, "api_max_connections_per_address": 3}
    async with served(Talker(), **limits) as port, contextlib.AsyncExitStack() as held:
        others = [await held.enter_async_context(client(port)) for _ in range(3)]
        async with client(port) as one:
            answer = await one.refusal()
            assert (answer.status, answer.code) == (503, "TOO_MANY_CONNECTIONS")
            assert int(answer.headers["retry-after"]) > 0
        async with client(port, local_addr=("127.0.0.3", 0)) as other:
            await other.send(READ)
            assert (await other.answer()).status == 200
        others[0].writer.close()

        async def gets_in() -> bool:
            async with client(port) as one:
                await one.send(READ)
                return (await one.answer()).status == 200

        await eventually(gets_in)


async def test_a_body_above_the_least_rate_may_take_longer_than_the_deadline():
    clock = asyncio.get_running_loop().time
    async with served(Talker(), api_stall_timeout_ms=1_500, api_least_rate=1_000) as port, client(port) as one:
        began = clock()
        await one.send(b"POST /read HTTP/1.1\r\nHost: holdfast\r\nContent-Length: 60000\r\n\r\n")
        await one.send_as_far_as_possible(*[b" " * 3_000] * 20, every=0.1)
        assert (await one.answer()).status == 200
        assert clock() - began > 1.5
        await one.send(READ)
        assert (await one.answer()).status == 200


@pytest.mark.parametrize("path", ["/large", "/endless"])
@pytest.mark.parametrize("reads", [0, 100], ids=["nothing", "a little"])
async def test_a_client_that_does_not_read_its_answer_is_ended(path, reads, tell):
    async with served(Talker(), api_stall_timeout_ms=500, api_least_rate=50_000) as port:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", port))
            slow.setblocking(False)
            async with pulse(port) as taken:
                await asyncio.get_running_loop().sock_sendall(
                    slow, b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode()
                )
                async with asyncio.timeout(PATIENCE):
                    while slow.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:  # a reset comes unread
                        with contextlib.suppress(BlockingIOError, ConnectionError):
                            slow.recv(reads)
                        await asyncio.sleep(0.05)
    tell({"longest wait": f"{taken.longest:.3f} s"})


@pytest.mark.parametrize("piece", [b"", b"x"], ids=["nothing more", "byte by byte"])
async def test_an_upload_that_comes_too_slowly_is_refused_and_leaves_nothing(tmp_path, piece):
    begun = part("file", b"%PDF-1.7\n" + b"x" * 5_000, filename="a.pdf").removesuffix(b"\r\n")
    async with document_api(tmp_path) as api:
        async with served(api.app, api_stall_timeout_ms=300, api_least_rate=20_000) as port, client(port) as one:
            head = (
                f"POST /v1/documents HTTP/1.1\r\nHost: holdfast\r\nContent-Length: 50000\r\n"
                f"Authorization: {api.bearer()['authorization']}\r\n"
                f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n"
            )
            await one.send(head.encode() + begun)
            await one.send_as_far_as_possible(*[piece] * 200, every=0.05)
            answer = await one.refusal()
            assert (answer.status, answer.code) == (408, "REQUEST_TIMEOUT")
        assert await api.empty()
        assert api.arriving() == []
