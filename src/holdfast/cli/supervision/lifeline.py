"""The child's side: the inherited descriptors, and the ready message."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Final

from holdfast.contracts.errors import ConfigurationError

READY: Final = b"R"


def keep_private(descriptor: int) -> int:
    """The inherited descriptor. Processes that a workload starts no longer inherit it."""
    try:
        os.set_inheritable(descriptor, False)
    except OSError as error:
        message = "--lifeline and --listener are for processes that `--processes` starts."
        raise ConfigurationError(message) from error
    return descriptor


def inherited_listener(descriptor: int) -> socket.socket:
    """The listening socket that the parent opened."""
    return socket.socket(fileno=keep_private(descriptor))


def tell_ready(descriptor: int) -> None:
    """Send the ready message to the parent. A missing parent is no error here: the process notices it elsewhere."""
    with contextlib.suppress(OSError):
        os.write(descriptor, READY)
