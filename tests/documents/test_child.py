"""The child process itself: what it is given, what becomes of its surprises, and that it never outlives its worker."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.features.documents.child import landlock, work
from holdfast.features.documents.child.confinement import Confinement, _installed_in, confine, hide_secrets
from holdfast.features.documents.child.port import files_of
from holdfast.features.documents.child.protocol import Failed, Finished, Plan, Spec, Stage, Unit, spec_line
from holdfast.features.documents.failures import Code, DocumentFailure
from holdfast.features.documents.running import ChildOptions, read_in_child
from tests.support.child_stand_ins import heard
from tests.support.pages import scanned_pdf
from tests.support.recordings import kennedy, wav
from tests.support.waiting import eventually

MEGABYTE = 1024 * 1024
SPEC = Spec(path="a.pdf", job_type="OCR", input_type="PDF")


def child_that(does: str) -> list[str]:
    """The command of the real child, with something else to do than to read a document."""
    program = f"""
import json, os, sys
from holdfast.features.documents.child import work
from holdfast.features.documents.child.__main__ import main
from holdfast.features.documents.child.protocol import Stage

def read(spec, tell, ask):
    def say(**facts):
        tell(Stage(stage=json.dumps({{"pid": os.getpid(), **facts}})))
{os.linesep.join("    " + line for line in does.strip().splitlines())}

work._read = read
main()
"""
    return [sys.executable, "-c", program]


async def kept(spec=SPEC, command=None, memory=None, **environment) -> list:
    said = []

    async def listen(message):
        said.append(message)

    long = timedelta(seconds=100)
    options = ChildOptions(memory=memory, unit_timeout=long, total_timeout=long, environment=environment)
    await read_in_child(spec, options, listen, command)
    return said


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_the_child_is_limited_stands_back_and_keeps_its_output_to_itself():
    does = """
import resource, signal
print("a library that prints", flush=True)
os.write(1, b"a native library that prints")
say(
    data=resource.getrlimit(resource.RLIMIT_DATA), core=resource.getrlimit(resource.RLIMIT_CORE),
    files=resource.getrlimit(resource.RLIMIT_NOFILE), processor=resource.getrlimit(resource.RLIMIT_CPU),
    written=resource.getrlimit(resource.RLIMIT_FSIZE), nice=os.getpriority(os.PRIO_PROCESS, 0),
    threads=os.environ["OMP_NUM_THREADS"], interrupts=signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
    input=os.read(0, 10).decode(), inheritable=[fd for fd in range(3, 20) if _inheritable(fd)],
)
"""
    does = (
        "def _inheritable(fd):\n"
        "    try:\n"
        "        return os.get_inheritable(fd)\n"
        "    except OSError:\n"
        "        return False\n"
    ) + does
    (about,) = await kept(Spec(path="a", job_type="OCR", input_type="PDF", threads=3), child_that(does), 900 * MEGABYTE)
    facts = heard(about)
    assert facts["data"] == [900 * MEGABYTE] * 2
    assert facts["core"] == facts["written"] == [0, 0]
    assert facts["files"] == [256, 256]
    assert facts["processor"] == [400, 400], "100 s, for three threads and the one that waits for them"
    assert facts["nice"] == os.nice(0) + 5
    assert facts["threads"] == "3"
    assert facts["interrupts"]
    assert not facts["input"]
    assert facts["inheritable"] == []


def test_of_a_folder_of_code_only_the_packages_can_be_read(tmp_path):
    (tmp_path / "holdfast-data").mkdir()
    (tmp_path / "package").mkdir()
    for name in ("package/__init__.py", "module.py", "native.so", "holdfast.toml", "holdfast-data/holdfast.db"):
        (tmp_path / name).touch()
    found = set(_installed_in(str(tmp_path)))
    assert found == {str(tmp_path / name) for name in ("package", "module.py", "native.so")}
    (tmp_path / "installed-1.0.dist-info").mkdir()
    assert list(_installed_in(str(tmp_path))) == [str(tmp_path)], "pip installs here"
    assert list(_installed_in(str(tmp_path / "missing"))) == []


def test_the_files_of_a_model_are_read_wherever_they_are(tmp_path):
    (tmp_path / "blob").touch()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.bin").symlink_to(tmp_path / "blob")
    spec = replace(SPEC, options={"model_dir": str(tmp_path / "model")})
    assert files_of(spec) == ["a.pdf", str(tmp_path / "model"), str(tmp_path / "model" / "model.bin")]
    assert files_of(SPEC) == ["a.pdf"]


def test_a_system_that_is_not_linux_confines_nothing_and_goes_on(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(landlock, "version", pytest.fail)
    assert confine(["a.pdf"]) == Confinement()
    hide_secrets()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux chooses by this")
async def test_the_kernel_takes_the_child_before_the_worker():
    (about,) = await kept(command=child_that('say(score=open("/proc/self/oom_score_adj").read().strip())'))
    assert heard(about)["score"] == "800"


@pytest.mark.parametrize(
    ("does", "code", "detail"),
    [
        ("bytearray(1 << 30)", Code.OUT_OF_MEMORY, "MemoryError at __main__:"),
        (
            "import ctypes\nctypes.string_at(0)",
            Code.CHILD_CRASHED,
            "signal 11 (SIGSEGV)\nFatal Python error: Segmentation fault\n__init__.py:",
        ),
        ("sys.exit(4)", Code.CHILD_CRASHED, "exit code 4"),
        ("raise ValueError('the diagnosis')", Code.UNEXPECTED, "ValueError at __main__:"),
    ],
)
async def test_what_goes_wrong_in_the_child_is_told_by_its_name(does, code, detail):
    with pytest.raises(DocumentFailure) as raised:
        await kept(command=child_that(does), memory=500 * MEGABYTE)
    assert raised.value.code is code
    assert raised.value.detail.startswith(detail)
    assert "diagnosis" not in f"{raised.value.message} {raised.value.detail}"


def raised_from(cause: Exception) -> DocumentFailure:
    failure = DocumentFailure(Code.MODEL_FILES_DAMAGED)
    failure.__context__ = cause
    failure.__suppress_context__ = True
    return failure


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (MemoryError(), Code.OUT_OF_MEMORY, None),
        (RuntimeError("[ONNXRuntimeError] : 6 : Status Message: std::bad_alloc"), Code.OUT_OF_MEMORY, None),
        (OSError(errno.ENOMEM, "no"), Code.OUT_OF_MEMORY, None),
        (OSError(errno.EIO, "no", "out of memory.pdf"), Code.UNEXPECTED, None),
        (raised_from(RuntimeError("mkl_malloc: failed to allocate memory")), Code.OUT_OF_MEMORY, None),
        (raised_from(RuntimeError("bad magic")), Code.MODEL_FILES_DAMAGED, "The model's files are missing or damaged"),
        (
            ModuleNotFoundError("No module named 'pypdfium2'", name="pypdfium2"),
            Code.ENGINE_UNAVAILABLE,
            "The engine needs pypdfium2, which is not installed here: pip install 'holdfast-gateway[documents]'",
        ),
        (ModuleNotFoundError("No module", name="holdfast.features.gone"), Code.UNEXPECTED, None),
        (KeyError("the diagnosis"), Code.UNEXPECTED, None),
    ],
)
def test_each_surprise_has_its_code_and_quotes_nothing(monkeypatch, error, code, message):
    def read(spec, tell, ask):
        raise error

    said = []
    monkeypatch.setattr(work, "_read", read)
    work.run(SPEC, said.append, None)
    (failed,) = said
    assert isinstance(failed, Failed)
    assert (failed.code, failed.message) == (code, message)
    assert "diagnosis" not in str(failed)
    if code is Code.UNEXPECTED:
        assert failed.detail.startswith(f"{type(error).__name__} at {__name__}:")


def test_a_failure_keeps_its_words_and_the_wait_that_was_asked_for(monkeypatch):
    def read(spec, tell, ask):
        raise DocumentFailure(Code.MODEL_RATE_LIMIT, "Not now", "429", retry_after=timedelta(seconds=9))

    said = []
    monkeypatch.setattr(work, "_read", read)
    work.run(SPEC, said.append, None)
    assert said == [Failed(code="MODEL_RATE_LIMIT", message="Not now", detail="429", retry_after=9.0)]
    monkeypatch.setattr(work, "_read", lambda spec, tell, ask: tell(Stage(stage="reading")))
    said.clear()
    work.run(SPEC, said.append, None)
    assert said == [Stage(stage="reading"), Finished()]


# --- it does not outlive its worker -----------------------------------------------------------------------------------

BUSY = "say()\nwhile True:\n    pass"


def pid_told(line: bytes) -> int:
    return json.loads(json.loads(line)["stage"])["pid"]


def test_a_worker_that_is_killed_leaves_no_child():
    program = f"""
import asyncio
from datetime import timedelta
from holdfast.features.documents.child.protocol import Spec
from holdfast.features.documents.running import ChildOptions, read_in_child

async def listen(message):
    print(message.stage, flush=True)

long = timedelta(seconds=100)
options = ChildOptions(memory=None, unit_timeout=long, total_timeout=long)
asyncio.run(read_in_child({SPEC!r}, options, listen, {child_that(BUSY)!r}))
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as worker:
        pid = json.loads(worker.stdout.readline())["pid"]
        assert alive(pid)
        worker.kill()
    asyncio.run(eventually(lambda: not alive(pid)))


def test_a_child_whose_orders_end_ends_at_once():
    with subprocess.Popen(child_that(BUSY), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        child.stdin.write(spec_line(SPEC))
        assert pid_told(child.stdout.readline()) == child.pid
        assert child.poll() is None
        child.stdin.close()
        assert child.wait(20) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can end a child with its parent")
def test_a_child_ends_with_its_parent_even_where_its_orders_do_not():
    orders, ours = os.pipe()
    starter = f"import subprocess, sys; subprocess.Popen({child_that(BUSY)!r}).wait()"
    try:
        with subprocess.Popen([sys.executable, "-c", starter], stdin=orders, stdout=subprocess.PIPE) as worker:
            os.write(ours, spec_line(SPEC))
            pid = pid_told(worker.stdout.readline())
            worker.send_signal(signal.SIGKILL)
            worker.wait()
            asyncio.run(eventually(lambda: not alive(pid)))
    finally:
        os.close(orders)
        os.close(ours)


# --- the real libraries under a real cap ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    path = tmp_path_factory.mktemp("scan") / "scan.pdf"
    path.write_bytes(scanned_pdf(["The lamp had burned all night."]))
    return Spec(path=str(path), job_type="OCR", input_type="PDF")


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("recording") / "speech.wav"
    path.write_bytes(wav(kennedy()))
    return Spec(path=str(path), job_type="TRANSCRIPTION", input_type="AUDIO", language="en")


async def test_a_scan_is_read_within_a_gigabyte_and_a_half(scan):
    said = await kept(scan, memory=1536 * MEGABYTE)
    assert [message.units for message in said if isinstance(message, Plan)] == [1]
    (page,) = [message.result for message in said if isinstance(message, Unit)]
    assert page["text"].strip() == "The lamp had burned all night."


async def test_speech_is_heard_within_the_memory_that_is_the_default(recording):
    """What the libraries ask for depends on the processor: from 1.2 GB to 1.6 GB of address space were seen."""
    said = await kept(recording, memory=2048 * MEGABYTE)
    (chunk,) = [message.result for message in said if isinstance(message, Unit)]
    assert "ask not what your country can do for you" in " ".join(each["text"] for each in chunk["segments"]).lower()


@pytest.mark.parametrize("what", ["scan", "recording"])
async def test_the_libraries_that_are_refused_memory_are_out_of_memory(request, what):
    with pytest.raises(DocumentFailure) as raised:
        await kept(request.getfixturevalue(what), memory=500 * MEGABYTE)
    assert raised.value.code is Code.OUT_OF_MEMORY, raised.value.detail


# --- nothing is reported ----------------------------------------------------------------------------------------------


def left_at_home(program: str, home: Path) -> list[str]:
    """The files that a program leaves below its home folder.

    It is not confined, but has no network: what reports by default must not do so because of a test.
    """
    home.mkdir()
    alone = """
from holdfast.features.documents.child.confinement import _left_the_network
if not _left_the_network():
    raise SystemExit(77)
"""
    environment = {"HOME": str(home), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-P", "-c", f"{alone}\n{program}"], env=environment, check=False)
    if done.returncode == 77:
        pytest.skip("this machine lets no process leave the network")
    assert done.returncode == 0
    return [path.name for path in home.rglob("*") if path.is_file()]


PAGES = "from holdfast.features.documents.child.ocr import _loaded; _loaded(1)"
SPEECH = """
from holdfast.features.documents.child import speech
from holdfast.features.documents.child.whisper_files import WhisperFiles
from holdfast.features.documents.failures import DocumentFailure

speech.whisper_files = lambda folder: WhisperFiles("none", "/nonexistent")
try:
    speech.LocalSpeech(None, 1)
except DocumentFailure:
    import onnxruntime
"""


@pytest.fixture(scope="module")
def left_by_default(tmp_path_factory) -> list[str]:
    return left_at_home("import onnxruntime", tmp_path_factory.mktemp("default") / "home")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can keep the network away")
@pytest.mark.parametrize("engine", [PAGES, SPEECH], ids=["pages", "speech"])
def test_an_engine_leaves_no_number_of_this_device_and_reports_to_nobody(tmp_path, engine, left_by_default):
    assert "deviceid" in left_by_default, "onnxruntime does not report any more: nothing needs to be switched off"
    assert left_at_home(engine, tmp_path / "home") == []
