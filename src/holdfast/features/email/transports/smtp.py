"""Mail by SMTP, over connections that are kept for the next message.

aiosmtplib makes the connection, TLS and the login. The commands of a message are written here, because one byte
decides: before the dot that ends the message, the server cannot have accepted the message. After the dot, only the
server's answer shows whether it has.
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

from holdfast import ConfigurationError

from .port import (
    ANSWER_TIMEOUT,
    Accepted,
    OutcomeUnknown,
    OutgoingMessage,
    Refused,
    TransportError,
    TryLater,
)
from .smtp_answers import (
    BAD_ADDRESS,
    BAD_ANSWER,
    LOST,
    NO_ANSWER,
    TIMEOUT,
    connection_error,
    id_in,
    negative,
    positive,
    refusal_of,
    transient,
)

Security = Literal["none", "starttls", "tls"]

_GO_AHEAD: Final = 354
_CLOSING: Final = 421
_DOT: Final = b".\r\n"
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_DOT_AT_LINE_START: Final = re.compile(rb"(?m)^\.")
# Without the characters that could end the command or the brackets around the address.
_ADDRESS: Final = re.compile(r"[!-;=?-~][!-;=?A-~]*+@[!-;=?-~]+")
_HOST: Final = re.compile(r"[A-Za-z0-9.:_\[\]-]+")


@dataclass(frozen=True, slots=True)
class SmtpOptions:
    """The server and the connections to it.

    ``timeout`` limits each step. ``final_timeout`` limits the wait for the answer to a whole message. It is longer:
    after this timeout, it is not known whether the message was sent. ``connections`` is the largest number of
    connections. An idle connection is used again for as long as ``keep``.
    """

    host: str
    port: int
    security: Security = "starttls"
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    local_hostname: str | None = None
    timeout: timedelta = ANSWER_TIMEOUT
    final_timeout: timedelta = ANSWER_TIMEOUT * 2
    connections: int = 10
    keep: timedelta = timedelta(minutes=1)

    def __post_init__(self) -> None:
        names = (self.host, self.local_hostname or "localhost")
        if not all(_HOST.fullmatch(name) for name in names) or self.connections < 1:
            message = (
                "SMTP needs a valid host name, a valid local host name if one is given, and at least one connection."
            )
            raise ConfigurationError(message)


class _Connection:
    """One open connection, logged in if a login is configured."""

    def __init__(self, client: aiosmtplib.SMTP) -> None:
        self.client = client
        self.protocol = cast("SMTPProtocol", client.protocol)
        self.idle_since = 0.0
        # The client drops its transport when it closes. The connection must be aborted even then.
        self._transport = cast("asyncio.WriteTransport", client.transport)

    @property
    def alive(self) -> bool:
        """Whether the connection is open, as far as is known."""
        return self.client.is_connected

    def abort(self) -> None:
        """Close at once. Data that is not yet written is dropped."""
        self._transport.abort()
        self.client.close()


class SmtpTransport:
    """Sends each message over one of at most ``connections`` connections, which are opened when needed.

    A connection that was lost while idle is replaced before the message begins. This costs no attempt.
    """

    name = "smtp"

    def __init__(self, options: SmtpOptions) -> None:
        self._options = options
        self._step = options.timeout.total_seconds()
        self._slots = asyncio.Semaphore(options.connections)
        self._connections: set[_Connection] = set()
        self._idle: list[_Connection] = []
        self._tls: ssl.SSLContext | None = None

    async def open(self) -> None:
        """Read the certificates. Raises :class:`ConfigurationError` for a file without certificates."""
        if self._options.security == "none":
            return
        try:
            self._tls = await asyncio.to_thread(ssl.create_default_context, cafile=self._options.ca_file)
        except OSError:
            message = "The CA file for the SMTP server cannot be read, or holds no certificate."
            raise ConfigurationError(message) from None

    async def close(self) -> None:
        """Send QUIT on idle connections, and close all connections."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(_quit(connection) for connection in idle))
        for connection in list(self._connections):
            self._drop(connection)

    async def send(self, outgoing: OutgoingMessage) -> Accepted:
        """Send one message. A refused recipient does not stop the message, unless it is the first recipient."""
        if not all(_ADDRESS.fullmatch(address) for address in (outgoing.sender, *outgoing.recipients)):
            message = "An address of the envelope cannot be written in SMTP."
            raise Refused(BAD_ADDRESS, message)
        async with self._slots:
            connection = await self._begin(outgoing)
            try:
                accepted = await self._finish(connection, outgoing)
            except TransportError:
                self._keep(connection)
                raise
            except BaseException:
                # Cancelled in the middle: the state of the connection is unknown.
                self._drop(connection)
                raise
            self._keep(connection)
            return accepted

    async def check(self) -> None:
        """Connect, log in, disconnect."""
        connection = await self._connect()
        try:
            await self._command(connection, b"NOOP")
            await _quit(connection)
        finally:
            self._drop(connection)

    # --- connections --------------------------------------------------------------------------------------------------

    async def _begin(self, outgoing: OutgoingMessage) -> _Connection:
        """A connection on which the server has accepted MAIL FROM."""
        kept = self._take_idle()
        if kept is not None:
            try:
                return await self._mail_from(kept, outgoing)
            except TryLater:
                # If the connection is still open, the server refused. Otherwise the connection was lost: try a new one.
                if kept in self._connections:
                    raise
        return await self._mail_from(await self._connect(), outgoing)

    def _take_idle(self) -> _Connection | None:
        """The connection that was used last, so that a single sender needs only one connection."""
        oldest = asyncio.get_running_loop().time() - self._options.keep.total_seconds()
        while self._idle:
            connection = self._idle.pop()
            if connection.alive and connection.idle_since > oldest:
                return connection
            self._drop(connection)
        return None

    def _keep(self, connection: _Connection) -> None:
        if connection in self._connections and connection.alive:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        connection.abort()

    async def _connect(self) -> _Connection:
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
        connection = _Connection(client)
        self._connections.add(connection)
        return connection

    # --- the dialogue -------------------------------------------------------------------------------------------------

    async def _mail_from(self, connection: _Connection, outgoing: OutgoingMessage) -> _Connection:
        words = [b"MAIL", f"FROM:<{outgoing.sender}>".encode()]
        if connection.client.supports_extension("size"):
            words.append(b"SIZE=%d" % len(outgoing.raw))
        if not outgoing.raw.isascii() and connection.client.supports_extension("8bitmime"):
            words.append(b"BODY=8BITMIME")
        reply = await self._command(connection, *words)
        if not positive(reply):
            self._keep(connection)
            raise refusal_of(reply, outgoing)
        return connection

    async def _finish(self, connection: _Connection, outgoing: OutgoingMessage) -> Accepted:
        """Send recipients and message. After a :class:`TransportError` the connection is ready for use, or dropped."""
        refused = await self._recipients(connection, outgoing)
        reply = await self._command(connection, b"DATA")
        if reply.code != _GO_AHEAD:
            await self._abandon(connection)
            raise refusal_of(reply, outgoing)
        reply = await self._message(connection, outgoing)
        if positive(reply):
            return Accepted(id_in(reply.message, outgoing) or outgoing.message_id, refused)
        raise refusal_of(reply, outgoing)

    async def _recipients(self, connection: _Connection, outgoing: OutgoingMessage) -> tuple[str, ...]:
        """Send the recipients. Returns the refused recipients. Raises if the message must not be sent at all."""
        refusals: dict[str, aiosmtplib.SMTPResponse] = {}
        for address in outgoing.recipients:
            reply = await self._command(connection, b"RCPT", f"TO:<{address}>".encode())
            if positive(reply):
                continue
            if reply.code == _CLOSING:
                raise refusal_of(reply, outgoing)
            refusals[address] = reply
        first = refusals.get(outgoing.recipients[0])
        if first is not None:
            if len(refusals) == len(set(outgoing.recipients)):
                # All recipients are refused. If one refusal is temporary, the message is tried again later.
                first = next((reply for reply in refusals.values() if transient(reply)), first)
            await self._abandon(connection)
            raise refusal_of(first, outgoing)
        return tuple(refusals)

    async def _message(self, connection: _Connection, outgoing: OutgoingMessage) -> aiosmtplib.SMTPResponse:
        """Write the message, then the dot, and wait for the answer."""
        text = _on_the_wire(outgoing.raw)
        # Read while we write: a server may refuse and disconnect in the middle of a message.
        reply = asyncio.create_task(connection.protocol.read_response())
        try:
            # aiosmtplib drops an answer that comes before the read starts. On uvloop, a quick answer can.
            await asyncio.sleep(0)
            early = await self._write(connection, text, reply)
            if early is not None:
                self._drop(connection)
                return early
            # From here on the server may accept the message.
            async with asyncio.timeout(self._options.final_timeout.total_seconds()):
                answer = await reply
        except TimeoutError:
            self._drop(connection)
            message = "The server did not say whether it took the message."
            raise OutcomeUnknown(NO_ANSWER, message) from None
        except (aiosmtplib.SMTPServerDisconnected, OSError):
            self._drop(connection)
            message = "The connection was lost before the server said whether it took the message."
            raise OutcomeUnknown(NO_ANSWER, message) from None
        except aiosmtplib.SMTPResponseException:
            self._drop(connection)
            message = "The server's answer to the message cannot be understood."
            raise OutcomeUnknown(BAD_ANSWER, message) from None
        finally:
            reply.cancel()
        if not (positive(answer) or negative(answer)):
            self._drop(connection)
            message = f"The server answered the message with {answer.code}, which is neither yes nor no."
            raise OutcomeUnknown(BAD_ANSWER, message)
        return answer

    async def _write(
        self, connection: _Connection, text: bytes, reply: asyncio.Task[aiosmtplib.SMTPResponse]
    ) -> aiosmtplib.SMTPResponse | None:
        """Write the message, then the dot. The dot is written only if the server has not answered yet.

        A refusal before the dot is returned. Every other failure before the dot raises :class:`TryLater`.
        """
        lost = None
        try:
            async with asyncio.timeout(self._step):
                connection.protocol.write(text)
                # aiosmtplib has no public way to wait for its buffer; asyncio's own streams use this one too.
                await connection.protocol._drain_helper()  # noqa: SLF001
            if not reply.done():
                connection.protocol.write(_DOT)
                return None
        except TimeoutError:
            lost = TryLater(TIMEOUT, "The server stopped reading in the middle of the message.")
        except OSError:  # SMTPServerDisconnected is an OSError
            lost = TryLater(LOST, "The connection was lost in the middle of the message.")
        if reply.done() and reply.exception() is None and negative(reply.result()):
            return reply.result()
        self._drop(connection)
        raise lost or TryLater(LOST, "The server broke off in the middle of the message.")

    async def _command(self, connection: _Connection, *words: bytes) -> aiosmtplib.SMTPResponse:
        """Send one command before the message; returns its answer. A failure drops the connection; a retry is safe."""
        try:
            return await connection.client.execute_command(*words)
        except aiosmtplib.SMTPTimeoutError:
            failure = TryLater(TIMEOUT, f"The server did not answer {words[0].decode()} in time.")
        except OSError:
            failure = TryLater(LOST, f"The connection was lost at {words[0].decode()}.")
        except aiosmtplib.SMTPResponseException:
            failure = TryLater(BAD_ANSWER, f"The server's answer to {words[0].decode()} cannot be understood.")
        except BaseException:
            self._drop(connection)
            raise
        self._drop(connection)
        raise failure

    async def _abandon(self, connection: _Connection) -> None:
        """Reset the envelope, so that the connection can be used again; otherwise drop the connection."""
        with suppress(TryLater):
            if connection.alive and positive(await self._command(connection, b"RSET")):
                return
        self._drop(connection)


def _on_the_wire(raw: bytes) -> bytes:
    """The message with CRLF line ends, also after the last line. A dot at the start of a line is doubled."""
    text = _LINE_END.sub(b"\r\n", raw)
    return _DOT_AT_LINE_START.sub(b"..", text if text.endswith(b"\r\n") else text + b"\r\n")


async def _quit(connection: _Connection) -> None:
    """Send QUIT. A failure does not matter."""
    with suppress(aiosmtplib.SMTPException, OSError):
        await connection.client.quit(timeout=1)
