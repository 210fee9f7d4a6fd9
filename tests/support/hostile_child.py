"""The process that reads a document, in the hands of its document: it tries all that a bad file could want.

This file is the program. ``hostile_child(name, ...)`` is the command that runs the real child with the function of that
name in the place of the reader. ``unconfined=True`` leaves the confinement out, which shows that the tries are real.
``without=[...]`` leaves one of its layers out.
Every try returns something if it got through. What came of all of them is told in one ``stage`` message.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

_PTRACE_SEIZE = 0x4206
_IO_URING_SETUP = 425
_NEW_MOUNTS = 0x20000
_PR_GET_DUMPABLE = 3


def hostile_child(name: str, *, unconfined: bool = False, **facts: Any) -> list[str]:
    """The command of the real child, taken over."""
    return [sys.executable, __file__, name, json.dumps({"unconfined": unconfined, **facts})]


MARK = b"%hostile "


def hostile_pdf(pdf: bytes, **facts: Any) -> bytes:
    """A PDF that takes over the process that reads it, where :func:`let_documents_take_over` is in force."""
    return pdf + b"\n" + MARK + json.dumps(facts).encode() + b"\n"


def let_documents_take_over() -> None:
    """In the child of a gateway, by its ``sitecustomize``: as if the reader had a fault that a file makes use of.

    What came of the tries is the text of the document's one page.
    """
    if "holdfast.features.documents.child" not in sys.orig_argv:
        return
    from holdfast.features.documents.child import work
    from holdfast.features.documents.child.protocol import Page, Plan, Unit

    honest = work._read

    def read(spec, send, ask):
        _, mark, facts = Path(spec.path).read_bytes().rpartition(MARK)
        if not mark:
            honest(spec, send, ask)
            return
        send(Plan(units=1, unit="page", engine="local", model="none"))
        page = Page(number=1, text=json.dumps(Tries(json.loads(facts)).all()), source="text_layer")
        send(Unit(index=0, result=asdict(page)))

    work._read = read


# --- the tries --------------------------------------------------------------------------------------------------------


class Tries:
    """``facts`` are what the attacker is lucky enough to know: paths, ports, and numbers of processes."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.parent = os.getppid()
        self.data = Path(facts["data"])
        self.sibling: int = facts["sibling"]
        self._libc = ctypes.CDLL(None, use_errno=True)

    def all(self) -> dict[str, str]:
        """Each try and what came of it: "got through", or why not."""
        names = [name for name in vars(Tries) if not name.startswith("_") and name != "all"]
        return {name: self._outcome(getattr(self, name)) for name in names}

    def _outcome(self, attempt: Callable[[], object]) -> str:
        try:
            return "got through" if attempt() else "nothing"
        except (OSError, ValueError, MemoryError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}"

    def _call(self, function: str, *arguments: Any) -> bool:
        if getattr(self._libc, function)(*arguments) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return True

    # Secrets of the worker.

    def read_the_environment_of_the_worker(self) -> object:
        return Path(f"/proc/{self.parent}/environ").read_bytes()

    def read_its_own_environment(self) -> object:
        return "hunter2" in str(dict(os.environ)) or b"hunter2" in Path("/proc/self/environ").read_bytes()

    def read_the_memory_of_the_worker(self) -> object:
        with Path(f"/proc/{self.parent}/mem").open("rb"):
            return True

    def see_the_files_of_the_worker(self) -> object:
        return list(Path(f"/proc/{self.parent}/fd").iterdir())

    def go_through_the_folder_of_the_worker(self) -> object:
        return Path(f"/proc/{self.parent}/root{self.data}/holdfast.toml").read_bytes()

    # Files.

    def read_the_database(self) -> object:
        return (self.data / "holdfast.db").read_bytes()

    def read_a_key(self) -> object:
        return (self.data / "key").read_bytes()

    def read_the_settings(self) -> object:
        return (self.data / "holdfast.toml").read_bytes()

    def read_a_key_of_the_user(self) -> object:
        return (self.data / ".ssh" / "id_ed25519").read_bytes()

    def read_the_document_of_another(self) -> object:
        return (self.data / "documents" / "other.pdf").read_bytes()

    def list_the_data(self) -> object:
        return list(self.data.iterdir())

    def read_the_users_of_the_system(self) -> object:
        return Path("/etc/passwd").read_bytes()

    def follow_a_link_of_its_own(self) -> object:
        (self.data / "documents" / "link").symlink_to(self.data / "key")
        return (self.data / "documents" / "link").read_bytes()

    def write_beside_its_document(self) -> object:
        return (self.data / "documents" / "new").write_bytes(b"x")

    def write_its_document(self) -> object:
        return (self.data / "documents" / "own.pdf").write_bytes(b"x")

    def write_to_the_folder_for_all(self) -> object:
        name = Path(self.facts["temporary"], f"hostile-{os.getpid()}")
        return name.write_bytes(b"x")

    def write_to_shared_memory(self) -> object:
        name = Path(f"/dev/shm/hostile-{os.getpid()}")  # noqa: S108 - a try
        try:
            return name.write_bytes(b"x")
        finally:
            name.unlink(missing_ok=True)

    def fill_memory_by_a_file_without_a_name(self) -> object:
        with os.fdopen(os.memfd_create("full"), "wb") as file:
            return file.write(b"x" * mmap.PAGESIZE) and file.flush() is None

    def cut_the_database(self) -> object:
        os.truncate(self.data / "holdfast.db", 0)
        return True

    def open_a_file_to_all(self) -> object:
        (self.data / "key").chmod(0o666)
        return True

    def give_a_file_away(self) -> object:
        os.chown(self.data / "key", os.getuid(), os.getgid())
        return True

    def change_the_time_of_a_file(self) -> object:
        os.utime(self.data / "key", (1, 1))
        return True

    def mark_a_file(self) -> object:
        os.setxattr(self.data / "key", "user.mark", b"x")
        return True

    def make_a_folder(self) -> object:
        (self.data / "folder").mkdir()
        return True

    def link_a_file(self) -> object:
        (self.data / "hard").hardlink_to(self.data / "key")
        return True

    def rename_a_file(self) -> object:
        (self.data / "rename").rename(self.data / "renamed")
        return True

    def remove_a_file(self) -> object:
        (self.data / "remove").unlink()
        return True

    # The network.

    def connect_by_tcp(self) -> object:
        return socket.create_connection(("127.0.0.1", self.facts["tcp"]), timeout=5)

    def send_by_udp(self) -> object:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            return sender.sendto(b"hostile", ("127.0.0.1", self.facts["udp"]))

    def connect_to_a_unix_socket(self) -> object:
        with socket.socket(socket.AF_UNIX) as sender:
            return sender.connect(self.facts["unix"]) is None

    def connect_to_an_abstract_socket(self) -> object:
        with socket.socket(socket.AF_UNIX) as sender:
            return sender.connect("\0" + self.facts["abstract"]) is None

    def listen_by_tcp(self) -> object:
        return socket.create_server(("127.0.0.1", 0))

    def resolve_a_name(self) -> object:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            return sender.connect(("127.0.0.1", 53)) is None

    def ask_the_kernel_for_the_network(self) -> object:
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)

    def use_a_ring_of_calls(self) -> object:
        return self._call("syscall", _IO_URING_SETUP, 1, ctypes.create_string_buffer(120))

    # Other processes.

    def stop_the_worker(self) -> object:
        os.kill(self.parent, 0)
        return True

    def stop_another_child(self) -> object:
        os.kill(self.sibling, 0)
        return True

    def stop_everybody(self) -> object:
        os.kill(-1, 0)
        return True

    def stop_the_worker_by_a_handle(self) -> object:
        signal.pidfd_send_signal(os.pidfd_open(self.parent), 0)
        return True

    def stop_the_worker_by_a_file(self) -> object:
        reader, _ = os.pipe()
        fcntl.fcntl(reader, fcntl.F_SETOWN, self.parent)
        return True

    def trace_the_worker(self) -> object:
        return self._call("ptrace", _PTRACE_SEIZE, self.parent, None, None)

    def trace_another_child(self) -> object:
        return self._call("ptrace", _PTRACE_SEIZE, self.sibling, None, None)

    def copy_memory_of_another_child(self) -> object:
        here, nowhere = ctypes.create_string_buffer(8), 1
        ours = struct.pack("@PN", ctypes.addressof(here), 8)
        theirs = struct.pack("@PN", nowhere, 8)
        try:
            return self._call("process_vm_readv", self.sibling, ours, 1, theirs, 1, 0)
        except OSError as error:
            # The right was there, and nothing at this address.
            return error.errno == errno.EFAULT

    def starve_the_worker_of_files(self) -> object:
        return resource.prlimit(self.parent, resource.RLIMIT_NOFILE)

    def slow_the_worker(self) -> object:
        os.setpriority(os.PRIO_PROCESS, self.parent, os.getpriority(os.PRIO_PROCESS, self.parent))
        return True

    def bind_the_worker_to_a_processor(self) -> object:
        os.sched_setaffinity(self.parent, os.sched_getaffinity(self.parent))
        return True

    def fork(self) -> object:
        if not (pid := os.fork()):
            os._exit(0)
        return os.waitpid(pid, 0)

    def run_a_program(self) -> object:
        return subprocess.run(["/bin/true"], check=True)

    # More rights than before.

    def gain_privileges(self) -> object:
        # With this flag no program gives more rights than its caller has. Capability 2 is to read files.
        status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return status["NoNewPrivs"] == "0" or int(status["CapEff"], 16) & ~(1 << 2)

    def make_a_mount_namespace(self) -> object:
        return self._call("unshare", _NEW_MOUNTS)

    def raise_its_limits(self) -> object:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most + 1 if most < 20_000 else most))
        return True

    def write_a_core_file(self) -> object:
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        return most != 0 or self._libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)

    def use_processors_for_ever(self) -> object:
        return resource.getrlimit(resource.RLIMIT_CPU)[1] == resource.RLIM_INFINITY


# --- the programs -----------------------------------------------------------------------------------------------------


def try_everything(facts: dict[str, Any], say: Callable[[object], None]) -> None:
    say(Tries(facts).all())


def start_threads(facts: dict[str, Any], say: Callable[[object], None]) -> None:
    """Bounded: there are never more than ``facts["threads"]``."""
    threading.stack_size(32_768)
    never = threading.Event()
    try:
        for _ in range(facts["threads"]):
            threading.Thread(target=never.wait, daemon=True).start()
    except RuntimeError:
        say("no more threads")
    never.wait(60)


def fill_the_disk(facts: dict[str, Any], say: Callable[[object], None]) -> None:
    """Bounded: a megabyte is all that is tried."""
    try:
        say(Path(facts["file"]).write_bytes(b"x" * 1_000_000))
    except OSError as error:
        say(errno.errorcode[error.errno])


def refuse(**_: object) -> None:
    raise OSError(errno.ENOSYS, "a kernel without it")


def main() -> None:
    from holdfast.features.documents.child import __main__ as child
    from holdfast.features.documents.child import confinement, landlock, seccomp, work
    from holdfast.features.documents.child.protocol import Stage

    name, facts = sys.argv[1], json.loads(sys.argv[2])

    def read(spec, send, ask):
        globals()[name](facts, lambda what: send(Stage(stage=json.dumps(what))))

    work._read = read
    if "landlock" in facts.get("without", ()):
        landlock.version = lambda: 0
    if "seccomp" in facts.get("without", ()):
        seccomp.install = refuse
    if "network_namespace" in facts.get("without", ()):
        confinement._left_the_network = lambda: False
    if facts["unconfined"]:
        child.confine = lambda readable: None
    if facts["unconfined"] and not facts.get("limited"):
        child.limit_resources = lambda *limits: None
    child.main()


if __name__ == "__main__":
    main()
