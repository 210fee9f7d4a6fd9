"""Mail by SES: moto for the usual answers, and our own server for errors."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import struct
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import pytest
import pytest_asyncio
from aiobotocore.session import get_session

from holdfast.features.email.transports.port import (
    AccountBlocked,
    OutcomeUnknown,
    Refused,
    TransportError,
    TryLater,
)
from holdfast.features.email.transports.ses import SesOptions, SesTransport, tag_value

from .messages import FIRST, SECOND, SENDER, THIRD, a_message

# botocore needs half a second to make a client, so the tests of answers share a client and its event loop.
pytestmark = [pytest.mark.usefixtures("aws_credentials"), pytest.mark.asyncio(loop_scope="module")]

SOON = timedelta(seconds=0.3)


@asynccontextmanager
async def opened(url: str, **options) -> AsyncIterator[SesTransport]:
    transport = SesTransport(SesOptions(region="us-east-1", endpoint_url=url, **options))
    await transport.open()
    try:
        yield transport
    finally:
        await transport.close()


async def failure(transport, message=None) -> TransportError:
    with pytest.raises(TransportError) as caught:
        await transport.send(message or a_message())
    return caught.value


# --- moto -----------------------------------------------------------------------------------------------------------


async def verified(moto, identity: str) -> None:
    async with get_session().create_client("sesv2", region_name=moto.region, endpoint_url=moto.url) as client:
        await client.create_email_identity(EmailIdentity=identity)


async def test_a_message_reaches_ses_complete_with_its_envelope(moto):
    await verified(moto, SENDER)
    message = a_message(FIRST, SECOND, THIRD, text="Olá, São João")
    async with opened(moto.url) as transport:
        accepted = await transport.send(message)
    [sent] = moto.mail()
    assert accepted.message_id == sent.id
    assert sent.source == SENDER
    assert set(sent.destinations) == {FIRST, SECOND, THIRD}  # moto adds those of the headers
    assert sent.raw_data == message.raw.decode()


async def test_a_sender_that_ses_does_not_know_is_refused(moto):
    async with opened(moto.url) as transport:
        error = await failure(transport)
    assert (type(error), error.code) == (Refused, "SES_MESSAGE_REJECTED")
    assert moto.mail() == []
    assert SENDER not in str(error)


# --- a server of our own --------------------------------------------------------------------------------------------


class Server:
    """Reads complete requests and stores their bodies. ``reply`` writes the answer."""

    def __init__(self, reply: Callable[[asyncio.StreamWriter], object]) -> None:
        self.reply = reply
        self.url = ""
        self.requests: list[tuple[str, dict]] = []
        self.over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader, writer) -> None:
        self._tasks.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, EOFError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                self.requests.append((head[0], json.loads(body or b"{}")))
                answer = self.reply(writer)
                if asyncio.iscoroutine(answer):
                    await answer
                await writer.drain()
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    @asynccontextmanager
    async def listening(self):
        listener = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=2**20)
        self.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        async with listener:
            yield self
            self.over.set()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


def answering(status: int, body: object = None, **headers: str) -> Callable[[asyncio.StreamWriter], None]:
    content = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    lines = [f"HTTP/1.1 {status} Whatever", "content-type: application/json", f"content-length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return lambda writer: writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)


def refusing(status: int, name: str, message: str = "because", **headers: str):
    return answering(status, {"message": message}, x_amzn_errortype=name, **headers)


def reset(writer: asyncio.StreamWriter) -> None:
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


@dataclass
class Ses:
    server: Server
    transport: SesTransport

    async def outcome(self, reply) -> TransportError:
        """The result of one message with this answer. The request is made once."""
        self.server.reply = reply
        self.server.requests.clear()
        error = await failure(self.transport)
        assert len(self.server.requests) == 1
        return error


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ses() -> AsyncIterator[Ses]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "testing")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        async with Server(answering(500)).listening() as server, opened(server.url) as transport:
            yield Ses(server, transport)


async def test_the_request_has_everything_that_ses_needs():
    reply = answering(200, {"MessageId": "0100-abc"})
    message = a_message(FIRST, SECOND, tags=("boleto 2026", "ção", "a.b-c_d"))
    async with Server(reply).listening() as server, opened(server.url, configuration_set="events") as transport:
        accepted = await transport.send(message)
    [(line, request)] = server.requests
    assert line.startswith("POST /v2/email/outbound-emails ")
    assert base64.b64decode(request["Content"]["Raw"]["Data"]) == message.raw
    assert request["FromEmailAddress"] == SENDER
    assert request["Destination"] == {"ToAddresses": [FIRST, SECOND]}
    assert request["ConfigurationSetName"] == "events"
    assert [(tag["Name"], tag["Value"]) for tag in request["EmailTags"]] == [
        ("tag1", "boleto_2026"),
        ("tag2", "__o"),
        ("tag3", "a.b-c_d"),
    ]
    assert accepted.message_id == "0100-abc"


async def test_a_tag_is_never_longer_than_ses_allows():
    assert len(tag_value("x" * 1000)) == 256


@pytest.mark.parametrize(
    ("status", "name", "kind", "code"),
    [
        (429, "TooManyRequestsException", TryLater, "SES_THROTTLED"),
        (400, "TooManyRequestsException", TryLater, "SES_THROTTLED"),
        (400, "ThrottlingException", TryLater, "SES_THROTTLED"),
        (400, "Throttling", TryLater, "SES_THROTTLED"),
        (429, "Whatever", TryLater, "SES_THROTTLED"),
        (503, "ServiceUnavailable", TryLater, "SES_UNAVAILABLE"),
        (408, "RequestTimeout", TryLater, "SES_UNAVAILABLE"),
        (400, "MessageRejected", Refused, "SES_MESSAGE_REJECTED"),
        (400, "BadRequestException", Refused, "SES_BAD_REQUEST"),
        (404, "NotFoundException", Refused, "SES_NOT_FOUND"),
        (400, "MailFromDomainNotVerifiedException", Refused, "SES_MAIL_FROM_DOMAIN_NOT_VERIFIED"),
        (400, "SomethingNew", Refused, "SES_BAD_REQUEST"),
        (400, "AccountSuspendedException", AccountBlocked, "SES_ACCOUNT_SUSPENDED"),
        (400, "SendingPausedException", AccountBlocked, "SES_SENDING_PAUSED"),
        (400, "LimitExceededException", AccountBlocked, "SES_LIMIT_EXCEEDED"),
        (403, "AccessDeniedException", AccountBlocked, "SES_ACCESS_DENIED"),
        (403, "SignatureDoesNotMatch", AccountBlocked, "SES_ACCESS_DENIED"),
        (400, "ExpiredTokenException", AccountBlocked, "SES_ACCESS_DENIED"),
        (500, "InternalFailure", OutcomeUnknown, "SES_500"),
        (502, "BadGateway", OutcomeUnknown, "SES_502"),
        (504, "GatewayTimeout", OutcomeUnknown, "SES_504"),
    ],
)
async def test_an_answer_decides_the_error_and_the_request_is_made_once(ses, status, name, kind, code):
    error = await ses.outcome(refusing(status, name))
    assert (type(error), error.code) == (kind, code)


@pytest.mark.parametrize(
    ("header", "after"),
    [("7", timedelta(seconds=7)), ("86400", timedelta(hours=1)), ("soon", None), (None, None)],
)
@pytest.mark.parametrize(("status", "name"), [(429, "TooManyRequestsException"), (503, "ServiceUnavailable")])
async def test_a_throttle_says_how_long_to_wait(ses, status, name, header, after):
    error = await ses.outcome(refusing(status, name, **({"retry_after": header} if header else {})))
    assert error.after == after


# --- the point of no return -----------------------------------------------------------------------------------------


async def test_no_answer_after_the_request_leaves_the_outcome_unknown():
    async with Server(lambda writer: server.over.wait()).listening() as server:
        async with opened(server.url, read_timeout=SOON) as transport:
            error = await failure(transport)
        assert (type(error), error.code) == (OutcomeUnknown, "SES_NO_ANSWER")
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(reset, id="reset"),
        pytest.param(lambda writer: writer.close(), id="closed"),
        pytest.param(
            lambda writer: (writer.write(b"HTTP/1.1 200 OK\r\ncontent-len"), writer.close()), id="half a head"
        ),
        pytest.param(
            lambda writer: (writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{"), writer.close()),
            id="half a body",
        ),
        pytest.param(lambda writer: (writer.write(b"nonsense\r\n\r\n"), writer.close()), id="nonsense"),
        pytest.param(answering(200, b"<html>"), id="not JSON"),
    ],
)
async def test_a_connection_that_breaks_after_the_request_leaves_the_outcome_unknown(ses, reply):
    assert type(await ses.outcome(reply)) is OutcomeUnknown


async def test_a_request_that_was_never_made_is_safe_to_retry():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        async with opened(f"http://127.0.0.1:{closed.getsockname()[1]}") as transport:
            error = await failure(transport)
    assert (type(error), error.code) == (TryLater, "SES_CONNECT")


async def test_a_name_that_does_not_resolve_is_safe_to_retry():
    async with opened("http://ses.invalid") as transport:
        error = await failure(transport)
    assert (type(error), error.code) == (TryLater, "SES_CONNECT")


async def test_a_server_without_tls_is_safe_to_retry():
    async with Server(reset).listening() as server:
        async with opened(server.url.replace("http:", "https:"), connect_timeout=SOON) as transport:
            error = await failure(transport)
        assert server.requests == []
    assert type(error) is TryLater


async def test_without_credentials_the_account_is_blocked(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    async with Server(answering(200)).listening() as server, opened(server.url) as transport:
        error = await failure(transport)
    assert (type(error), error.code) == (AccountBlocked, "SES_NO_CREDENTIALS")
    assert server.requests == []


# --- checking, and what must not leak -------------------------------------------------------------------------------


async def test_a_check_reads_the_account_and_sends_nothing(ses):
    ses.server.reply = answering(200, {"SendingEnabled": True})
    ses.server.requests.clear()
    await ses.transport.check()
    assert [line.split(" ")[:2] for line, _ in ses.server.requests] == [["GET", "/v2/email/account"]]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (answering(200, {"SendingEnabled": False}), AccountBlocked),
        (refusing(403, "AccessDeniedException"), AccountBlocked),
        (refusing(429, "TooManyRequestsException"), TryLater),
    ],
)
async def test_a_failed_check_has_the_reason(ses, reply, kind):
    ses.server.reply = reply
    with pytest.raises(kind):
        await ses.transport.check()


@pytest.mark.parametrize("status", [400, 429, 500])
async def test_no_error_shows_an_address(ses, status):
    said = f"Address is not verified: {FIRST}, maria.souza, {SENDER}, José <josé@exemplo.example>"
    error = await ses.outcome(refusing(status, "MessageRejected" if status == 400 else "Other", said))
    shown = "".join(traceback.format_exception(error)) + repr(error) + error.message
    for secret in ("maria", "souza", "billing@", "josé@", "exemplo"):
        assert secret not in shown
    assert "not verified" in error.message
