"""The child's side: what it inherited, and how it tells that it is ready."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Final

from holdfast.contracts.errors import ConfigurationError

READY: Final = b"R"


def keep_private(descriptor: int) -> int:
    """The inherited descriptor, from here on kept from processes that a workload may start."""
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
    """Tell the parent. One that is gone is no reason to fail: its end is noticed where the process waits."""
    with contextlib.suppress(OSError):
        os.write(descriptor, READY)
