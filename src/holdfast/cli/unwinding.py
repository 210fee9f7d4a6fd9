"""Signals as exceptions, for programs that must stop what they started on their way out."""

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
    """Let SIGTERM and SIGHUP end the body as an exception would, with the exit code that a shell gives to them."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(_ENDED_BY_SIGNAL + number)

    # What is ignored stays ignored: that is what nohup is for.
    wanted = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """Let signals take effect after the body: one that came while a process is being started would orphan it."""
    came: list[tuple[int, FrameType | None]] = []
    before: dict[int, Any] = {}
    # Only the main thread hears signals, or may say what becomes of them.
    wanted = _ENDS if threading.current_thread() is threading.main_thread() else ()
    try:
        for number in wanted:
            if callable(signal.getsignal(number)):
                before[number] = signal.signal(number, lambda *signalled: came.append(signalled))
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    for signalled in came:
        before[signalled[0]](*signalled)
