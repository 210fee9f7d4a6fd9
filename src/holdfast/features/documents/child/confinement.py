"""What a child process gives up before it sees a document: a document that takes over the child gets nothing.

Each step is one that the kernel may not have, or that a container may forbid. A missing step is left out: the others
still hold, and ``holdfast doctor`` warns. Only Linux has any of them.

``python -m holdfast.features.documents.child.confinement`` confines itself, and prints which steps this machine has.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from . import landlock, seccomp
from .landlock import LIST, READ, WRITE
from .limits import PR_SET_DUMPABLE, call, prctl

MOST_THREADS: Final = 1_000
"""Of one child. With 64 threads for each library, the engines have fewer than half of that."""

_NEW_USER: Final = 0x10000000
_NEW_NETWORK: Final = 0x40000000
_READ_ALL_FILES: Final = 1 << 2
"""CAP_DAC_READ_SEARCH. A worker that runs as root may be given a file of another user."""
_CAPABILITY_VERSION: Final = 0x20080522
_CAPABILITY_BYTES: Final = 24
_COUNTS_BY_NAMESPACE: Final = 2
"""Kernels with this version of Landlock count the processes of each user namespace by themselves."""

_SYSTEM: Final = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/usr/share/fonts",
    "/usr/local/share/fonts",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu",
)
"""What libraries read: other libraries, fonts for PDFs without their own, times, and facts about the processor."""
_FOR_THE_NETWORK: Final = (
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_NAME_SERVICE: Final = 53


@dataclass(frozen=True, slots=True)
class Confinement:
    """The steps that were taken. ``landlock`` is its version."""

    landlock: int = 0
    seccomp: bool = False
    network_namespace: bool = False


def confine(readable: Sequence[str], port: int | None = None) -> Confinement:
    """Give up everything but the libraries, the ``readable`` files, and connections to ``port``, if there is one.

    Must be called before the first thread is started: threads that exist already are not confined.
    """
    if sys.platform != "linux":
        return Confinement()
    alone = port is None and _left_the_network()
    version = landlock.version()
    places = [*_SYSTEM, *_libraries(), *readable, *(() if port is None else _for_the_network())]
    rules = [(path, READ) for path in places] + [(path, READ | WRITE) for path in _DEVICES]
    rules += [(folder, LIST) for folder in sys.path]
    ports = () if port is None else (port, _NAME_SERVICE)
    if version and not _is_done(landlock.restrict, rules, ports):
        version = 0
    _is_done(_drop_capabilities)
    # Neither another child nor a core file sees the memory of this process.
    _is_done(prctl, PR_SET_DUMPABLE, 0)
    return Confinement(version, _is_done(_refuse_calls, port), alone)


def hide_secrets() -> None:
    """Let no process of the same user read the memory and the environment of this one. It leaves no core file."""
    if sys.platform == "linux":
        _is_done(prctl, PR_SET_DUMPABLE, 0)


def _is_done(step: Callable[..., object], *arguments: object) -> bool:
    try:
        step(*arguments)
    except OSError:
        return False
    return True


def _refuse_calls(port: int | None) -> None:
    seccomp.install(sockets=port is not None)


def _left_the_network() -> bool:
    """Whether this process is now in a network of its own, without any way out."""
    as_user = os.geteuid() != 0
    # Only root may do this at once. A user may do it as the root of a new user namespace.
    if not _is_done(call, "unshare", _NEW_NETWORK | (_NEW_USER if as_user else 0)):
        return False
    if as_user and landlock.version() >= _COUNTS_BY_NAMESPACE:
        # Elsewhere this limit counts all processes of the user, and the child would fail when others have many.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NPROC, (MOST_THREADS, MOST_THREADS))
    return True


def _drop_capabilities() -> None:
    """Keep at most the right to read files."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    had = ctypes.create_string_buffer(_CAPABILITY_BYTES)
    call("capget", header, had)
    _, permitted, *_ = struct.unpack("=6I", had.raw)
    kept = permitted & _READ_ALL_FILES
    call("capset", header, struct.pack("=6I", kept, kept, 0, 0, 0, 0))


def _libraries() -> Iterator[str]:
    """Where Python, Holdfast and the engines are installed."""
    for prefix in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix):
        yield f"{prefix}/lib"
        yield f"{prefix}/lib64"
    paths = sysconfig.get_paths()
    yield from (paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    yield str(Path(__file__).parents[3])
    # A relative path there is one from the worker's folder, which may be the data folder.
    yield from (path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path.startswith("/"))
    for folder in filter(None, sys.path):
        yield from _installed_in(folder)


def _installed_in(folder: str) -> Iterator[str]:
    """The folder, if pip installs into it, and otherwise its packages.

    Beside the packages in a folder of PYTHONPATH may be anything, for example the data of Holdfast.
    """
    try:
        paths = list(Path(folder).iterdir())
    except OSError:
        return
    if any(path.suffix == ".dist-info" for path in paths):
        yield folder
        return
    for path in paths:
        if path.suffix in {".py", ".so"} or os.access(path / "__init__.py", os.R_OK):
            yield str(path)


def _for_the_network() -> Iterator[str]:
    yield from _FOR_THE_NETWORK
    yield from (os.environ[name] for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if name in os.environ)


if __name__ == "__main__":
    print(json.dumps(asdict(confine([]))))  # noqa: T201 - the answer for holdfast doctor
