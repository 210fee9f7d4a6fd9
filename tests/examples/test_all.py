"""What holds for every example."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support.markdown import commands_in, complaint
from tests.support.program import ROOT

EXAMPLES = ROOT / "examples"
FOLDERS = sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir())
PROGRAMS = sorted(file for file in EXAMPLES.glob("*/*.py") if not file.name.startswith("test_"))


def test_the_index_lists_each_example():
    listed = re.findall(r"^\| \[([a-z-]+)\]", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert sorted(listed) == FOLDERS


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_command_in_the_page_of_an_example_exists(folder):
    commands = commands_in((EXAMPLES / folder / "README.md").read_text(encoding="utf-8"))
    own = [words for words in commands if words[0] != "sms"]

    assert [problem for words in own if (problem := complaint(words))] == []


@pytest.mark.slow
def test_the_types_of_the_programs_are_right(tmp_path):
    # As for a user, Holdfast is a library: its types are read, and its own code is not checked again.
    options = ("--strict", "--follow-imports", "silent", "--config-file", os.devnull, "--cache-dir", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *PROGRAMS],
        env=os.environ | {"MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr
