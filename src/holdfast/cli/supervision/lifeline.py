"""The child's side: the inherited descriptors, and the ready message."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
from typing import Final

from holdfast.contracts.errors import ConfigurationError

READY: Final = b"R"
_PR_SET_PDEATHSIG: Final = 1
_PARENT_GONE: Final = 1


def keep_private(descriptor: int) -> int:
    """The inherited descriptor. Processes that a workload starts no longer inherit it."""
    try:
        os.set_inheritable(descriptor, False)
    except OSError as error:
        message = "--lifeline and --listener are for processes that `--processes` starts."
        raise ConfigurationError(message) from error
    return descriptor


def end_with_parent(descriptor: int) -> None:
    """Let the kernel send SIGTERM to this process when its parent ends. End now if the parent has ended already.

    The lifeline alone is not enough: nobody looks at it while the process starts. SIGTERM ends a starting process at
    once, and a running process in order (I17).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    # The parent may have ended before that call. Its process id does not tell: in a container, it may be 1 all along.
    looking = select.poll()
    looking.register(descriptor, select.POLLIN)
    if looking.poll(0):  # the parent writes nothing: the lifeline is closed
        raise SystemExit(_PARENT_GONE)


def inherited_listener(descriptor: int) -> socket.socket:
    """The listening socket that the parent opened."""
    return socket.socket(fileno=keep_private(descriptor))


def tell_ready(descriptor: int) -> None:
    """Send the ready message to the parent. A missing parent is no error here: the process notices it elsewhere."""
    with contextlib.suppress(OSError):
        os.write(descriptor, READY)
