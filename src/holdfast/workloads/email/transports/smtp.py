"""Mail by SMTP, over connections that are kept for the next message.

The dialogue is ours, line by line (aiosmtplib does the connection, TLS and the login), because everything hangs on one
byte: before the dot that ends the message the server cannot have taken it, and after the dot only its answer can tell.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, cast

import aiosmtplib
from aiosmtplib.protocol import SMTPProtocol

from holdfast.contracts.errors import ConfigurationError

from .port import Accepted, OutcomeUnknown, OutgoingMessage, Refused, TransportError, TryLater
from .smtp_answers import (
    BAD_ADDRESS,
    BAD_ANSWER,
    LOST,
    NO_ANSWER,
    TIMEOUT,
    connection_error,
    meaning_of,
    name_in,
    negative,
    positive,
    transient,
)

Security = Literal["none", "starttls", "tls"]

_GO_AHEAD: Final = 354
_CLOSING: Final = 421
_DOT: Final = b".\r\n"
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_DOT_AT_LINE_START: Final = re.compile(rb"(?m)^\.")
# The characters that could end the command or the brackets around the address are not among these.
_ADDRESS: Final = re.compile(r"[!-;=?-~]+@[!-;=?-~]+")
_HOST: Final = re.compile(r"[A-Za-z0-9.:_\[\]-]+")


@dataclass(frozen=True, slots=True)
class SmtpOptions:
    """Which server, and how to talk to it.

    ``timeout`` limits each step; ``final_timeout`` the wait for the answer to a whole message, which is worth more
    patience: giving up there leaves a message that may have been sent. ``connections`` is the most that are open at
    once; an idle one is used again for as long as ``keep``.
    """

    host: str
    port: int
    security: Security = "starttls"
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    local_hostname: str | None = None
    timeout: timedelta = timedelta(seconds=30)
    final_timeout: timedelta = timedelta(minutes=2)
    connections: int = 10
    keep: timedelta = timedelta(minutes=1)

    def __post_init__(self) -> None:
        names = (self.host, self.local_hostname or "localhost")
        if not all(_HOST.fullmatch(name) for name in names) or self.connections < 1:
            message = "SMTP needs a host name, a good name of our own where one is given, and at least one connection."
            raise ConfigurationError(message)


class _Line:
    """One open connection, logged in where asked."""

    def __init__(self, client: aiosmtplib.SMTP) -> None:
        self.client = client
        self.protocol = cast("SMTPProtocol", client.protocol)
        self.idle_since = 0.0
        # The client forgets its transport when it closes; a line must be cut even then.
        self._transport = cast("asyncio.WriteTransport", client.transport)

    @property
    def alive(self) -> bool:
        """Nobody has closed it, as far as we know."""
        return self.client.is_connected

    def cut(self) -> None:
        """Close at once; what is not yet written never will be."""
        self._transport.abort()
        self.client.close()


class SmtpTransport:
    """Sends each message over one of at most ``connections`` lines, opened when they are needed.

    A line that died while it was idle is replaced before the message begins: that costs no attempt.
    """

    name = "smtp"

    def __init__(self, options: SmtpOptions) -> None:
        self._options = options
        self._step = options.timeout.total_seconds()
        self._slots = asyncio.Semaphore(options.connections)
        self._lines: set[_Line] = set()
        self._idle: list[_Line] = []
        self._tls: ssl.SSLContext | None = None

    async def open(self) -> None:
        """Read the certificates. Raises :class:`ConfigurationError` for a file that is none."""
        if self._options.security == "none":
            return
        try:
            self._tls = await asyncio.to_thread(ssl.create_default_context, cafile=self._options.ca_file)
        except OSError:
            message = "The CA file for the SMTP server cannot be read, or holds no certificate."
            raise ConfigurationError(message) from None

    async def close(self) -> None:
        """Say goodbye on idle lines and cut all."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(_say_goodbye(line) for line in idle))
        for line in list(self._lines):
            self._drop(line)

    async def send(self, outgoing: OutgoingMessage) -> Accepted:
        """Send one message. Bad answers about one recipient do not stop it, unless it is the first one."""
        if not all(_ADDRESS.fullmatch(address) for address in (outgoing.sender, *outgoing.recipients)):
            message = "An address of the envelope cannot be written in SMTP."
            raise Refused(BAD_ADDRESS, message)
        async with self._slots:
            line = await self._begin(outgoing)
            try:
                accepted = await self._finish(line, outgoing)
            except TransportError:
                self._keep(line)
                raise
            except BaseException:
                # Cancelled in the middle: the line is in a state that nobody knows.
                self._drop(line)
                raise
            self._keep(line)
            return accepted

    async def check(self) -> None:
        """Connect, log in, say goodbye."""
        line = await self._connect()
        try:
            await self._say(line, b"NOOP")
            await _say_goodbye(line)
        finally:
            self._drop(line)

    # --- lines --------------------------------------------------------------------------------------------------------

    async def _begin(self, outgoing: OutgoingMessage) -> _Line:
        """A line on which the server has accepted MAIL FROM."""
        kept = self._kept_line()
        if kept is not None:
            try:
                return await self._mail_from(kept, outgoing)
            except TryLater:
                # A line that is still alive gave a real answer. A dead one said nothing about this message.
                if kept in self._lines:
                    raise
        return await self._mail_from(await self._connect(), outgoing)

    def _kept_line(self) -> _Line | None:
        """The line that was used last, so that a lone sender needs only one."""
        oldest = asyncio.get_running_loop().time() - self._options.keep.total_seconds()
        while self._idle:
            line = self._idle.pop()
            if line.alive and line.idle_since > oldest:
                return line
            self._drop(line)
        return None

    def _keep(self, line: _Line) -> None:
        if line in self._lines and line.alive:
            line.idle_since = asyncio.get_running_loop().time()
            self._idle.append(line)
        else:
            self._drop(line)

    def _drop(self, line: _Line) -> None:
        self._lines.discard(line)
        line.cut()

    async def _connect(self) -> _Line:
        options = self._options
        client = aiosmtplib.SMTP(
            hostname=options.host,
            port=options.port,
            username=options.username,
            password=options.password,
            local_hostname=options.local_hostname,
            timeout=self._step,
            use_tls=options.security == "tls",
            start_tls=options.security == "starttls",
            tls_context=self._tls,
        )
        try:
            await client.connect()
            if client.is_ehlo_or_helo_needed:
                await client.ehlo()
        except (aiosmtplib.SMTPException, OSError) as error:
            client.close()
            raise connection_error(error) from None
        except BaseException:
            client.close()
            raise
        line = _Line(client)
        self._lines.add(line)
        return line

    # --- the dialogue -------------------------------------------------------------------------------------------------

    async def _mail_from(self, line: _Line, outgoing: OutgoingMessage) -> _Line:
        words = [b"MAIL", f"FROM:<{outgoing.sender}>".encode()]
        if line.client.supports_extension("size"):
            words.append(b"SIZE=%d" % len(outgoing.raw))
        if not outgoing.raw.isascii() and line.client.supports_extension("8bitmime"):
            words.append(b"BODY=8BITMIME")
        reply = await self._say(line, *words)
        if not positive(reply):
            self._keep(line)
            raise meaning_of(reply, outgoing)
        return line

    async def _finish(self, line: _Line, outgoing: OutgoingMessage) -> Accepted:
        """Recipients, message, answer. Raises a :class:`TransportError` with the line ready or dropped."""
        refused = await self._recipients(line, outgoing)
        reply = await self._say(line, b"DATA")
        if reply.code != _GO_AHEAD:
            await self._abandon(line)
            raise meaning_of(reply, outgoing)
        reply = await self._message(line, outgoing)
        if positive(reply):
            return Accepted(name_in(reply.message, outgoing) or outgoing.message_id, refused)
        raise meaning_of(reply, outgoing)

    async def _recipients(self, line: _Line, outgoing: OutgoingMessage) -> tuple[str, ...]:
        """The recipients that the server refused. Raises where the message must not go out at all."""
        refusals: dict[str, aiosmtplib.SMTPResponse] = {}
        for address in outgoing.recipients:
            reply = await self._say(line, b"RCPT", f"TO:<{address}>".encode())
            if positive(reply):
                continue
            if reply.code == _CLOSING:
                raise meaning_of(reply, outgoing)
            refusals[address] = reply
        first = refusals.get(outgoing.recipients[0])
        if first is not None:
            if len(refusals) == len(set(outgoing.recipients)):
                # Nobody takes it now. One who may take it later is a reason to come back.
                first = next((reply for reply in refusals.values() if transient(reply)), first)
            await self._abandon(line)
            raise meaning_of(first, outgoing)
        return tuple(refusals)

    async def _message(self, line: _Line, outgoing: OutgoingMessage) -> aiosmtplib.SMTPResponse:
        """Write the message, then the dot, and wait for the answer."""
        text = _on_the_wire(outgoing.raw)
        # It listens while we write: a server may say no, and hang up, in the middle of a message.
        reply = asyncio.create_task(line.protocol.read_response())
        try:
            # aiosmtplib throws away an answer that comes before somebody reads, and on uvloop a quick one does.
            await asyncio.sleep(0)
            early = await self._write(line, text, reply)
            if early is not None:
                self._drop(line)
                return early
            # From here on the server may take the message.
            async with asyncio.timeout(self._options.final_timeout.total_seconds()):
                answer = await reply
        except TimeoutError:
            self._drop(line)
            message = "The server did not say whether it took the message."
            raise OutcomeUnknown(NO_ANSWER, message) from None
        except (aiosmtplib.SMTPServerDisconnected, OSError):
            self._drop(line)
            message = "The connection was lost before the server said whether it took the message."
            raise OutcomeUnknown(NO_ANSWER, message) from None
        except aiosmtplib.SMTPResponseException:
            self._drop(line)
            message = "The server's answer to the message cannot be understood."
            raise OutcomeUnknown(BAD_ANSWER, message) from None
        finally:
            reply.cancel()
        if not (positive(answer) or negative(answer)):
            self._drop(line)
            message = f"The server answered the message with {answer.code}, which is neither yes nor no."
            raise OutcomeUnknown(BAD_ANSWER, message)
        return answer

    async def _write(
        self, line: _Line, text: bytes, reply: asyncio.Task[aiosmtplib.SMTPResponse]
    ) -> aiosmtplib.SMTPResponse | None:
        """Hand everything to the connection, the dot last and only to a server that still listens.

        A refusal that came before the dot is returned. Every other trouble before it raises :class:`TryLater`.
        """
        lost = None
        try:
            async with asyncio.timeout(self._step):
                line.protocol.write(text)
                # aiosmtplib has no public way to wait for its buffer; asyncio's own streams use this one too.
                await line.protocol._drain_helper()  # noqa: SLF001
            if not reply.done():
                line.protocol.write(_DOT)
                return None
        except TimeoutError:
            lost = TryLater(TIMEOUT, "The server stopped reading in the middle of the message.")
        except OSError:  # aiosmtplib's "disconnected" is one
            lost = TryLater(LOST, "The connection was lost in the middle of the message.")
        if reply.done() and reply.exception() is None and negative(reply.result()):
            return reply.result()
        self._drop(line)
        raise lost or TryLater(LOST, "The server broke off in the middle of the message.")

    async def _say(self, line: _Line, *words: bytes) -> aiosmtplib.SMTPResponse:
        """One command before the message, and its answer. Every failure is safe to try again; the line is dropped."""
        try:
            return await line.client.execute_command(*words)
        except aiosmtplib.SMTPTimeoutError:
            failure = TryLater(TIMEOUT, f"The server did not answer {words[0].decode()} in time.")
        except OSError:
            failure = TryLater(LOST, f"The connection was lost at {words[0].decode()}.")
        except aiosmtplib.SMTPResponseException:
            failure = TryLater(BAD_ANSWER, f"The server's answer to {words[0].decode()} cannot be understood.")
        except BaseException:
            self._drop(line)
            raise
        self._drop(line)
        raise failure

    async def _abandon(self, line: _Line) -> None:
        """Make the server forget the envelope, so that the line can be used again; or drop the line."""
        with suppress(TryLater):
            if line.alive and positive(await self._say(line, b"RSET")):
                return
        self._drop(line)


def _on_the_wire(raw: bytes) -> bytes:
    """Lines that end as SMTP wants, also the last one, and none that could be taken for the dot."""
    text = _LINE_END.sub(b"\r\n", raw)
    return _DOT_AT_LINE_START.sub(b"..", text if text.endswith(b"\r\n") else text + b"\r\n")


async def _say_goodbye(line: _Line) -> None:
    """QUIT, as good manners want. Nothing depends on it."""
    with suppress(aiosmtplib.SMTPException, OSError):
        await line.client.quit(timeout=1)
