"""The servers of the demo: the real program, and the systems behind it, which fail on request."""

from __future__ import annotations

import contextlib
import hmac
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseServer, StreamRequestHandler, ThreadingTCPServer
from typing import Any, Final, TypeVar

from holdfast.cli.servers import ServerProcess
from holdfast.webhooks import signed_headers, signing_key

PROGRAM: Final = (sys.executable, "-m", "holdfast")
LOG_FILE: Final = "server.log"
_LONGEST_LINE: Final = 65_536
_LONGEST_SILENCE_SECONDS: Final = 60.0

Server = TypeVar("Server", bound=BaseServer)


class Program(ServerProcess):
    """``holdfast up`` in the demo's folder. After ``stop`` none of its processes is left."""

    ready: Mapping[str, Any]  # the program's ready message: its address, and its processes if it has several

    def __init__(self, folder: Path, environ: Mapping[str, str], command: Sequence[str]) -> None:
        super().__init__("The server", command, folder, 0, env=environ)
        self.log_file = folder / LOG_FILE

    def start(self) -> None:
        """Start the program and wait for its ready message."""
        with tempfile.TemporaryFile() as printed:
            self._options["stdout"] = printed
            super().start()

    def answers(self) -> bool:
        """Whether the program has printed its ready message: the only line that it prints."""
        printed = os.pread(self._options["stdout"].fileno(), _LONGEST_LINE, 0)
        self.ready = json.loads(printed) if printed.endswith(b"\n") else {}
        return bool(self.ready)

    @property
    def pids(self) -> Mapping[str, list[int]]:
        """The process ids by duty. A server of one process has none here."""
        found = defaultdict[str, list[int]](list)
        for each in self.ready.get("processes", ()):
            found[each["process"]].append(each["pid"])
        return found

    def run(self, arguments: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        """Run another command of the program, with the server's settings."""
        where = {"cwd": self.folder, "env": self._options["env"], "stdin": subprocess.DEVNULL}
        command = [*PROGRAM, *arguments]
        return subprocess.run(command, **where, capture_output=True, check=False, encoding="utf-8", timeout=seconds)  # noqa: S603 - our own interpreter


@contextlib.contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Serve in the background during the body; yields the server."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    with server:
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


# How the downstream answers an event. SILENT: it reads the request and does not answer, until the client gives up.
WORKING: Final = HTTPStatus.OK
BROKEN: Final = HTTPStatus.SERVICE_UNAVAILABLE
SILENT: Final = None


class Downstream(ThreadingHTTPServer):
    """A real HTTP server. It checks signatures, and gives each event the answers that are planned for its key."""

    daemon_threads = True  # a thread that does not answer must not delay the end of the demo

    def __init__(self, secret: str) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.url = f"http://127.0.0.1:{self.server_port}/events"
        self.signing_key = signing_key(secret)
        # By idempotency key: the next answers, the last of which is repeated; how often the event was sent here; and
        # how often it was answered with success.
        self.answers: dict[str, list[HTTPStatus | None]] = defaultdict(lambda: [WORKING])
        self.seen: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()

    def answer_to(self, key: str) -> HTTPStatus | None:
        """Count a request with this event; returns the planned answer."""
        planned = self.answers[key]
        answer = planned.pop(0) if len(planned) > 1 else planned[0]
        self.seen[key] += 1
        self.taken[key] += answer is WORKING
        return answer


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Downstream

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        key, timestamp = self.headers.get("webhook-id", ""), self.headers.get("webhook-timestamp", "0")
        expected = signed_headers(self.server.signing_key, key, int(timestamp), body)["webhook-signature"]
        signature = self.headers.get("webhook-signature", "")
        genuine = hmac.compare_digest(expected.encode(), signature.encode())
        status = self.server.answer_to(key) if genuine else HTTPStatus.UNAUTHORIZED
        with contextlib.suppress(OSError):  # the client may be gone: the server is killed in one chapter
            if status is SILENT:
                self.close_connection = True
                self.connection.settimeout(_LONGEST_SILENCE_SECONDS)
                self.connection.recv(1, socket.MSG_PEEK)  # returns when the client gives up
            else:
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature of http.server
        """Print nothing: only the narrator uses the terminal."""


class MailServer(ThreadingTCPServer):
    """A small real SMTP server, without TLS and logins. It stores every email that it accepts as a file."""

    daemon_threads = True  # an idle connection must not delay the end of the demo

    def __init__(self, mailbox: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.mailbox = mailbox
        self.numbers = itertools.count(1)
        self.connections: set[socket.socket] = set()
        self.down = False
        # The addresses that it does not know; and by address, how often an email was offered, and the accepted emails.
        self.refused: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.taken: dict[str, list[Path]] = defaultdict(list)

    def break_down(self) -> None:
        """Close all connections, and refuse new ones."""
        self.down = True
        for connection in list(self.connections):
            with contextlib.suppress(OSError):  # the client may have closed it first
                connection.shutdown(socket.SHUT_RDWR)


class _Connection(StreamRequestHandler):
    server: MailServer

    def handle(self) -> None:
        self.server.connections.add(self.connection)  # before the look at ``down``: see break_down()
        with contextlib.suppress(OSError):  # the client may be gone, and break_down() closes connections
            if self.server.down:
                self._say("421 4.3.2 Down for maintenance")
            else:
                self._converse()

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def _converse(self) -> None:
        self._say("220 The mail server of the demo")
        recipients: list[str] = []
        while line := self.rfile.readline(_LONGEST_LINE):
            match line[:4].strip().upper():
                case b"RCPT":
                    address = line.partition(b"<")[2].partition(b">")[0].decode("latin-1")
                    self.server.asked[address] += 1
                    known = address not in self.server.refused
                    recipients += [address] * known
                    self._say("250 2.1.5 OK" if known else "550 5.1.1 No such user here")
                case b"DATA" if recipients:
                    self._say("354 Go ahead")
                    self._take(recipients)
                case b"EHLO" | b"HELO" | b"MAIL" | b"RSET":
                    recipients = []
                    self._say("250 OK")
                case b"NOOP":
                    self._say("250 OK")
                case b"QUIT":
                    self._say("221 2.0.0 Goodbye")
                    return
                case _:
                    self._say("503 5.5.1 Not that, or not now")

    def _take(self, recipients: list[str]) -> None:
        """Store everything up to the line with a single dot. If the connection ends before, there is no email."""
        message = b""
        while (line := self.rfile.readline(_LONGEST_LINE)) != b".\r\n":
            if not line:
                return
            message += line.removeprefix(b".")
        file = self.server.mailbox / f"email-{next(self.server.numbers)}.eml"
        file.parent.mkdir(exist_ok=True, mode=0o700)
        file.write_bytes(message)
        for address in recipients:
            self.server.taken[address].append(file)
        self._say(f"250 2.0.0 OK: queued as {file.stem}")

    def _say(self, answer: str) -> None:
        self.wfile.write(f"{answer}\r\n".encode())
