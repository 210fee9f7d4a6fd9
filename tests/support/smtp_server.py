"""A real mail server (aiosmtpd on a socket, in a thread of its own) that does what a test tells it to.

::

    with SmtpServer() as server:
        server.rule("rcpt", "550 5.1.1 No such user", match="ghost@")  # an answer; 421 also hangs up
        server.rule("end", "451 4.3.0 Try again", times=1)             # ... once
        server.rule("end", DROP_TAKEN, match="<1234@")                 # takes the message, then cuts the line
        hanging = server.rule("end", HANG)                             # until hanging.release()

Stages: ``connect``, ``ehlo``, ``auth``, ``mail``, ``rcpt``, ``data`` (before the message), ``end`` (after its dot), and
``rset``, ``noop``, ``quit``. ``match`` is a part of what the stage is about: the user, the sender, the recipient; at
``data`` the recipients; at ``end`` the recipients and the Message-ID, which holds the outboxId. The first rule that
fits decides.

``python -m tests.support.smtp_server --port-file F --log F [--rules JSON]`` serves from a process of its own, which
outlives the workers that a test kills. Each message that it takes is one line of JSON in the log: messageId, sender,
recipients, at (``time.time()``). ``--rules`` is a list of objects with the arguments of ``rule``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import email
import ipaddress
import json
import signal
import ssl
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword, syntax
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HANG = "hang"
HANG_TAKEN = "hang taken"
DROP = "drop"
DROP_TAKEN = "drop taken"

HOST = "127.0.0.1"
_NORMAL_END = "250 2.0.0 OK: queued as {}"


@dataclass(frozen=True)
class Taken:
    """A message that the server took. ``at`` is monotonic time; ``connection`` counts from 1."""

    sender: str
    recipients: tuple[str, ...]
    raw: bytes = field(repr=False)
    message_id: str
    at: float
    connection: int


@dataclass
class Rule:
    """What to do at a stage: an answer, or one of HANG, HANG_TAKEN, DROP, DROP_TAKEN. ``seen``: how often it did."""

    stage: str
    action: str
    match: str = ""
    times: int | None = None
    seen: int = 0
    _released: threading.Event = field(default_factory=threading.Event, repr=False)

    def fits(self, stage: str, subjects: Sequence[str]) -> bool:
        left = self.times is None or self.seen < self.times
        return left and stage == self.stage and (not self.match or any(self.match in text for text in subjects))

    def release(self) -> None:
        """Let go of everything that hangs here, now and later."""
        self._released.set()

    async def until_released(self) -> None:
        while not self._released.is_set():  # noqa: ASYNC110 - it is set from another thread
            await asyncio.sleep(0.002)


class _Session(SMTP):
    """aiosmtpd, with a place to step in at every stage."""

    def __init__(self, owner: SmtpServer, **options: Any) -> None:
        super().__init__(owner, **options)
        self.owner = owner
        self.number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.number == 0:  # STARTTLS makes the connection a second time
            self.owner.connections += 1
            self.number = self.owner.connections
            self.owner.sessions.add(self)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.owner.sessions.discard(self)
        if self.transport is not None:
            super().connection_lost(error)

    async def _handle_client(self) -> None:
        with contextlib.suppress(ConnectionError):
            status = await self.owner.act("connect", [], self)
            if status is None:
                await super()._handle_client()
            else:
                await self.push(status)
                self.hang_up()

    async def push(self, status: Any) -> None:
        await super().push(status)
        if str(status).startswith("421"):
            self.hang_up()

    def hang_up(self) -> None:
        if self.transport is not None:
            self.transport.close()

    @syntax("DATA")
    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802 - aiosmtpd's name
        status = await self.owner.act("data", self.envelope.rcpt_tos, self)
        if status is None:
            await super().smtp_DATA(arg)
        else:
            await self.push(status)


class SmtpServer:
    """The server. Everything that it counts may be read from the test's thread.

    ``security`` is none, starttls or tls, with a certificate of its own that ``ca_file`` vouches for. With ``users``
    (name to password) mail needs a login.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        security: str = "none",
        users: dict[str, str] | None = None,
        log: Path | None = None,
        host_name: str = "localhost",
    ) -> None:
        self.host = HOST
        self.port = port
        self.taken: list[Taken] = []
        self.connections = 0
        self.dialogue: list[tuple[int, str]] = []
        self.sessions: set[_Session] = set()
        self.rules: list[Rule] = []
        self._security = security
        self._users = users
        self._log = log
        self._host_name = host_name
        self._folder = tempfile.TemporaryDirectory(prefix="smtp-")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="smtp-server", daemon=True)
        self._server: asyncio.Server | None = None
        self._context: ssl.SSLContext | None = None

    @property
    def ca_file(self) -> Path:
        return Path(self._folder.name) / "certificate.pem"

    @property
    def open_connections(self) -> int:
        return len(self.sessions)

    def rule(self, stage: str, action: str, match: str = "", times: int | None = None) -> Rule:
        rule = Rule(stage, action, match, times)
        self.rules.append(rule)
        return rule

    def commands(self, connection: int | None = None) -> list[str]:
        """The first words of what clients said, in order."""
        return [word for number, word in self.dialogue if connection in {None, number}]

    def cut_all(self) -> None:
        """Close every connection, without a word."""

        async def cut() -> None:
            for session in list(self.sessions):
                session.transport.abort()

        asyncio.run_coroutine_threadsafe(cut(), self._loop).result(10)

    def __enter__(self) -> Self:
        if self._security != "none":
            self._context = _own_certificate(Path(self._folder.name), self._host_name)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self._folder.cleanup()

    async def _start(self) -> None:
        tls = self._context if self._security == "tls" else None
        self._server = await self._loop.create_server(self._session, HOST, self.port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for session in list(self.sessions):
            session.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._server.wait_closed()

    def _session(self) -> _Session:
        return _Session(
            self,
            loop=self._loop,
            hostname="mail.test",
            tls_context=self._context if self._security == "starttls" else None,
            require_starttls=self._security == "starttls",
            authenticator=self._authenticate if self._users is not None else None,
            auth_require_tls=self._users is None,
            data_size_limit=8 * 1024 * 1024,
        )

    # --- what happens at each stage; aiosmtpd calls handle_<COMMAND> --------------------------------------------------

    async def act(self, stage: str, subjects: Sequence[str], session: _Session) -> str | None:
        """The answer that a rule gives; None: go on as usual. Taking the message is the caller's business."""
        self.dialogue.append((session.number, stage.upper()))
        rule = next((rule for rule in self.rules if rule.fits(stage, subjects)), None)
        if rule is None:
            return None
        rule.seen += 1
        match rule.action:
            case "hang" | "hang taken":
                if rule.action == HANG_TAKEN:
                    self._take(session)
                await rule.until_released()
                return _NORMAL_END.format("released") if rule.action == HANG_TAKEN else None
            case "drop" | "drop taken":
                if rule.action == DROP_TAKEN:
                    self._take(session)
                session.transport.abort()
                await asyncio.Event().wait()  # losing the connection cancels us
        return rule.action

    async def handle_EHLO(self, server, session, envelope, hostname, responses):  # noqa: N802
        status = await self.act("ehlo", [hostname], server)
        session.host_name = hostname
        return responses if status is None else [status]

    async def handle_MAIL(self, server, session, envelope, address, options):  # noqa: N802
        status = await self.act("mail", [address], server)
        if self._users is not None and not session.authenticated:
            status = status or "530 5.7.0 Authentication required"
        if status is None:
            envelope.mail_from = address
        return status or "250 2.1.0 OK"

    async def handle_RCPT(self, server, session, envelope, address, options):  # noqa: N802
        status = await self.act("rcpt", [address], server)
        if status is None:
            envelope.rcpt_tos.append(address)
        return status or "250 2.1.5 OK"

    async def handle_RSET(self, server, session, envelope):  # noqa: N802
        return await self.act("rset", [], server) or "250 2.0.0 OK"

    async def handle_NOOP(self, server, session, envelope, argument):  # noqa: N802
        return await self.act("noop", [], server) or "250 2.0.0 OK"

    async def handle_QUIT(self, server, session, envelope):  # noqa: N802
        return await self.act("quit", [], server) or "221 2.0.0 Bye"

    async def handle_DATA(self, server, session, envelope):  # noqa: N802
        status = await self.act("end", [*envelope.rcpt_tos, _message_id(envelope.content)], server)
        if status is not None:
            return status
        self._take(server)
        return _NORMAL_END.format(f"Q{len(self.taken):06d}")

    def _authenticate(self, server, session, envelope, mechanism, login) -> AuthResult:
        assert isinstance(login, LoginPassword)
        name = login.login.decode()
        rule = next((rule for rule in self.rules if rule.fits("auth", [name])), None)
        if rule is not None:
            rule.seen += 1
            return AuthResult(success=False, handled=False, message=rule.action)
        return AuthResult(success=self._users.get(name) == login.password.decode(), handled=False)

    def _take(self, session: _Session) -> None:
        envelope = session.envelope
        recipients, message_id = tuple(envelope.rcpt_tos), _message_id(envelope.content)
        self.taken.append(
            Taken(envelope.mail_from, recipients, envelope.content, message_id, time.monotonic(), session.number)
        )
        if self._log is not None:
            line = {"messageId": message_id, "sender": envelope.mail_from, "recipients": recipients, "at": time.time()}
            with self._log.open("a") as log:
                log.write(json.dumps(line) + "\n")


def taken_in(log: Path) -> list[dict[str, Any]]:
    """What the server of another process took."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def _message_id(raw: bytes) -> str:
    return str(email.message_from_bytes(raw).get("Message-ID", "")).strip()


def _own_certificate(folder: Path, host_name: str) -> ssl.SSLContext:
    """A server's context with a certificate for this machine, which is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host_name)])
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName(host_name)]
    if host_name == "localhost":
        names.append(x509.IPAddress(ipaddress.ip_address(HOST)))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.smtp_server")
    parser.add_argument("--port-file", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rules", type=json.loads, default=[])
    arguments = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with SmtpServer(port=arguments.port, log=arguments.log) as server:
        for rule in arguments.rules:
            server.rule(**rule)
        # Whole or not at all: a test waits for this file.
        unfinished = arguments.port_file.with_suffix(".tmp")
        unfinished.write_text(str(server.port))
        unfinished.replace(arguments.port_file)
        stop.wait()


if __name__ == "__main__":
    main()
