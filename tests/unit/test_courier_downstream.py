"""Forwarding, against a real server on a real socket."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook

from holdfast.contracts.jobs import Job
from holdfast.contracts.network_failures import retry_after
from holdfast.contracts.outcomes import Done, Outcome, Reject, Retry
from holdfast.features.courier.contract import CourierEvent
from holdfast.features.courier.workload import Courier, CourierOptions
from tests.support.courier_documents import event_document, payload

SECRET = "a secret of the downstream"
EVENT = CourierEvent.model_validate(event_document(payload=payload(note="São João")))


@dataclass
class Request:
    head: str
    headers: dict[str, str]
    body: bytes
    connection: int


@dataclass
class Server:
    """Answers every request with ``reply``, and stores the requests."""

    reply: Callable[[asyncio.StreamWriter], object]
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    connections: list[asyncio.Task[None]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(asyncio.current_task())
        connection = len(self.connections)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                body = await reader.readexactly(int(headers["content-length"]))
                self.requests.append(Request(first, headers, body, connection))
                answer = self.reply(writer)
                if asyncio.iscoroutine(answer):
                    await answer
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client left, or the test is over
        finally:
            writer.transport.abort()


def answering(status: int, *, body: str = "", **headers: str) -> Callable[[asyncio.StreamWriter], None]:
    lines = [f"HTTP/1.1 {status} Whatever", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return lambda writer: writer.write(("\r\n".join(lines) + "\r\n\r\n" + body).encode())


@asynccontextmanager
async def listening(reply: Callable[[asyncio.StreamWriter], object]) -> AsyncIterator[Server]:
    server = Server(reply)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield server
        for connection in server.connections:
            connection.cancel()
        await asyncio.gather(*server.connections)


@asynccontextmanager
async def started(port: int, **options) -> AsyncIterator[Courier]:
    defaults = {"downstream_url": f"http://127.0.0.1:{port}/hooks?tenant=7", "downstream_secret": SECRET}
    courier = Courier(CourierOptions(**(defaults | options)))
    await courier.start()
    try:
        yield courier
    finally:
        await courier.stop()


async def handle(courier: Courier, event: CourierEvent = EVENT) -> Outcome:
    received = event.receivedAt or datetime.now(UTC)
    return await courier.handle(Job(event.idempotencyKey, "j", event, 1, 1, received_at=received), context=None)


async def outcome_of(reply: Callable[[asyncio.StreamWriter], object], **options) -> Outcome:
    async with listening(reply) as server, started(server.port, **options) as courier:
        return await handle(courier)


# --- what the downstream is sent ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("secret", "library_secret"),
    [
        (SECRET, base64.b64encode(SECRET.encode()).decode()),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ("whsec_bm90IHBhZGRlZA", "whsec_bm90IHBhZGRlZA=="),
    ],
)
async def test_an_event_arrives_complete_and_signed(secret, library_secret):
    async with listening(answering(200)) as server, started(server.port, downstream_secret=secret) as courier:
        outcome = await handle(courier)

    (request,) = server.requests
    assert isinstance(outcome, Done)
    assert len(outcome.effects) == 1
    assert request.head == "POST /hooks?tenant=7 HTTP/1.1"
    assert request.headers["content-type"] == "application/json"
    assert CourierEvent.model_validate_json(request.body) == EVENT
    # The library refuses timestamps that are not near now.
    assert Webhook(library_secret).verify(request.body, request.headers) == json.loads(request.body)
    assert request.headers["webhook-id"] == request.headers["idempotency-key"] == "courier-x:evt_123"
    assert request.headers["x-request-id"] == "req_a1b2c3"


async def test_credentials_of_the_url_are_sent_as_basic_authentication():
    async with listening(answering(200)) as server:
        url = f"http://us%40er:pass%3Aword@127.0.0.1:{server.port}/hooks"
        async with started(server.port, downstream_url=url) as courier:
            await handle(courier)

    (request,) = server.requests
    assert request.headers["authorization"] == f"Basic {base64.b64encode(b'us@er:pass:word').decode()}"
    assert request.headers["host"] == f"127.0.0.1:{server.port}"


async def test_connections_are_used_again():
    async with listening(answering(200, body='{"ok": true}')) as server, started(server.port) as courier:
        for _ in range(3):
            await handle(courier)

    assert [request.connection for request in server.requests] == [1, 1, 1]


async def test_many_events_are_forwarded_at_once():
    everyone_is_here = asyncio.Barrier(8)

    async def together(writer):
        await everyone_is_here.wait()
        answering(200)(writer)

    async with listening(together) as server, started(server.port, concurrency=8) as courier:
        outcomes = await asyncio.gather(*(handle(courier) for _ in range(8)))

    assert all(isinstance(outcome, Done) for outcome in outcomes)


async def test_the_environment_does_not_redirect_events(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")

    assert isinstance(await outcome_of(answering(200)), Done)


# --- what its answers mean ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_success_applies_the_event(status):
    assert isinstance(await outcome_of(answering(status)), Done)


@pytest.mark.parametrize("status", [408, 425, 500, 502, 503, 504, 599])
async def test_transient_answers_are_retried(status):
    assert await outcome_of(answering(status)) == Retry(f"HTTP_{status}", f"The downstream answered {status}.")


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 401, 403, 404, 409, 410, 422, 451])
async def test_other_answers_are_final_and_redirects_are_not_followed(status):
    async with listening(answering(status, location="/elsewhere")) as server, started(server.port) as courier:
        outcome = await handle(courier)

    assert outcome == Reject(f"HTTP_{status}", f"The downstream refused the event ({status}).")
    assert len(server.requests) == 1


@pytest.mark.parametrize(("status", "code"), [(429, "THROTTLED"), (503, "HTTP_503")])
async def test_the_wait_of_retry_after_is_used(status, code):
    outcome = await outcome_of(answering(status, retry_after="17"))

    assert isinstance(outcome, Retry)
    assert (outcome.code, outcome.after) == (code, timedelta(seconds=17))


async def test_throttling_without_a_time_leaves_the_wait_to_the_policy():
    outcome = await outcome_of(answering(HTTPStatus.TOO_MANY_REQUESTS))

    assert isinstance(outcome, Retry)
    assert (outcome.code, outcome.after) == ("THROTTLED", None)


async def test_only_throttling_and_unavailability_may_set_the_wait():
    assert await outcome_of(answering(500, retry_after="17")) == Retry("HTTP_500", "The downstream answered 500.")


# --- when it does not answer --------------------------------------------------------------------------------


async def test_no_answer_is_a_timeout():
    outcome = await outcome_of(lambda _: asyncio.Event().wait(), downstream_timeout=timedelta(milliseconds=50))

    assert outcome == Retry("TIMEOUT", "The downstream did not answer within 0.05 s.")


async def test_very_slow_headers_are_a_timeout():
    async def trickle(writer):
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:  # each byte comes well within the timeout; the whole never does
            writer.write(b"x-slow: 1\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    outcome = await outcome_of(trickle, downstream_timeout=timedelta(milliseconds=200))

    assert isinstance(outcome, Retry)
    assert outcome.code == "TIMEOUT"


@pytest.mark.parametrize("sent", [b"content-length: 1000\r\n\r\n{", b"content-length: 900000\r\n\r\n" + b"x" * 200_000])
async def test_a_body_that_does_not_end_does_not_change_the_answer(sent):
    def started_to_answer(writer):
        writer.write(b"HTTP/1.1 200 OK\r\n" + sent)

    # The headers arrive within the timeout. Then the timeout ends the wait for the body.
    assert isinstance(await outcome_of(started_to_answer, downstream_timeout=timedelta(milliseconds=500)), Done)


async def test_a_closed_port_is_a_refused_connection():
    async with listening(answering(200)) as server:
        port = server.port
    async with started(port) as courier:
        assert await handle(courier) == Retry("ECONNREFUSED", "The downstream could not be reached (ECONNREFUSED).")


@pytest.mark.parametrize("farewell", [b"", b"HTTP/1.1 200", b"this is not HTTP\r\n\r\n"])
async def test_a_connection_that_breaks_is_retried(farewell):
    def hang_up(writer):
        writer.write(farewell)
        writer.close()

    outcome = await outcome_of(hang_up)

    assert isinstance(outcome, Retry)
    assert outcome.code == "ECONNRESET"


async def test_a_server_without_tls_is_a_tls_failure():
    async def speak_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Speak up\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(speak_plainly, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        async with started(port, downstream_url=f"https://127.0.0.1:{port}/") as courier:
            outcome = await handle(courier)

    assert outcome == Retry("TLS_FAILED", "The downstream could not be reached (TLS_FAILED).")


async def test_an_unknown_host_has_its_own_code(monkeypatch):
    def nobody_knows(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody_knows)
    async with started(0, downstream_url="http://downstream.invalid/") as courier:
        outcome = await handle(courier)

    assert outcome == Retry("ENOTFOUND", "The downstream could not be reached (ENOTFOUND).")


async def test_no_outcome_shows_the_url_or_the_body():
    url = "http://user:hunter2@127.0.0.1:{}/hook?token=hunter3"
    async with listening(answering(403, body="hunter4")) as server:
        address = url.format(server.port)
        async with started(server.port, downstream_url=address) as courier:
            refused = await handle(courier)
    async with started(server.port, downstream_url=address) as courier:
        unreachable = await handle(courier)

    assert "hunter" not in repr((refused, unreachable))
    assert "127.0.0.1" not in repr((refused, unreachable))


# --- Retry-After --------------------------------------------------------------------------------------------

NOW = datetime(2026, 2, 26, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("9" * 5000, None),
        ("0", timedelta(0)),
        (" 120 ", timedelta(seconds=120)),
        ("999999999", timedelta(hours=1)),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), timedelta(seconds=90)),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), timedelta(0)),
        (format_datetime(NOW + timedelta(days=90), usegmt=True), timedelta(hours=1)),
        ("Thu, 26 Feb 2026 12:00:30 -0000", timedelta(seconds=30)),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_at_most_an_hour(header, expected):
    assert retry_after(header, NOW) == expected


@settings(deadline=None)
@given(
    st.text(max_size=60)
    | st.from_regex(r"\w{3}, \d{1,4} \w{3} \d{1,6} \d{1,3}:\d{1,3}:\d{1,3} [+-]?\w{1,9}", fullmatch=True)
)
def test_no_retry_after_header_can_break_the_worker(header):
    wait = retry_after(header, NOW)

    assert wait is None or timedelta(0) <= wait <= timedelta(hours=1)
