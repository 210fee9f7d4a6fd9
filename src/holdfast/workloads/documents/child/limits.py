"""What the child may have, and when it has to end. Each limit is set where the system knows it, and left out elsewhere.

Imported by both sides: nothing heavy.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_FIRST_TO_GO: Final = "800"
"""Of 1000: when the machine runs out of memory, the kernel ends the child and not the worker."""
_NICE: Final = 5
"""Below the worker, whose heartbeats keep its leases; above nothing, so that an idle machine is used in full."""
_PR_SET_PDEATHSIG: Final = 1

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
"""The words of Python, C++, numpy, MKL, the system, OpenCV, OpenBLAS and onnxruntime."""


def says_no_memory(text: str) -> bool:
    """Whether an error's text says that memory was refused."""
    text = text.lower()
    return any(words in text for words in _NO_MEMORY)


def limit_memory(most: int | None) -> None:
    """Refuse this process more than so many bytes of its own, and keep no image of it when it crashes.

    RLIMIT_DATA and not RLIMIT_AS: onnxruntime maps address space that it never uses, and is refused it at twice the
    memory that it needs. On macOS the system knows the limit and does not hold to it.
    """
    # The image would hold the document.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if most is None:
        return
    _, highest = resource.getrlimit(resource.RLIMIT_DATA)
    if highest != resource.RLIM_INFINITY:
        most = min(most, highest)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def stand_back(threads: int) -> None:
    """Let the worker go first, for the processor and for memory. Libraries imported later use so many threads."""
    for name in _THREADS:
        os.environ[name] = str(threads)
    with suppress(OSError):  # a sandbox may forbid either; both are manners
        os.nice(_NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)


def end_with_parent() -> None:
    """Have the system kill this process when its parent ends. Only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
