"""The child process: ``python -m holdfast.features.documents.child``. The worker starts it; see :mod:`.protocol`."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from typing import BinaryIO, NoReturn

from .limits import end_with_parent, limit_memory, lower_priority
from .protocol import Message, encoded, spec_of


def main() -> NoReturn:
    """Make one attempt, send its messages, and end."""
    end_with_parent()
    # Ctrl-C is for the worker, which ends its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A crash in a native library prints the names of functions, without their values.
    faulthandler.enable()
    orders, answers = _pipes()
    line = orders.readline()
    threading.Thread(target=_end_with_worker, args=(orders,), daemon=True).start()
    spec = spec_of(line)
    limit_memory(spec.memory)
    lower_priority(spec.threads)
    from .work import run  # noqa: PLC0415 - after the limits

    run(spec, _sender(answers))
    # At once: the destructors of native libraries do nothing useful, and may crash.
    os._exit(0)


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """The pipes from and to the worker. Only we use them: what a library prints goes to standard error."""
    orders, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    # Unbuffered: the thread that waits for the end must hold no buffer's lock when the interpreter ends.
    return os.fdopen(orders, "rb", buffering=0), os.fdopen(answers, "wb")


def _end_with_worker(orders: BinaryIO) -> None:
    """End this process when the worker closes its side or is gone, even in the middle of the work."""
    while orders.read(4096):
        pass
    os._exit(1)


def _sender(answers: BinaryIO) -> Callable[[Message], None]:
    def send(message: Message) -> None:
        try:
            answers.write(encoded(message))
            answers.flush()
        except BrokenPipeError:
            # The worker is gone.
            os._exit(1)

    return send


if __name__ == "__main__":
    main()
