"""Progress streams (server-sent events): a name and one JSON object each."""

from __future__ import annotations

import json
from typing import Final

from .errors import HoldfastClientError, Unreachable
from .exchange import Exchange
from .steps import Answer, Document, Emit, Items, NoAnswer, ReadLine, Request

_END: Final = "end"
_SILENCE: Final = 60.0
"""A stream that is alive has a line in this time, in seconds: the API sends a comment when nothing happens."""


def events(exchange: Exchange, path: str, *, until: float = float("inf")) -> Items[Document]:
    """The status at once, after each change, and at the end. A stream that breaks off is opened again.

    Raises ``TimeoutError`` at ``until``, and the error of the last try when the stream cannot be opened any more.
    """
    request = Request(method="GET", path=path, headers={"accept": "text/event-stream"}, patience=_SILENCE)
    tries = exchange.tries(request, until)
    last: Document | None = None
    while True:
        opening = exchange.opening(request, until)
        yield opening
        error = exchange.error_of(opening.reply)
        if error is None and isinstance(opening.reply, Answer):
            name = ""
            while True:
                line = ReadLine()
                yield line
                if line.reply is None or isinstance(line.reply, NoAnswer):
                    error = _broken(exchange, line.reply)
                    break
                if exchange.now >= until:
                    break
                name, document = _read(name, line.reply)
                if document is None:
                    continue
                tries.restart()
                if document != last:
                    yield Emit(document)
                    last = document
                if name == _END:
                    return
        if exchange.now >= until:
            message = "The time is over, and the work has not ended."
            raise TimeoutError(message) from error
        yield from tries.after(error)


def _broken(exchange: Exchange, reply: NoAnswer | None) -> HoldfastClientError:
    cause = "the stream broke off" if reply is None else reply.cause
    return Unreachable(exchange.address, cause, arrived=True)


def _read(name: str, line: str) -> tuple[str, Document | None]:
    """The name of the event so far, and its JSON if this line has it."""
    member, _, value = line.partition(":")
    if member == "event":
        return value.strip(), None
    if member != "data":
        return name, None
    try:
        document = json.loads(value)
    except ValueError:
        return name, None
    return name, document if isinstance(document, dict) else None
