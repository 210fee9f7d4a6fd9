"""The keeper of the child process, on both event loops, with real processes that do all that a child must not do."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import uvloop

from holdfast import Reject
from holdfast.features.documents import child_process
from holdfast.features.documents.child.limits import PR_SET_DUMPABLE
from holdfast.features.documents.child.protocol import Plan, Spec, Stage, Unit
from holdfast.features.documents.failures import Code, DocumentFailure
from holdfast.features.documents.running import ChildOptions, read_in_child
from tests.support.child_stand_ins import heard, stand_in
from tests.support.waiting import eventually

SPEC = Spec(path="a.pdf", job_type="OCR", input_type="PDF")
MEGABYTE = 1024 * 1024
LONG = timedelta(seconds=60)
PR_GET_DUMPABLE = 3


def options(**changed) -> ChildOptions:
    return ChildOptions(**{"memory": None, "unit_timeout": LONG, "total_timeout": LONG, **changed})


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Runs a coroutine on one of the event loops; nothing may be left open, and no process waiting to be reaped."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if request.param == "uvloop" else None) as runner:
        runner.run(asyncio.sleep(0))
        # The first child of a loop makes the loop open what it watches children with.
        runner.run(kept(stand_in("well_behaved")))
        files, processes = open_files(), children()
        yield runner.run
        assert open_files() == files
        assert children() == processes


def children() -> set[str]:
    """The processes that this one has started and not reaped; servers of other tests may be among them."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread may end while we look
            found.update((task / "children").read_text().split())
    return found


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        # A zombie whose new parent has not got round to it is as dead as can be.
        status = Path(f"/proc/{pid}/stat")
        return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def kept(command, on_message=None, **changed) -> list:
    """All that the child said."""
    said = []

    async def listen(message):
        said.append(message)
        if on_message is not None:
            await on_message(message)

    await read_in_child(SPEC, options(**changed), listen, command)
    return said


async def failure_of(command, on_message=None, **changed) -> DocumentFailure:
    with pytest.raises(DocumentFailure) as raised:
        await kept(command, on_message, **changed)
    return raised.value


def test_messages_arrive_in_order_and_the_child_sees_only_what_it_needs(run, monkeypatch):
    monkeypatch.setenv("HOLDFAST_SECRET", "hunter2")
    about, plan, *units = run(
        kept(stand_in("well_behaved"), memory=700 * MEGABYTE, environment={"GEMINI_API_KEY": "k-123"})
    )
    facts = heard(about)
    assert facts["spec"]["path"] == "a.pdf"
    assert facts["spec"]["memory"] == 700 * MEGABYTE
    assert facts["leads"]
    inherited = {"LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "LD_LIBRARY_PATH"}
    assert set(facts["environment"]) - inherited == {"HOME"}
    assert facts["environment"]["HOME"] == "/nonexistent"
    assert plan == Plan(units=2, unit="page", engine="local", model="none")
    assert units == [Unit(index=index, result={"text": f"page {index}"}) for index in range(2)]
    assert not alive(facts["pid"])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
async def test_a_worker_with_a_child_can_be_read_by_no_other_process():
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    await kept(stand_in("well_behaved"))
    assert prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0
    await kept(stand_in("well_behaved"))


def test_options_do_not_show_the_key():
    assert "k-123" not in repr(options(environment={"GEMINI_API_KEY": "k-123"}))


@pytest.mark.parametrize(
    ("line", "code", "message", "detail", "after"),
    [
        ('{"is": "failed", "code": "PDF_ENCRYPTED"}', Code.PDF_ENCRYPTED, "The PDF is encrypted", None, None),
        (
            '{"is": "failed", "code": "MODEL_RATE_LIMIT", "message": "m", "detail": "token=abc", "retry_after": 7.5}',
            Code.MODEL_RATE_LIMIT,
            "m",
            "token=***",
            timedelta(seconds=7.5),
        ),
        (
            '{"is": "failed", "code": "MODEL_RATE_LIMIT", "message": 5, "detail": [], "retry_after": Infinity}',
            Code.MODEL_RATE_LIMIT,
            "The model's rate limit is reached",
            None,
            None,
        ),
        (
            '{"is": "failed", "code": "TIMEOUT", "retry_after": 1e300}',
            Code.TIMEOUT,
            "The work did not finish in time",
            None,
            timedelta(days=1),
        ),
        (
            '{"is": "failed", "code": "NO_SUCH", "detail": "d"}',
            Code.UNEXPECTED,
            "An unexpected error",
            "a code that is not in the table",
            None,
        ),
    ],
)
async def test_what_the_child_says_of_its_failure_is_raised(line, code, message, detail, after):
    failure = await failure_of(stand_in("failing", line))
    assert (failure.code, failure.message, failure.detail, failure.retry_after) == (code, message, detail, after)


@pytest.mark.parametrize(
    ("how", "detail"),
    [
        ("SIGSEGV", "signal 11 (SIGSEGV)"),
        ("SIGABRT", "signal 6 (SIGABRT)"),
        ("SIGKILL", "signal 9 (SIGKILL)"),
        ("3", "exit code 3"),
        ("0", "exit code 0"),
    ],
)
def test_a_crash_is_told_as_one_after_all_that_was_said_before(run, how, detail):
    said = []

    async def listen(message):
        said.append(message)

    failure = run(failure_of(stand_in("crash", how), listen))
    assert (failure.code, failure.detail) == (Code.CHILD_CRASHED, detail)
    assert [message.index for message in said if isinstance(message, Unit)] == [0, 1]


async def test_a_crash_tells_where_it_was_and_nothing_that_was_printed():
    words = (
        "Dear Anna, the diagnosis is\n"
        'Fatal Python error: Segmentation fault\n  File "/somewhere/pdf.py", line 12 in read_pdf\n'
        "ValueError: could not read 'the diagnosis'\n"
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  the diagnosis\n"
    )
    failure = await failure_of(stand_in("crash", "SIGSEGV", words))
    assert failure.code is Code.CHILD_CRASHED
    assert failure.detail.splitlines() == [
        "signal 11 (SIGSEGV)",
        "Fatal Python error: Segmentation fault",
        "pdf.py:12 in read_pdf",
        "ValueError",
        "terminate called after throwing an instance of 'std::runtime_error'",
    ]


@pytest.mark.parametrize("line", ["rubbish", "[]", '{"is": []}', '{"is": "unit"}', "[" * 100_000, "", "\x00\xff"])
async def test_a_line_that_is_no_message_is_a_crash_and_is_not_quoted(line, tmp_path):
    source = tmp_path / "line"
    source.write_text(line)
    program = f"import os; os.write(1, open({str(source)!r}, 'rb').read() + b'\\n'); os.read(0, 9999); os.read(0, 1)"
    failure = await failure_of([stand_in("")[0], "-S", "-c", program])
    assert (failure.code, failure.detail) == (Code.CHILD_CRASHED, "a line that is not a message")
    assert failure.__cause__ is None


async def test_a_line_without_end_is_too_large_and_is_not_tried_again():
    failure = await failure_of(stand_in("endless_line"), longest_message=MEGABYTE)
    assert failure.code is Code.OUTPUT_TOO_LARGE
    assert failure.detail.startswith("one page, or one stretch of sound, gives more than 1048576 bytes")
    assert isinstance(failure.outcome, Reject)


async def test_a_program_that_is_not_there_is_a_crash(run):
    failure = await failure_of(["/nowhere/python"])
    assert (failure.code, failure.detail) == (Code.CHILD_CRASHED, "it cannot be started (ENOENT)")


def test_a_child_that_closes_its_output_and_goes_on_is_ended(run, monkeypatch):
    monkeypatch.setattr(child_process, "_GRACE", 0.1)
    failure = run(failure_of(stand_in("closing")))
    assert (failure.code, failure.detail) == (Code.CHILD_CRASHED, "it closed its output and went on")


@pytest.mark.parametrize(
    ("child", "limits", "detail"),
    [
        ("looping", {"unit_timeout": timedelta(seconds=1)}, "nothing new for 1 s"),
        ("chattering", {"total_timeout": timedelta(seconds=1)}, "not done after 1 s"),
    ],
)
def test_an_endless_loop_and_endless_work_are_ended(run, child, limits, detail):
    pids = []

    async def listen(message):
        if not pids:
            pids.append(heard(message)["pid"])

    failure = run(failure_of(stand_in(child), listen, **limits))
    assert (failure.code, failure.detail) == (Code.TIMEOUT, detail)
    assert not any(map(alive, pids))


@pytest.mark.parametrize("kind", [(), ("--shared",)])
def test_a_child_that_takes_more_memory_than_its_limit_is_ended_for_that(run, kind):
    pids = []

    async def listen(message):
        pids.append(heard(message)["pid"])

    failure = run(failure_of(stand_in("taking_memory", 300 * MEGABYTE, *kind), listen, memory=100 * MEGABYTE))
    assert failure.code is Code.OUT_OF_MEMORY
    assert failure.detail.startswith("killed with ")
    assert failure.detail.endswith(" of 100 MB in use")
    assert not alive(pids[0])


async def test_a_crash_with_nearly_all_memory_taken_is_a_want_of_memory(monkeypatch, tmp_path):
    """A native library that is refused memory often just crashes."""
    measured = []
    measure = child_process._used_by
    monkeypatch.setattr(child_process, "_CHECK_EVERY", 0.01)
    monkeypatch.setattr(child_process, "_used_by", lambda pid: measured.append(measure(pid)) or measured[-1])

    async def listen(message):
        # As the limit counts: what is in memory at a moment depends on what else the machine does.
        await eventually(lambda: max(each[0] for each in measured) > 195 * MEGABYTE)
        (tmp_path / "go").touch()

    child = stand_in("crash_full_of_memory", 200 * MEGABYTE, tmp_path / "go")
    failure = await failure_of(child, listen, memory=220 * MEGABYTE)
    assert failure.code is Code.OUT_OF_MEMORY
    assert failure.detail.startswith("signal 11 (SIGSEGV), with 2")
    failure = await failure_of(child, listen, memory=500 * MEGABYTE)
    assert failure.code is Code.CHILD_CRASHED


@pytest.mark.parametrize(
    "words", ["MemoryError\n", "what():  std::bad_alloc\n", "OpenBLAS error: Memory allocation still failed"]
)
async def test_a_crash_that_speaks_of_memory_is_a_want_of_memory(words):
    failure = await failure_of(stand_in("crash", "SIGABRT", words), memory=800 * MEGABYTE)
    assert failure.code is Code.OUT_OF_MEMORY


@pytest.mark.parametrize("times", [1, 3])
def test_cancelling_ends_the_child_and_all_that_it_started_first(run, times):
    async def cancelled():
        family = []

        async def listen(message):
            family.extend(heard(message).values())

        task = asyncio.create_task(kept(stand_in("with_a_family", "stays"), listen))
        await eventually(lambda: family)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        return family

    pid, other = run(cancelled())
    assert not alive(pid)
    run(eventually(lambda: not alive(other)))


def test_cancelling_while_the_child_starts_leaves_nothing(run, monkeypatch):
    started, tasks = [], []
    spawned = child_process._spawned

    def spawned_and_cancelled(*arguments):
        process = spawned(*arguments)
        started.append(process.pid)
        tasks[0].cancel()
        return process

    monkeypatch.setattr(child_process, "_spawned", spawned_and_cancelled)

    async def cancelled():
        tasks.append(asyncio.create_task(kept(stand_in("looping"))))
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]

    run(cancelled())
    assert started
    assert not any(map(alive, started))


def test_what_the_listener_raises_ends_the_child(run):
    pids = []

    async def listen(message):
        pids.append(heard(message)["pid"])
        raise KeyError

    with pytest.raises(KeyError):
        run(kept(stand_in("looping"), listen))
    assert not alive(pids[0])


def test_a_child_that_ends_takes_its_family_with_it(run):
    family = []

    async def listen(message):
        family.extend(heard(message).values())

    failure = run(failure_of(stand_in("with_a_family", "ends"), listen))
    assert (failure.code, failure.detail) == (Code.CHILD_CRASHED, "exit code 7")
    run(eventually(lambda: not any(map(alive, family))))


@pytest.mark.parametrize("how", ["ends", "stays"])
def test_a_process_that_left_the_group_and_holds_the_pipes_holds_up_nobody(run, monkeypatch, how):
    monkeypatch.setattr(child_process, "_GRACE", 0.1)
    family = []

    async def listen(message):
        family.extend(heard(message).values())

    # Two Pythons start in this time, on a slow machine too.
    changed = {"unit_timeout": timedelta(seconds=5)} if how == "stays" else {}
    try:
        failure = run(failure_of(stand_in("with_a_family", how, "--apart"), listen, **changed))
        assert failure.code is (Code.TIMEOUT if how == "stays" else Code.CHILD_CRASHED)
        assert not alive(family[0])
    finally:
        os.kill(family[1], signal.SIGKILL)


def test_a_slow_listener_makes_the_child_wait_and_loses_nothing(run, tmp_path):
    progress = tmp_path / "progress"
    ahead = []

    async def listen(message):
        if not ahead:
            size = -1
            # It has come to rest when a look finds what the one before found.
            while progress.stat().st_size != size:
                size = progress.stat().st_size
                await asyncio.sleep(0.1)
            ahead.append(size)

    said = run(kept(stand_in("writing_much", progress, 100), listen))
    assert [message.index for message in said] == list(range(100))
    assert ahead[0] < 50


def test_what_a_child_says_before_it_ends_is_heard_however_late(run, monkeypatch, tmp_path):
    monkeypatch.setattr(child_process, "_GRACE", 0.0)

    async def listen(message):
        if isinstance(message, Stage):
            (tmp_path / "go").touch()
            pid = heard(message)["pid"]
            await eventually(lambda: not alive(pid))
            await asyncio.sleep(0.1)

    said = run(kept(stand_in("leaving_in_a_hurry", tmp_path / "go"), listen))
    assert [message.index for message in said[1:]] == list(range(20))
