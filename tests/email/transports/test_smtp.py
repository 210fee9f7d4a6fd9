"""Mail by SMTP, to a real server on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from holdfast.contracts.errors import ConfigurationError
from holdfast.features.email.transports.port import (
    AccountBlocked,
    OutcomeUnknown,
    Refused,
    TransportError,
    TryLater,
)
from holdfast.features.email.transports.smtp import SmtpOptions, SmtpTransport
from tests.support.smtp_server import DROP, DROP_TAKEN, HANG, HANG_TAKEN, SmtpServer
from tests.support.waiting import eventually

from .messages import FIRST, SECOND, SENDER, THIRD, a_message

SOON = timedelta(seconds=0.2)


@pytest.fixture
def server():
    with SmtpServer() as server:
        yield server


@asynccontextmanager
async def opened(server, **options) -> AsyncIterator[SmtpTransport]:
    defaults = {"host": server.host, "port": server.port, "security": "none", "local_hostname": "gateway.example"}
    transport = SmtpTransport(SmtpOptions(**(defaults | options)))
    await transport.open()
    try:
        yield transport
    finally:
        await transport.close()


async def failure(transport, message) -> TransportError:
    with pytest.raises(TransportError) as caught:
        await transport.send(message)
    return caught.value


# --- what arrives ---------------------------------------------------------------------------------------------------


async def test_a_message_arrives_complete_with_its_envelope(server):
    message = a_message(FIRST, SECOND, THIRD, text="first\r\n.a dot\r\n..two\r\n.\r\nçã — last")
    async with opened(server) as transport:
        accepted = await transport.send(message)
    [taken] = server.taken
    assert taken.raw == message.raw
    assert (taken.sender, taken.recipients) == (SENDER, (FIRST, SECOND, THIRD))
    assert (accepted.message_id, accepted.refused) == ("Q000001", ())


@pytest.mark.parametrize("raw", [b"a\nb\r\nc\rd", b"no end of line\r\n.", b".\r\n"])
async def test_line_ends_become_crlf_and_no_line_ends_the_message_early(server, raw):
    async with opened(server) as transport:
        await transport.send(a_message(raw=raw))
        await transport.send(a_message(raw=raw))
    wanted = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\r\n").removesuffix(b"\r\n") + b"\r\n"
    assert [taken.raw for taken in server.taken] == [wanted, wanted]


async def test_a_large_message_arrives(server):
    message = a_message(text="0123456789 0123456789\r\n" * 150_000)
    async with opened(server) as transport:
        await transport.send(message)
    assert server.taken[0].raw == message.raw


ANSWERS = {
    "Postfix": ("250 2.0.0 Ok: queued as 4F1C2A3B", "4F1C2A3B"),
    "Postfix, long ids": ("250 2.0.0 Ok: queued as 4bQ1xY3vz2zJsV", "4bQ1xY3vz2zJsV"),
    "Postfix, without digits": ("250 2.0.0 Ok: queued as BCDFAC", "BCDFAC"),
    "a short id": ("250 OK queued as X1", "X1"),
    "SendGrid": ("250 Ok: queued as e4lmUL_rRv-oNPbrIz5Dbw", "e4lmUL_rRv-oNPbrIz5Dbw"),
    "MailHog": ("250 Ok: queued as Tn2wXb1cQ=@mailhog.example", "Tn2wXb1cQ=@mailhog.example"),
    "NetEase": ("250 Mail OK queued as zwqz-smtp-mta-g2-0,_____wD3YxVl 1700000000", "zwqz-smtp-mta-g2-0,_____wD3YxVl"),
    "Yandex": ("250 2.0.0 Ok: queued on iva5.mail.yandex.net as 1700000000-6mUkW7dMx", "1700000000-6mUkW7dMx"),
    "Haraka": ("250 Message Queued (4A2F0F63-7C2F-4C0A-B0B4-7E2A3A1B2C3D.1)", "4A2F0F63-7C2F-4C0A-B0B4-7E2A3A1B2C3D.1"),
    "Exim": ("250 OK id=1rABcD-0001Xy-2Z", "1rABcD-0001Xy-2Z"),
    "Exim 4.97": ("250 OK id=1rABcD-000000001Xy-2Z3a", "1rABcD-000000001Xy-2Z3a"),
    "Stalwart": ("250 2.0.0 Message queued with id 1a2b3c4d5e.", "1a2b3c4d5e"),
    "Exchange": (
        "250 2.6.0 <0@sender.example> [InternalId=71442123456789, Hostname=EX1.corp] Queued mail for delivery",
        "71442123456789",
    ),
    "Outlook": ("250 2.0.0 OK <0100f1@eu-west-1.amazonses.com> [Hostname=A.prod]", "0100f1@eu-west-1.amazonses.com"),
    "Gmail": ("250 2.0.0 OK  1700000000 5b1f17b1804b1-4083.12 - gsmtp", "5b1f17b1804b1-4083.12"),
    "Amazon SES": ("250 Ok 0100018c2b-aa11-bb22-000000", "0100018c2b-aa11-bb22-000000"),
    "PowerMTA": ("250 2.0.0 OK C1/2D-30513-5A4E2A65", "C1/2D-30513-5A4E2A65"),
    "Courier": ("250 Ok. 00000000000A1B2C.0000000065536F00.00001234", "00000000000A1B2C.0000000065536F00.00001234"),
    "qmail": ("250 ok 1700000000 qp 12345", "1700000000 qp 12345"),
    "Sendmail": ("250 2.0.0 3AFEjP1L012345 Message accepted for delivery", "3AFEjP1L012345"),
    "OpenSMTPD": ("250 2.0.0: 8d3ba6a8 Message accepted for delivery", "8d3ba6a8"),
    "OpenSMTPD 7": ("250 2.0.0 8d3ba6a8 Message accepted for delivery", "8d3ba6a8"),
    "Mailgun": ("250 Queued. Thank you. <20231115.1.AB@mg.example>", "20231115.1.AB@mg.example"),
    "Mailgun, in few words": ("250 Great success", None),
    "aiosmtpd": ("250 OK", None),
    "Domino": ("250 Message accepted for delivery", None),
    "hMailServer": ("250 Queued (0.012 seconds)", None),
    "Yahoo": ("250 OK , completed", None),
    "a sentence after OK": ("250 OK message received", None),
    "a number in a sentence": ("250 OK 123456 bytes received", None),
    "MDaemon": ("250 Ok, message saved", None),
    "the recipient": (f"250 2.0.0 OK <7{FIRST}>", None),
    "thanks": ("250 thank you", None),
}


@pytest.mark.parametrize(("answer", "name"), ANSWERS.values(), ids=ANSWERS)
async def test_the_servers_id_of_a_message_is_kept_or_else_ours(server, answer, name):
    server.rule("end", answer)
    message = a_message()
    async with opened(server) as transport:
        accepted = await transport.send(message)
    assert accepted.message_id == (name or message.message_id)


async def test_our_own_message_id_is_not_taken_for_the_servers_id(server):
    message = a_message()
    server.rule("end", f"250 2.0.0 OK {message.message_id} [Hostname=A.prod.outlook.com]")
    async with opened(server) as transport:
        assert (await transport.send(message)).message_id == message.message_id


# --- connections ----------------------------------------------------------------------------------------------------


async def test_a_single_sender_uses_one_connection(server):
    async with opened(server) as transport:
        for _ in range(5):
            await transport.send(a_message())
        assert server.connections == 1
    assert server.commands()[-1] == "QUIT"


async def test_the_connection_that_was_used_last_is_used_next(server):
    async with opened(server) as transport:
        await asyncio.gather(*(transport.send(a_message()) for _ in range(4)))
        for _ in range(4):
            await transport.send(a_message())
    assert len({taken.connection for taken in server.taken[4:]}) == 1
    assert server.connections > 1


async def test_no_more_connections_are_open_than_allowed(server):
    hanging = server.rule("end", HANG)
    async with opened(server, connections=3) as transport:
        sending = [asyncio.create_task(transport.send(a_message())) for _ in range(8)]
        await eventually(lambda: hanging.seen == 3)
        assert server.connections == 3
        hanging.release()
        await asyncio.gather(*sending)
    assert len(server.taken) == 8
    assert server.connections == 3


async def test_a_connection_that_was_lost_while_idle_costs_no_attempt(server):
    async with opened(server) as transport:
        await transport.send(a_message())
        server.cut_all()
        await transport.send(a_message())
    assert len(server.taken) == 2


@pytest.mark.parametrize("action", ["421 4.4.2 idle for too long", DROP])
async def test_a_kept_connection_that_fails_before_the_message_begins_is_replaced(server, action):
    async with opened(server) as transport:
        await transport.send(a_message())
        server.rule("mail", action, times=1)
        await transport.send(a_message())
    assert [taken.connection for taken in server.taken] == [1, 2]


async def test_a_kept_connection_without_an_answer_is_replaced(server):
    async with opened(server, timeout=SOON) as transport:
        await transport.send(a_message())
        hanging = server.rule("mail", HANG, times=1)
        await transport.send(a_message())
        hanging.release()
    assert [taken.connection for taken in server.taken] == [1, 2]


async def test_a_new_connection_that_fails_is_not_replaced(server):
    server.rule("mail", "421 4.3.2 shutting down")
    async with opened(server) as transport:
        assert (await failure(transport, a_message())).code == "SMTP_421"
    assert server.connections == 1


async def test_a_connection_is_not_kept_for_ever(server):
    async with opened(server, keep=timedelta(0)) as transport:
        await transport.send(a_message())
        await transport.send(a_message())
    assert server.connections == 2


async def test_closing_closes_all_connections(server):
    async with opened(server) as transport:
        await asyncio.gather(*(transport.send(a_message()) for _ in range(4)))
        assert server.open_connections
    await eventually(lambda: server.open_connections == 0)


@pytest.mark.parametrize(("stage", "kind"), [("rcpt", TryLater), ("end", OutcomeUnknown)])
async def test_closing_abandons_messages_that_are_being_sent(server, stage, kind):
    hanging = server.rule(stage, HANG)
    async with opened(server) as transport:
        sending = asyncio.create_task(failure(transport, a_message()))
        await eventually(lambda: hanging.seen)
        await transport.close()
        assert type(await sending) is kind


@pytest.mark.parametrize("stage", ["mail", "rcpt", "data", "end"])
async def test_cancelling_in_the_middle_closes_the_connection(server, stage):
    hanging = server.rule(stage, HANG, times=1)
    async with opened(server) as transport:
        sending = asyncio.create_task(transport.send(a_message()))
        await eventually(lambda: hanging.seen)
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
        await eventually(lambda: server.open_connections == 0)
        await transport.send(a_message())
    assert server.connections == 2


# --- what answers mean ----------------------------------------------------------------------------------------------

ANSWERS = [
    ("450 4.2.1 busy", TryLater, "SMTP_450"),
    ("451 4.3.0 trouble", TryLater, "SMTP_451"),
    ("452 4.2.2 full", TryLater, "SMTP_452"),
    ("421 4.3.2 closing", TryLater, "SMTP_421"),
    ("530 5.7.0 log in first", AccountBlocked, "SMTP_530"),
    ("535 5.7.8 who are you", AccountBlocked, "SMTP_535"),
    ("550 5.1.1 unknown", Refused, "SMTP_550"),
    ("552 5.3.4 too big", Refused, "SMTP_552"),
    ("553 5.1.3 bad name", Refused, "SMTP_553"),
    ("554 5.7.1 spam", Refused, "SMTP_554"),
]


@pytest.mark.parametrize("stage", ["mail", "rcpt", "data", "end"])
@pytest.mark.parametrize(("answer", "kind", "code"), ANSWERS)
async def test_an_answer_decides_the_error(server, stage, answer, kind, code):
    server.rule(stage, answer, times=1)
    async with opened(server) as transport:
        error = await failure(transport, a_message())
        assert (type(error), error.code) == (kind, code)
        assert server.taken == []
        await transport.send(a_message())
    assert len(server.taken) == 1
    # Only a server that answers 421 loses its connection.
    assert server.connections == (2 if code == "SMTP_421" else 1)


@pytest.mark.parametrize(
    ("first", "second", "kind", "code"),
    [
        ("550 no", "550 no", Refused, "SMTP_550"),
        ("450 wait", "450 wait", TryLater, "SMTP_450"),
        ("450 wait", "550 no", TryLater, "SMTP_450"),
        ("550 no", "451 wait", TryLater, "SMTP_451"),
        ("550 no", None, Refused, "SMTP_550"),
        ("450 wait", None, TryLater, "SMTP_450"),
    ],
)
async def test_a_message_whose_first_recipient_is_refused_is_not_sent(server, first, second, kind, code):
    server.rule("rcpt", first, match=FIRST)
    if second:
        server.rule("rcpt", second, match=SECOND)
    async with opened(server) as transport:
        error = await failure(transport, a_message(FIRST, SECOND))
        assert (type(error), error.code) == (kind, code)
        await transport.send(a_message(THIRD))
    assert "DATA" not in server.commands()[: server.commands().index("RSET")]
    assert [taken.recipients for taken in server.taken] == [(THIRD,)]
    assert server.connections == 1


@pytest.mark.parametrize("answer", ["550 5.1.1 no", "450 4.2.1 later"])
async def test_a_refused_copy_does_not_stop_the_message(server, answer):
    server.rule("rcpt", answer, match=SECOND)
    async with opened(server) as transport:
        accepted = await transport.send(a_message(FIRST, SECOND, THIRD))
    assert accepted.refused == (SECOND,)
    assert server.taken[0].recipients == (FIRST, THIRD)


# --- the point of no return -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("action", "taken"), [(DROP_TAKEN, 1), (DROP, 0)])
async def test_a_connection_lost_after_the_message_leaves_the_outcome_unknown(server, action, taken):
    server.rule("end", action, times=1)
    async with opened(server) as transport:
        error = await failure(transport, a_message())
        assert (type(error), error.code) == (OutcomeUnknown, "SMTP_NO_ANSWER")
        assert len(server.taken) == taken  # we cannot know, and did not send it twice to find out
        await transport.send(a_message())


@pytest.mark.parametrize(("action", "taken"), [(HANG_TAKEN, 1), (HANG, 0)])
async def test_no_answer_after_the_message_leaves_the_outcome_unknown(server, action, taken):
    hanging = server.rule("end", action)
    async with opened(server, final_timeout=SOON) as transport:
        error = await failure(transport, a_message())
        assert (type(error), error.code) == (OutcomeUnknown, "SMTP_NO_ANSWER")
        assert len(server.taken) == taken
        hanging.release()


@pytest.mark.parametrize("answer", ["what?", "354 more please", "199 hm"])
async def test_an_answer_that_is_neither_yes_nor_no_leaves_the_outcome_unknown(server, answer):
    server.rule("end", answer)
    async with opened(server) as transport:
        error = await failure(transport, a_message())
    assert (type(error), error.code) == (OutcomeUnknown, "SMTP_BAD_ANSWER")


@pytest.mark.parametrize("stage", ["connect", "ehlo", "mail", "rcpt", "data"])
async def test_a_connection_lost_before_the_message_is_safe_to_retry(server, stage):
    server.rule(stage, DROP)
    async with opened(server) as transport:
        error = await failure(transport, a_message())
    assert type(error) is TryLater
    assert error.code in {"SMTP_CONNECT", "SMTP_LOST"}
    assert server.taken == []


@pytest.mark.parametrize("stage", ["connect", "ehlo", "mail", "rcpt", "data"])
async def test_no_answer_before_the_message_is_safe_to_retry(server, stage):
    hanging = server.rule(stage, HANG)
    async with opened(server, timeout=SOON) as transport:
        error = await failure(transport, a_message())
        hanging.release()
    assert (type(error), error.code) == (TryLater, "SMTP_TIMEOUT")
    assert server.taken == []


@pytest.mark.parametrize("stage", ["connect", "ehlo", "mail", "rcpt", "data"])
async def test_a_malformed_answer_before_the_message_is_safe_to_retry(server, stage):
    server.rule(stage, "what?", times=1)
    async with opened(server) as transport:
        error = await failure(transport, a_message())
        assert (type(error), error.code) == (TryLater, "SMTP_BAD_ANSWER")
        await transport.send(a_message())
    assert len(server.taken) == 1


class Talker:
    """A small server that can disconnect in the middle of a message. aiosmtpd cannot."""

    def __init__(self, *, says: bytes = b"", hangs_up: bool = False, reads_on: bool = False) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self.received = b""
        self.done = False
        self._answer = says
        self._hangs_up = hangs_up
        self._reads_on = reads_on
        self._over = asyncio.Event()

    async def serve(self, reader, writer) -> None:
        if not self._reads_on:
            # A small buffer, so that the client cannot finish before the server disconnects.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with contextlib.suppress(ConnectionError, EOFError):
            writer.write(b"220 talker\r\n")
            while line := await reader.readline():
                writer.write(b"354 go\r\n" if line == b"DATA\r\n" else b"250 ok\r\n")
                if line == b"DATA\r\n":
                    break
            self.received = await reader.readexactly(1000)
            writer.write(self._answer)
            while self._reads_on and (piece := await reader.read(65536)):
                self.received = self.received[-10:] + piece
            if not (self._hangs_up or self._reads_on):
                await self._over.wait()
        self.done = True
        writer.transport.abort()

    @asynccontextmanager
    async def listening(self):
        listener = await asyncio.start_server(self.serve, self.host, 0, limit=4096)
        self.port = listener.sockets[0].getsockname()[1]
        async with listener:
            yield self
            self._over.set()


LARGE = "0123456789 0123456789\r\n" * 400_000


async def test_a_connection_lost_in_the_middle_of_the_message_is_safe_to_retry():
    async with Talker(hangs_up=True).listening() as talker, opened(talker) as transport:
        error = await failure(transport, a_message(text=LARGE))
        assert talker.received
    assert (type(error), error.code) == (TryLater, "SMTP_LOST")


async def test_a_server_that_stops_reading_in_the_middle_of_the_message_is_safe_to_retry():
    async with Talker().listening() as talker, opened(talker, timeout=SOON) as transport:
        error = await failure(transport, a_message(text=LARGE))
        assert talker.received
    assert (type(error), error.code) == (TryLater, "SMTP_TIMEOUT")


async def test_a_refusal_in_the_middle_of_the_message_counts():
    talker = Talker(says=b"552 5.3.4 too big\r\n")
    async with talker.listening(), opened(talker, timeout=SOON) as transport:
        error = await failure(transport, a_message(text=LARGE))
    assert (type(error), error.code) == (Refused, "SMTP_552")


async def test_an_acceptance_in_the_middle_of_the_message_does_not_count():
    talker = Talker(says=b"250 2.0.0 queued as NOTHING\r\n", reads_on=True)
    async with talker.listening(), opened(talker) as transport:
        error = await failure(transport, a_message(text=LARGE))
        assert (type(error), error.code) == (TryLater, "SMTP_LOST")
        await eventually(lambda: talker.done)
    assert not talker.received.endswith(b"\r\n.\r\n")  # the server cannot have taken it


async def test_an_unreachable_server_is_retried_later():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        options = SmtpOptions("127.0.0.1", closed.getsockname()[1], "none", local_hostname="gateway.example")
        error = await failure(SmtpTransport(options), a_message())
    assert (type(error), error.code) == (TryLater, "SMTP_CONNECT")


# --- TLS and login --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("security", ["none", "starttls", "tls"])
async def test_mail_is_sent_over_each_kind_of_connection_with_a_login(security):
    with SmtpServer(security=security, users={"gateway": "s3cret"}) as server:
        options = {"security": security, "username": "gateway", "password": "s3cret"}
        if security != "none":
            options["ca_file"] = server.ca_file
        async with opened(server, **options) as transport:
            await transport.check()
            await transport.send(a_message())
            await transport.send(a_message())
        assert len(server.taken) == 2


@pytest.mark.parametrize("security", ["starttls", "tls"])
@pytest.mark.parametrize("trust", ["nobody", "another name"])
async def test_a_certificate_that_cannot_be_trusted_blocks_the_account(security, trust):
    with SmtpServer(security=security, host_name="localhost" if trust == "nobody" else "other.example") as server:
        options = {} if trust == "nobody" else {"ca_file": server.ca_file}
        async with opened(server, security=security, **options) as transport:
            error = await failure(transport, a_message())
        assert (type(error), error.code) == (AccountBlocked, "SMTP_TLS_UNTRUSTED")
        assert server.taken == []


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_a_connection_lost_after_the_message_leaves_the_outcome_unknown_with_tls_too(security):
    with SmtpServer(security=security) as server:
        server.rule("end", DROP_TAKEN)
        async with opened(server, security=security, ca_file=server.ca_file) as transport:
            error = await failure(transport, a_message())
        assert type(error) is OutcomeUnknown
        assert len(server.taken) == 1


async def test_mail_is_never_sent_in_clear_when_tls_is_required(server):
    async with opened(server, security="starttls") as transport:
        error = await failure(transport, a_message())
    assert (type(error), error.code) == (AccountBlocked, "SMTP_NOT_OFFERED")
    assert "MAIL" not in server.commands()


async def test_tls_to_a_server_without_tls_is_retried_later(server):
    async with opened(server, security="tls") as transport:
        error = await failure(transport, a_message())
    assert (type(error), error.code) == (TryLater, "SMTP_TLS_FAILED")


async def test_a_login_to_a_server_without_logins_blocks_the_account(server):
    async with opened(server, username="gateway", password="s3cret") as transport:
        error = await failure(transport, a_message())
    assert (type(error), error.code) == (AccountBlocked, "SMTP_NOT_OFFERED")


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (None, AccountBlocked, "SMTP_535"),
        ("535 5.7.8 no", AccountBlocked, "SMTP_535"),
        ("454 4.7.0 not now", TryLater, "SMTP_454"),
    ],
)
async def test_a_login_that_fails_blocks_the_account_unless_it_may_work_later(answer, kind, code):
    with SmtpServer(users={"gateway": "s3cret"}) as server:
        if answer:
            server.rule("auth", answer)
        async with opened(server, username="gateway", password="s3cret" if answer else "wr0ng") as transport:
            error = await failure(transport, a_message())
        assert (type(error), error.code) == (kind, code)
        assert "wr0ng" not in str(error)


@pytest.mark.parametrize(
    ("stage", "answer", "kind", "code"),
    [
        ("connect", "554 5.7.1 your address is on a list", AccountBlocked, "SMTP_554"),
        ("connect", "421 4.7.0 too many connections", TryLater, "SMTP_421"),
        ("ehlo", "550 5.7.1 go away", AccountBlocked, "SMTP_550"),
        ("ehlo", "451 4.7.1 greylisted", TryLater, "SMTP_451"),
    ],
)
async def test_a_greeting_is_never_about_the_message(server, stage, answer, kind, code):
    server.rule(stage, answer)
    async with opened(server) as transport:
        error = await failure(transport, a_message())
        assert (type(error), error.code) == (kind, code)
        with pytest.raises(kind):
            await transport.check()


async def test_a_check_sends_nothing(server):
    async with opened(server) as transport:
        await transport.check()
    assert server.commands() == ["CONNECT", "EHLO", "NOOP", "QUIT"]


# --- what must not leak ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["mail", "rcpt", "data", "end"])
async def test_no_error_shows_an_address(server, stage):
    said = f"550 5.1.1 <{FIRST}>, {FIRST.upper()}, maria.souza, {SENDER}, jose@outro.example and 111.444.777-35 unknown"
    server.rule(stage, said)
    async with opened(server) as transport:
        error = await failure(transport, a_message())
    shown = "".join(traceback.format_exception(error)) + repr(error) + error.message
    for secret in ("maria", "souza", "MARIA", "billing@", "jose@", "outro", "111.444"):
        assert secret not in shown
    assert "550" in error.message
    assert "unknown" in error.message


async def test_the_repr_of_a_message_and_of_the_options_shows_no_secret():
    message = a_message(FIRST, SECOND)
    assert "example" not in repr(message).replace(message.message_id, "")
    options = SmtpOptions("mail.example", 25, username="gateway-user", password="s3cret")
    assert "gateway-user" not in repr(options)
    assert "s3cret" not in repr(options)


@pytest.mark.parametrize(
    "address", ["a b@example.com", "a@example.com>\r\nRCPT TO:<x@y.z", "josé@example.com", "<a@b.c>", "nobody"]
)
async def test_an_address_that_could_inject_a_command_is_refused(server, address):
    async with opened(server) as transport:
        for message in (a_message(address), a_message(FIRST, address), a_message(sender=address)):
            error = await failure(transport, message)
            assert (type(error), error.code) == (Refused, "SMTP_BAD_ADDRESS")
            assert address not in str(error)
    assert server.connections == 0


async def test_invalid_options_are_refused_at_the_start(tmp_path):
    for bad in ({"host": ""}, {"host": "two words"}, {"local_hostname": "a\r\nb"}, {"connections": 0}):
        with pytest.raises(ConfigurationError):
            SmtpOptions(**({"host": "mail.example", "port": 25} | bad))
    (tmp_path / "ca.pem").write_text("not a certificate")
    for file in ("ca.pem", "absent.pem"):
        with pytest.raises(ConfigurationError, match="CA file"):
            await SmtpTransport(SmtpOptions("mail.example", 25, ca_file=tmp_path / file)).open()
