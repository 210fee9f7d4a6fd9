"""The limits of the child, its end, and the functions of the C library that Python does not have.

A limit that the operating system does not support is left out. Only Linux has all of the functions. Worker and child
import this module, so it imports nothing heavy.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_SET_SECCOMP: Final = 22
PR_SET_NO_NEW_PRIVS: Final = 38


def call(function: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Call a function that returns a negative number for an error. Raises OSError then."""
    result = int(getattr(_library(), function)(*map(_as_c, arguments)))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def prctl(option: int, *arguments: int | bytes) -> None:
    """Change something about this process. Raises OSError."""
    # The kernel refuses some options if an argument that they do not use is not 0.
    call("prctl", option, *arguments, *(0,) * (4 - len(arguments)))


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _as_c(argument: object) -> object:
    # By default a number is passed with 32 bits, and the kernel reads 64.
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_NO_REPORTS: Final = {"ORT_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
_OOM_SCORE: Final = "800"
"""Of 1000: when the machine runs out of memory, the kernel kills the child and not the worker."""
_NICE: Final = 5
"""Lower priority than the worker, whose heartbeats keep its leases. An idle machine is still used in full."""
_MOST_FILES: Final = 256
"""Open at a time. The engines have fewer than 50."""

_NO_MEMORY: Final = (
    "memoryerror",
    "bad_alloc",
    "failed to allocate",
    "unable to allocate",
    "cannot allocate memory",
    "insufficient memory",
    "memory allocation",
    "out of memory",
)
"""Phrases in the messages of Python, C++, numpy, MKL, the system, OpenCV, OpenBLAS and onnxruntime."""


def is_out_of_memory(text: str) -> bool:
    """Whether an error's text means that memory was refused."""
    text = text.lower()
    return any(phrase in text for phrase in _NO_MEMORY)


def limit_resources(memory: int | None, processor_seconds: int | None) -> None:
    """Limit this process to ``memory`` bytes of its own, and to ``processor_seconds``. None: no limit.

    It writes no file: RLIMIT_FSIZE is 0. Nor does it write a core dump, which would hold the document.

    RLIMIT_DATA and not RLIMIT_AS: onnxruntime maps address space that it never uses, and RLIMIT_AS refuses that even at
    twice the memory that it needs. macOS has the limit but does not enforce it.
    """
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _MOST_FILES),
        (resource.RLIMIT_CPU, processor_seconds),
        (resource.RLIMIT_DATA, memory),
    ):
        if most is not None:
            _, highest = resource.getrlimit(what)
            limit = most if highest == resource.RLIM_INFINITY else min(most, highest)
            with suppress(OSError, ValueError):
                resource.setrlimit(what, (limit, limit))


def lower_priority(threads: int) -> None:
    """Give the worker priority for processor and memory. Libraries imported later use ``threads`` threads."""
    for name in _THREADS:
        os.environ[name] = str(threads)
    with suppress(OSError):  # a sandbox may forbid this and the next step; the work does not need them
        os.nice(_NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)


def forbid_reports() -> None:
    """Have libraries report to nobody. Must be called before they are imported.

    onnxruntime would write a number for this device below the home folder, and report to Microsoft. faster-whisper
    would ask its hub for models.
    """
    os.environ.update(_NO_REPORTS)


def end_with_parent() -> None:
    """Have the system kill this process when its parent ends. Only Linux supports this."""
    if sys.platform == "linux":
        with suppress(OSError):
            prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
