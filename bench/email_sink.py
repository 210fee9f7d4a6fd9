"""A mail server that takes everything and costs little: ``python -m bench.email_sink``.

It prints its port, and when its standard input ends, one JSON array: for each message the instant at which its dot came
(``time.time()``) and its first recipient, in the order of arrival.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable

import uvloop

_ANSWERS = {
    b"EHLO": b"250-sink\r\n250-8BITMIME\r\n250 SIZE 10485760\r\n",
    b"DATA": b"354 go ahead\r\n",
    b"QUIT": b"221 bye\r\n",
}
_OK = b"250 2.0.0 OK\r\n"
_END = b"\r\n.\r\n"


class Sink(asyncio.Protocol):
    """One connection. A client that sends more than it was asked for (pipelining) is served in order, too."""

    def __init__(self, took: Callable[[float, str], int]) -> None:
        self._took = took
        self._buffer = b""
        self._recipient = ""
        self._in_message = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self._transport = transport
        self._say(b"220 sink\r\n")

    def data_received(self, data: bytes) -> None:
        """Answer whatever is complete."""
        self._buffer += data
        while self._message() if self._in_message else self._command():
            pass

    def _command(self) -> bool:
        line, end, rest = self._buffer.partition(b"\r\n")
        if not end:
            return False
        self._buffer = rest
        verb = line[:4].upper()
        if verb == b"RCPT" and not self._recipient:
            self._recipient = line.partition(b"<")[2].partition(b">")[0].decode()
        self._in_message = verb == b"DATA"
        self._say(_ANSWERS.get(verb, _OK))
        if verb == b"QUIT":
            self._transport.close()
        return True

    def _message(self) -> bool:
        _, end, rest = self._buffer.partition(_END)
        if not end:
            return False
        self._buffer, self._in_message = rest, False
        number = self._took(time.time(), self._recipient)
        self._recipient = ""
        self._say(b"250 2.0.0 OK: queued as S%07d\r\n" % number)
        return True

    def _say(self, answer: bytes) -> None:
        self._transport.write(answer)  # type: ignore[attr-defined]


async def serve() -> list[tuple[float, str]]:
    """Take mail until standard input ends."""
    taken: list[tuple[float, str]] = []

    def took(at: float, recipient: str) -> int:
        taken.append((at, recipient))
        return len(taken)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Sink(took), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Each line that comes in asks how many there are.
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(len(taken), flush=True)
    server.close()
    return taken


def main() -> None:
    """Serve, then tell."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        json.dump(runner.run(serve()), sys.stdout)


if __name__ == "__main__":
    main()
