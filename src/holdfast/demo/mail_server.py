"""The mail server of the demo: it accepts emails, stores them as files, and fails on request.

It is a small real SMTP server on the loopback interface, without TLS and logins.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_LONGEST_LINE: Final = 65_536
_DOWN: Final = "421 4.3.2 Down for maintenance"
_NO_SUCH_USER: Final = "550 5.1.1 No such user here"


class MailServer:
    """Stores every email in ``mailbox``, except for refused addresses, and except while it is down."""

    def __init__(self, mailbox: Path) -> None:
        self._mailbox = mailbox
        self._down = False
        self._refused: set[str] = set()
        self._asked: Counter[str] = Counter()
        self._taken: dict[str, list[Path]] = {}
        self._files = 0
        self._lines: set[socket.socket] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def listening(self) -> Iterator[int]:
        """Serve in the background during the body; yields the port."""
        server = _Server(self)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def refuse(self, address: str) -> None:
        """Refuse this address from now on."""
        with self._lock:
            self._refused.add(address)

    def break_down(self) -> None:
        """Close all connections, and refuse new ones."""
        with self._lock:
            self._down = True
            for line in self._lines:
                with contextlib.suppress(OSError):  # the client may have closed it first
                    line.shutdown(socket.SHUT_RDWR)

    def recover(self) -> None:
        """Accept connections again."""
        with self._lock:
            self._down = False

    def asked(self, address: str) -> int:
        """How often an email for this address was offered."""
        with self._lock:
            return self._asked[address]

    def taken(self, address: str) -> Sequence[Path]:
        """The accepted emails for this address, as files."""
        with self._lock:
            return tuple(self._taken.get(address, ()))

    # --- for the handler of a connection ------------------------------------------------------------------

    def connected(self, line: socket.socket) -> bool:
        """Register a new connection; False: refuse it."""
        with self._lock:
            if not self._down:
                self._lines.add(line)
            return not self._down

    def disconnected(self, line: socket.socket) -> None:
        """Forget a closed connection."""
        with self._lock:
            self._lines.discard(line)

    def knows(self, address: str) -> bool:
        """Count an email that is offered for an address. Returns whether the server accepts the address."""
        with self._lock:
            self._asked[address] += 1
            return address not in self._refused

    def keep(self, recipients: Sequence[str], message: bytes) -> str:
        """Store an email as a file; returns the file's name."""
        with self._lock:
            self._files += 1
            self._mailbox.mkdir(exist_ok=True, mode=0o700)
            file = self._mailbox / f"email-{self._files}.eml"
            file.write_bytes(message)
            for address in recipients:
                self._taken.setdefault(address, []).append(file)
            return file.stem


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True  # an idle connection must not delay the end of the demo

    def __init__(self, mail: MailServer) -> None:
        self.mail = mail
        super().__init__(("127.0.0.1", 0), _Line)


class _Line(socketserver.StreamRequestHandler):
    """One SMTP connection."""

    server: _Server

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the client may be gone, and break_down() closes connections
            if self.server.mail.connected(self.connection):
                self._converse()
            else:
                self._say(_DOWN)

    def finish(self) -> None:
        self.server.mail.disconnected(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def _converse(self) -> None:
        self._say("220 The mail server of the demo")
        recipients: list[str] = []
        while line := self.rfile.readline(_LONGEST_LINE):
            match line[:4].strip().upper():
                case b"RCPT":
                    self._recipient(line, recipients)
                case b"DATA" if recipients:
                    self._say("354 Go ahead")
                    message = self._message()
                    if message is None:
                        return
                    self._say(f"250 2.0.0 OK: queued as {self.server.mail.keep(recipients, message)}")
                case b"QUIT":
                    self._say("221 2.0.0 Goodbye")
                    return
                case b"EHLO" | b"HELO" | b"NOOP":
                    self._say("250 OK")
                case b"MAIL" | b"RSET":
                    recipients.clear()
                    self._say("250 2.0.0 OK")
                case _:
                    self._say("503 5.5.1 Not that, or not now")

    def _recipient(self, line: bytes, recipients: list[str]) -> None:
        address = line.partition(b"<")[2].partition(b">")[0].decode("latin-1")
        if self.server.mail.knows(address):
            recipients.append(address)
            self._say("250 2.1.5 OK")
        else:
            self._say(_NO_SUCH_USER)

    def _message(self) -> bytes | None:
        """Everything up to the line with a single dot; None if the connection ends before: then there is no email."""
        lines = []
        while (line := self.rfile.readline(_LONGEST_LINE)) != b".\r\n":
            if not line:
                return None
            lines.append(line[1:] if line.startswith(b".") else line)
        return b"".join(lines)

    def _say(self, answer: str) -> None:
        self.wfile.write(f"{answer}\r\n".encode())
