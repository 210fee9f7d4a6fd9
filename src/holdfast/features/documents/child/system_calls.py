"""Functions of the C library that Python does not have. Only Linux has all of them."""

from __future__ import annotations

import ctypes
import os
from functools import cache
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
