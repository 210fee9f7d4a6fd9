"""Running ``holdfast demo``, as a program and in this process, and looking for what it left running."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from holdfast.demo import Embedded, take_tour
from holdfast.demo.stage import Chapter


def environment() -> dict[str, str]:
    """Ours, with the program on the path, and with settings that a demo must not listen to."""
    programs = Path(sys.executable).parent
    return os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "API_PORT": "1",
        "RETRY_MAX_ATTEMPTS": "1",
        "HOLDFAST_CRASH_POINT": "intake.recorded",
    }


def start_demo(folder: Path, *options: str, **settings: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", "demo", "--fast", "--data", folder.name, *options],
        cwd=folder.parent,
        env=environment() | settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def run_demo(folder: Path, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
    with start_demo(folder, *options, **settings) as process:
        output, errors = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def told_until(demo: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Read what the demo tells until it has told this."""
    told = ""
    while not (found := re.search(pattern, told)):
        line = demo.stdout.readline()
        assert line, told
        told += line
    return found


def tour(folder: Path, kind: type[Embedded] = Embedded, chapters: Sequence[Chapter] | None = None) -> tuple[bool, str]:
    """The tour in this process, with chapters of the test's own."""
    console = Console(file=io.StringIO(), width=200, highlight=False)
    well = take_tour(kind(console, folder, fast=True), chapters)
    return well, console.file.getvalue()


def ticked(output: str) -> list[str]:
    """The events that are settled, by the table at the end."""
    table = output.partition("What became of everything")[2]
    return re.findall(r"^│ ✓ │ (.*?) +│", table, flags=re.MULTILINE)


def processes_in(folder: Path) -> list[str]:
    """The processes that work in this folder or below it: the program and the servers of a demo all do. Linux only."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(f"{process.name}: {(process / 'cmdline').read_bytes()!r}")
        except OSError:
            continue  # it has ended, or is not ours
    return found
