"""Signals as exceptions, for programs that must stop their child processes before they end."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

_ENDED_BY_SIGNAL: Final = 128
_ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def signals_unwind() -> Iterator[None]:
    """SIGTERM and SIGHUP end the body like an exception, with the exit code that a shell uses for the signal."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(_ENDED_BY_SIGNAL + number)

    # An ignored signal stays ignored: nohup needs that.
    wanted = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """Delay signals until after the body: a signal during the start of a process would leave that process behind."""
    delayed: list[tuple[int, FrameType | None]] = []
    before: dict[int, Any] = {}
    # Only the main thread gets signals and may set handlers.
    wanted = _ENDS if threading.current_thread() is threading.main_thread() else ()
    try:
        for number in wanted:
            if callable(signal.getsignal(number)):
                before[number] = signal.signal(number, lambda *signalled: delayed.append(signalled))
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    for signalled in delayed:
        before[signalled[0]](*signalled)
