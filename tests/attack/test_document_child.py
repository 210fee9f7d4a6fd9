"""A document that takes over the process that reads it gets nothing, and takes nothing from the documents beside it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast.features.documents.child.protocol import Spec, Unit
from holdfast.features.documents.failures import Code, DocumentFailure
from holdfast.features.documents.running import ChildOptions, read_in_child
from tests.support.document_traffic import with_documents
from tests.support.hostile_child import Tries, hostile_child, hostile_pdf
from tests.support.pages import SAMPLES, scanned_pdf, text_pdf
from tests.support.pulse import pulse
from tests.support.recordings import kennedy, wav
from tests.support.running_gateway import running_gateway

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux confines processes in this way")

ROOT = Path(__file__).parents[2]
MEGABYTE = 1024 * 1024
TRIES = [name for name in vars(Tries) if not name.startswith("_") and name != "all"]

BY_LANDLOCK = "landlock"
BY_SECCOMP = "seccomp"
BY_EITHER = "either of the two"
BY_LIMITS = "limits"
"""What keeps a try from getting through."""

KEPT_OUT_BY = {
    **dict.fromkeys(TRIES, BY_LANDLOCK),
    **dict.fromkeys(
        (
            "open_a_file_to_all", "give_a_file_away", "change_the_time_of_a_file", "mark_a_file",
            "send_by_udp", "connect_to_a_unix_socket", "resolve_a_name", "ask_the_kernel_for_the_network",
            "use_a_ring_of_calls", "stop_the_worker_by_a_file", "starve_the_worker_of_files", "slow_the_worker",
            "bind_the_worker_to_a_processor", "fork", "make_a_mount_namespace", "stop_everybody",
        ),
        BY_SECCOMP,
    ),
    **dict.fromkeys(
        (
            "cut_the_database", "connect_by_tcp", "connect_to_an_abstract_socket", "listen_by_tcp", "stop_the_worker",
            "stop_another_child", "stop_the_worker_by_a_handle", "trace_the_worker",
            "trace_another_child", "copy_memory_of_another_child", "run_a_program", "gain_privileges",
        ),
        BY_EITHER,
    ),
    **dict.fromkeys(
        (
            "read_the_environment_of_the_worker", "read_its_own_environment", "read_the_memory_of_the_worker",
            "write_a_core_file", "use_processors_for_ever", "raise_its_limits",
            "fill_memory_by_a_file_without_a_name", "write_to_shared_memory", "write_to_the_folder_for_all",
            "write_beside_its_document",
        ),
        BY_LIMITS,
    ),
}  # fmt: skip

NOT_BY_CONFINEMENT = {"read_its_own_environment"}
"""The worker gives the child its environment."""
WITH_SIGNALS = 6
"""The version of Landlock that knows signals and abstract sockets."""
SYS_PTRACE, SYS_ADMIN = 19, 21
"""Capabilities."""


def options(**changed) -> ChildOptions:
    long = timedelta(seconds=120)
    return ChildOptions(**{"memory": 2048 * MEGABYTE, "unit_timeout": long, "total_timeout": long, **changed})


async def said_by(spec: Spec, command=None) -> list:
    said = []

    async def listen(message):
        said.append(message)

    await read_in_child(spec, options(environment={"GEMINI_API_KEY": "hunter2"}), listen, command)
    return said


class Neighbourhood:
    """All that a taken-over process could want, on this machine: files, servers and other processes."""

    def __init__(self, folder):
        self.data = folder / "holdfast-data"
        (self.data / "documents").mkdir(parents=True)
        (self.data / ".ssh").mkdir()
        self.contents = {
            self.data / name: f"content of {name}".encode()
            for name in (
                "holdfast.db",
                "key",
                "holdfast.toml",
                ".ssh/id_ed25519",
                "documents/own.pdf",
                "documents/other.pdf",
                "rename",
                "remove",
            )
        }
        for path, content in self.contents.items():
            path.write_bytes(content)
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.unix, self.abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self.unix.bind(str(folder / "socket"))
        self.abstract.bind(f"\0hostile-{os.getpid()}-{folder.name}")
        for each in (self.unix, self.abstract):
            each.listen()
        self.sibling = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
        self.facts = {
            "data": str(self.data),
            "temporary": str(folder),
            "sibling": self.sibling.pid,
            "tcp": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "unix": str(folder / "socket"),
            "abstract": self.abstract.getsockname()[1:].decode(),
        }

    @property
    def spec(self) -> Spec:
        return Spec(path=str(self.data / "documents" / "own.pdf"), job_type="OCR", input_type="PDF")

    def is_untouched(self) -> bool:
        found = {path: path.read_bytes() for path in self.data.rglob("*") if path.is_file()}
        return found == self.contents and all((path.stat().st_mode & 0o777) == 0o644 for path in found)

    def close(self) -> None:
        for each in (self.tcp, self.udp, self.unix, self.abstract):
            each.close()
        self.sibling.communicate(b"\n")


@pytest.fixture
def neighbourhood(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_SECRET", "hunter2")
    there = Neighbourhood(tmp_path)
    yield there
    there.close()


@pytest.fixture(scope="module")
def kernel() -> dict:
    """What this machine has. Where a layer is missing, its tries are not checked, and the test says so."""
    probe = [sys.executable, "-m", "holdfast.features.documents.child.confinement"]
    return json.loads(subprocess.run(probe, check=True, capture_output=True).stdout)


def expected(kernel: dict) -> list[str]:
    has = {BY_LANDLOCK: kernel["landlock"] > 0, BY_SECCOMP: kernel["seccomp"], BY_LIMITS: True}
    has[BY_EITHER] = has[BY_SECCOMP] or kernel["landlock"] >= WITH_SIGNALS
    return [name for name in TRIES if has[KEPT_OUT_BY[name]]]


async def test_a_child_that_is_taken_over_gets_nothing_and_its_neighbours_are_read(
    neighbourhood, kernel, tmp_path, tell
):
    scan, sound = tmp_path / "scan.pdf", tmp_path / "speech.wav"
    scan.write_bytes(scanned_pdf(["The lamp had burned all night."]))
    sound.write_bytes(wav(kennedy()))
    hostile, pages, chunks = await asyncio.gather(
        said_by(neighbourhood.spec, hostile_child("try_everything", **neighbourhood.facts)),
        said_by(Spec(path=str(scan), job_type="OCR", input_type="PDF")),
        said_by(Spec(path=str(sound), job_type="TRANSCRIPTION", input_type="AUDIO", language="en")),
    )
    outcomes = json.loads(hostile[0].stage)
    checked = expected(kernel)
    through = [name for name in checked if outcomes[name] == "got through"]
    tell({"tried": len(checked), "got through": len(through), "not checked": len(TRIES) - len(checked), **kernel})
    assert through == [], outcomes
    if kernel["landlock"] and kernel["seccomp"]:
        assert neighbourhood.is_untouched()
    (page,) = [each.result["text"] for each in pages if isinstance(each, Unit)]
    assert page.strip() == "The lamp had burned all night."
    (chunk,) = [each.result for each in chunks if isinstance(each, Unit)]
    assert "your country" in " ".join(each["text"] for each in chunk["segments"])


@pytest.mark.parametrize("layer", ["landlock", "seccomp", "network_namespace"])
async def test_where_a_layer_is_missing_the_others_hold(neighbourhood, kernel, layer, tell):
    command = hostile_child("try_everything", without=[layer], **neighbourhood.facts)
    (told,) = await said_by(neighbourhood.spec, command)
    outcomes = json.loads(told.stage)
    checked = expected({**kernel, layer: 0})
    through = [name for name in checked if outcomes[name] == "got through"]
    tell({"tried": len(checked), "got through": len(through), "without": layer})
    assert through == [], outcomes


def may_do_everything() -> bool:
    status = Path("/proc/self/status").read_text()
    return all(int(re.search(r"CapEff:\t(\w+)", status)[1], 16) >> number & 1 for number in (SYS_PTRACE, SYS_ADMIN))


@pytest.mark.skipif("not may_do_everything()", reason="without these rights some tries fail also unconfined")
async def test_the_tries_are_real(neighbourhood):
    """Without the confinement every try gets through: none is refused for another reason."""
    command = hostile_child("try_everything", unconfined=True, **neighbourhood.facts)
    (told,) = await said_by(neighbourhood.spec, command)
    kept_out = {name: outcome for name, outcome in json.loads(told.stage).items() if outcome != "got through"}
    assert set(kept_out) == NOT_BY_CONFINEMENT, kept_out


async def test_a_gateway_goes_on_while_a_document_has_taken_over_its_child(neighbourhood, kernel, tmp_path, tell):
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "from tests.support.hostile_child import let_documents_take_over\nlet_documents_take_over()\n"
    )
    (tmp_path / "gateway").mkdir()
    settings = {"PYTHONPATH": f"{hook}:{ROOT}", "DOCUMENT_CONCURRENCY": "2"}
    async with running_gateway(tmp_path / "gateway", 1, **settings) as gateway:
        traffic = await with_documents(gateway, None)
        await traffic.start("api", "worker")
        async with pulse(urlsplit(gateway.fleet.addresses[0]).port) as taken:
            bad = await traffic.post(1, hostile_pdf(text_pdf([SAMPLES["en"]]), **neighbourhood.facts))
            good = await traffic.post(1, text_pdf([SAMPLES["pt"]]))
            await traffic.until_status(good, "processed")
            await traffic.until_status(bad, "processed")
        results = traffic.truth().results
        assert traffic.text_of(results[good.job_id]).split() == SAMPLES["pt"].split()
        outcomes = json.loads(traffic.text_of(results[bad.job_id]))
    through = [name for name in expected(kernel) if outcomes[name] == "got through"]
    tell({"tried": len(outcomes), "got through": len(through), "longest wait": f"{taken.longest * 1000:.0f} ms"})
    assert through == [], outcomes


async def test_threads_without_end_end_the_child(neighbourhood):
    command = hostile_child("start_threads", unconfined=True, limited=True, threads=1_500)
    with pytest.raises(DocumentFailure) as raised:
        await said_by(neighbourhood.spec, command)
    assert raised.value.code is Code.CHILD_CRASHED
    assert raised.value.detail == "killed with more than 1000 threads"


async def test_the_limits_alone_let_no_file_grow(neighbourhood, tmp_path):
    """Without Landlock a child may open files, but it cannot fill the disk."""
    command = hostile_child("fill_the_disk", unconfined=True, limited=True, file=str(tmp_path / "full"))
    (told,) = await said_by(neighbourhood.spec, command)
    assert json.loads(told.stage) == "EFBIG"
    assert (tmp_path / "full").stat().st_size == 0
