"""Landlock: a Linux process that gives up files, TCP ports, sockets and signals. Nothing can take this back.

Every access that the kernel's version of Landlock knows is forbidden, and then some files are allowed again. Threads
that exist already are not restricted. What Landlock does not cover at all, such as changing the mode of a file, is
forbidden in :mod:`.seccomp`.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from .limits import PR_SET_NO_NEW_PRIVS, call, prctl

_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_ASK_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_NET_PORT: Final = 2

LIST: Final = 1 << 3
"""See the names of what is in a folder, and below."""
READ: Final = 1 << 2 | LIST
WRITE: Final = 1 << 1

_CONNECT: Final = 1 << 1

_FILE_RIGHTS: Final = (13, 14, 15, 15, 16)
"""How many rights to files versions 1 to 5 know. A right that is named to an older version is an error."""
_WITH_PORTS: Final = 4
_WITH_SCOPES: Final = 6
_BOTH: Final = 3
"""Of the rights to ports: bind and connect. Of the scopes: abstract sockets and signals."""


def version() -> int:
    """The version of Landlock that this kernel has; 0: none."""
    try:
        return call("syscall", _CREATE_RULESET, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def restrict(places: Iterable[tuple[str, int]], connect_to: Iterable[int]) -> None:
    """Leave this process only some files and folders, each with its rights, and connections to some ports.

    A file that does not exist is left out. Nothing may be executed: libraries are only read. Raises OSError.
    """
    known = version()
    files = (1 << _FILE_RIGHTS[min(known, len(_FILE_RIGHTS)) - 1]) - 1
    ports = _BOTH if known >= _WITH_PORTS else 0
    scopes = _BOTH if known >= _WITH_SCOPES else 0
    size = 24 if known >= _WITH_SCOPES else 16 if known >= _WITH_PORTS else 8
    rules = call("syscall", _CREATE_RULESET, struct.pack("=QQQ", files, ports, scopes)[:size], size, 0)
    try:
        for path, rights in places:
            with suppress(OSError):
                _allow(rules, path, rights)
        for port in connect_to if ports else ():
            call("syscall", _ADD_RULE, rules, _NET_PORT, struct.pack("=QQ", _CONNECT, port), 0)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        call("syscall", _RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= ~LIST
        call("syscall", _ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)
