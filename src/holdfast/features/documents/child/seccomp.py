"""seccomp: a Linux process that gives up calls to the kernel. Nothing can take this back.

The calls that reading a document never needs are refused with EPERM: sockets, other programs, other processes, and
changes to files that Landlock does not cover (modes, owners, times). A list of the calls that are *needed* would be
shorter, but it differs between versions of the C library and of the engines, and a call that is missing breaks a job.
Calls that are newer than this list do not exist (ENOSYS): libraries then use the older ones.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .limits import PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, prctl

_FILTER: Final = 2

# Instructions of the classic BPF, and the places of what they load: struct seccomp_data.
_LOAD: Final = 0x20
_IF_EQUAL: Final = 0x15
_IF_GREATER: Final = 0x25
_IF_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_AT_NUMBER: Final = 0
_AT_ARCHITECTURE: Final = 4
_AT_ARGUMENTS: Final = 16

_ALLOWED: Final = 0x7FFF0000
_REFUSED: Final = 0x00050000 | errno.EPERM
_MISSING: Final = 0x00050000 | errno.ENOSYS

_LAST_KNOWN: Final = 450
_CLONE3: Final = 435
"""Its flags are in memory that a filter cannot read. The C library uses clone instead."""
_OF_A_THREAD: Final = 0x10000
"""The flag CLONE_THREAD."""

_NEWER: Final = {
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_open": 434,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "process_mrelease": 448,
}
"""Since 2019 a call has the same number on all processors."""
_SOCKETS: Final = frozenset({"socket", "socketpair"})

_X86: Final = {
    "shmget": 29,
    "shmat": 30,
    "shmctl": 31,
    "socket": 41,
    "socketpair": 53,
    "fork": 57,
    "vfork": 58,
    "execve": 59,
    "semget": 64,
    "semop": 65,
    "semctl": 66,
    "msgget": 68,
    "msgsnd": 69,
    "msgrcv": 70,
    "msgctl": 71,
    "truncate": 76,
    "chmod": 90,
    "fchmod": 91,
    "chown": 92,
    "fchown": 93,
    "lchown": 94,
    "ptrace": 101,
    "syslog": 103,
    "rt_sigqueueinfo": 129,
    "utime": 132,
    "mknod": 133,
    "personality": 135,
    "setpriority": 141,
    "modify_ldt": 154,
    "pivot_root": 155,
    "adjtimex": 159,
    "chroot": 161,
    "acct": 163,
    "settimeofday": 164,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "sethostname": 170,
    "setdomainname": 171,
    "iopl": 172,
    "ioperm": 173,
    "init_module": 175,
    "delete_module": 176,
    "quotactl": 179,
    "setxattr": 188,
    "lsetxattr": 189,
    "fsetxattr": 190,
    "removexattr": 197,
    "lremovexattr": 198,
    "fremovexattr": 199,
    "tkill": 200,
    "lookup_dcookie": 212,
    "semtimedop": 220,
    "clock_settime": 227,
    "utimes": 235,
    "mq_open": 240,
    "mq_unlink": 241,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "ioprio_set": 251,
    "migrate_pages": 256,
    "mknodat": 259,
    "fchownat": 260,
    "futimesat": 261,
    "fchmodat": 268,
    "unshare": 272,
    "move_pages": 279,
    "utimensat": 280,
    "rt_tgsigqueueinfo": 297,
    "perf_event_open": 298,
    "fanotify_init": 300,
    "name_to_handle_at": 303,
    "open_by_handle_at": 304,
    "clock_adjtime": 305,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "finit_module": 313,
    "kexec_file_load": 320,
    "bpf": 321,
    "execveat": 322,
    "userfaultfd": 323,
}
_ARM: Final = {
    "setxattr": 5,
    "lsetxattr": 6,
    "fsetxattr": 7,
    "removexattr": 14,
    "lremovexattr": 15,
    "fremovexattr": 16,
    "lookup_dcookie": 18,
    "ioprio_set": 30,
    "mknodat": 33,
    "umount2": 39,
    "mount": 40,
    "pivot_root": 41,
    "truncate": 45,
    "chroot": 51,
    "fchmod": 52,
    "fchmodat": 53,
    "fchownat": 54,
    "fchown": 55,
    "quotactl": 60,
    "utimensat": 88,
    "acct": 89,
    "personality": 92,
    "unshare": 97,
    "kexec_load": 104,
    "init_module": 105,
    "delete_module": 106,
    "clock_settime": 112,
    "syslog": 116,
    "ptrace": 117,
    "tkill": 130,
    "rt_sigqueueinfo": 138,
    "setpriority": 140,
    "reboot": 142,
    "sethostname": 161,
    "setdomainname": 162,
    "settimeofday": 170,
    "adjtimex": 171,
    "mq_open": 180,
    "mq_unlink": 181,
    "msgget": 186,
    "msgctl": 187,
    "msgrcv": 188,
    "msgsnd": 189,
    "semget": 190,
    "semctl": 191,
    "semtimedop": 192,
    "semop": 193,
    "shmget": 194,
    "shmctl": 195,
    "shmat": 196,
    "socket": 198,
    "socketpair": 199,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "execve": 221,
    "swapon": 224,
    "swapoff": 225,
    "migrate_pages": 238,
    "move_pages": 239,
    "rt_tgsigqueueinfo": 240,
    "perf_event_open": 241,
    "fanotify_init": 262,
    "name_to_handle_at": 264,
    "open_by_handle_at": 265,
    "clock_adjtime": 266,
    "setns": 268,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "kcmp": 272,
    "finit_module": 273,
    "bpf": 280,
    "execveat": 281,
    "userfaultfd": 282,
    "kexec_file_load": 294,
}


@dataclass(frozen=True, slots=True)
class _Processor:
    """The numbers of one kind of processor. ``refused`` are always refused, the other calls for some arguments.

    ``own`` are the calls that name a process by their first argument: they are left for this process alone.
    """

    architecture: int
    refused: dict[str, int]
    own: tuple[int, ...]
    clone: int
    fcntl: int
    ioctl: int


_OWN_X86: Final = (62, 142, 144, 203, 234, 302, 314)
_OWN_ARM: Final = (129, 118, 119, 122, 131, 261, 274)
"""kill, sched_setparam, sched_setscheduler, sched_setaffinity, tgkill, prlimit64, sched_setattr."""
_SIGNALS_BY_FILE: Final = (8, 10, 15)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX: have a signal sent to another process when a file is ready."""
_KEYS_OF_TERMINALS: Final = (0x5412, 0x541C)
"""TIOCSTI, TIOCLINUX: type into a terminal."""

_PROCESSORS: Final = {
    "x86_64": _Processor(0xC000003E, _X86, _OWN_X86, clone=56, fcntl=72, ioctl=16),
    "aarch64": _Processor(0xC00000B7, _ARM, _OWN_ARM, clone=220, fcntl=25, ioctl=29),
}


def install(*, sockets: bool) -> None:
    """Refuse the calls, in this thread and in those that it starts. ``sockets`` may be kept. Raises OSError.

    On a processor whose calls are not known here, it raises OSError, too.
    """
    processor = _PROCESSORS.get(platform.machine())
    if processor is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    program = b"".join(_program(processor, os.getpid(), sockets=sockets))
    instructions = ctypes.create_string_buffer(program, len(program))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, _FILTER, struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions)))


def _program(processor: _Processor, own: int, *, sockets: bool) -> Iterator[bytes]:
    """Each line decides, or goes on to the next one."""
    yield _step(_LOAD, _AT_ARCHITECTURE)
    # The numbers of another architecture mean other calls.
    yield _step(_IF_EQUAL, processor.architecture, then=1)
    yield _step(_RETURN, _REFUSED)
    yield _step(_LOAD, _AT_NUMBER)
    # This includes the calls of x32, whose numbers begin at 0x40000000.
    yield from _when(_IF_GREATER, _LAST_KNOWN, _MISSING)
    yield from _when(_IF_EQUAL, _CLONE3, _MISSING)
    for name, number in (processor.refused | _NEWER).items():
        if not (sockets and name in _SOCKETS):
            yield from _when(_IF_EQUAL, number, _REFUSED)
    for number in processor.own:
        yield from _by_argument(number, 0, _IF_EQUAL, (0, own), refuse=False)
    yield from _by_argument(processor.clone, 0, _IF_ANY_BIT, (_OF_A_THREAD,), refuse=False)
    yield from _by_argument(processor.fcntl, 1, _IF_EQUAL, _SIGNALS_BY_FILE, refuse=True)
    yield from _by_argument(processor.ioctl, 1, _IF_EQUAL, _KEYS_OF_TERMINALS, refuse=True)
    yield _step(_RETURN, _ALLOWED)


def _when(test: int, number: int, result: int) -> Iterator[bytes]:
    yield _step(test, number, otherwise=1)
    yield _step(_RETURN, result)


def _by_argument(number: int, argument: int, test: int, values: tuple[int, ...], *, refuse: bool) -> Iterator[bytes]:
    """Refuse the call if its argument passes the test with one of the values; or if not, and allow it otherwise."""
    yield _step(_IF_EQUAL, number, otherwise=len(values) + 3)
    yield _step(_LOAD, _AT_ARGUMENTS + 8 * argument)
    for place, value in enumerate(values):
        yield _step(test, value, then=len(values) - place)
    yield _step(_RETURN, _ALLOWED if refuse else _REFUSED)
    yield _step(_RETURN, _REFUSED if refuse else _ALLOWED)


def _step(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    """One instruction. ``then`` and ``otherwise`` are how many instructions a test skips."""
    return struct.pack("=HBBI", code, then, otherwise, value)
