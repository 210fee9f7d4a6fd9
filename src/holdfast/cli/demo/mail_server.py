"""The mail server of the demo: it takes what Holdfast sends, keeps it as files, and misbehaves on request.

A real SMTP server on the loopback interface, as small as one can be: no TLS and no logins.
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
    """Takes every email into ``mailbox``, but for addresses that it refuses, and while it is down."""

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
        """Serve in the background while the body runs; gives the port."""
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
        """From now on there is nobody of this address."""
        with self._lock:
            self._refused.add(address)

    def break_down(self) -> None:
        """Hang up on everybody, and turn away whoever calls."""
        with self._lock:
            self._down = True
            for line in self._lines:
                with contextlib.suppress(OSError):  # the other side may have hung up first
                    line.shutdown(socket.SHUT_RDWR)

    def recover(self) -> None:
        """Be there again."""
        with self._lock:
            self._down = False

    def asked(self, address: str) -> int:
        """How often an email for this address was offered."""
        with self._lock:
            return self._asked[address]

    def taken(self, address: str) -> Sequence[Path]:
        """The emails for this address that the server said yes to, as files."""
        with self._lock:
            return tuple(self._taken.get(address, ()))

    # --- for the handler of a line ------------------------------------------------------------------------

    def called(self, line: socket.socket) -> bool:
        """Somebody calls; False: turn them away."""
        with self._lock:
            if not self._down:
                self._lines.add(line)
            return not self._down

    def hung_up(self, line: socket.socket) -> None:
        """A line is closed."""
        with self._lock:
            self._lines.discard(line)

    def knows(self, address: str) -> bool:
        """Note that an email is offered for an address; whether the server takes it."""
        with self._lock:
            self._asked[address] += 1
            return address not in self._refused

    def keep(self, recipients: Sequence[str], message: bytes) -> str:
        """Keep an email as a file; gives the file's name."""
        with self._lock:
            self._files += 1
            self._mailbox.mkdir(exist_ok=True, mode=0o700)
            file = self._mailbox / f"email-{self._files}.eml"
            file.write_bytes(message)
            for address in recipients:
                self._taken.setdefault(address, []).append(file)
            return file.stem


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True  # a line that is open but idle must not hold up the end of the demo

    def __init__(self, mail: MailServer) -> None:
        self.mail = mail
        super().__init__(("127.0.0.1", 0), _Line)


class _Line(socketserver.StreamRequestHandler):
    """One conversation."""

    server: _Server

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the other side may be gone, and we may hang up ourselves
            if self.server.mail.called(self.connection):
                self._converse()
            else:
                self._say(_DOWN)

    def finish(self) -> None:
        self.server.mail.hung_up(self.connection)
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
        """Everything up to the lone dot; None when the line ends before it, because then there is no email."""
        lines = []
        while (line := self.rfile.readline(_LONGEST_LINE)) != b".\r\n":
            if not line:
                return None
            lines.append(line[1:] if line.startswith(b".") else line)
        return b"".join(lines)

    def _say(self, answer: str) -> None:
        self.wfile.write(f"{answer}\r\n".encode())
