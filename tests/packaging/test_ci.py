"""``.ci/test``: a test that fails only beside others is run again and named; nothing else passes because of that."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.program import ROOT

MAKEFILE = """
test:
\t.venv/bin/python -m pytest $(ARGS)
"""
HURRIED = """
import os, pathlib, pytest

@pytest.mark.parametrize("text", {texts})
def test_hurried(text):
    seen = pathlib.Path(f"seen-{{len(text)}}")
    beside_others = not seen.exists()
    seen.touch()
    with open("seeds", "a") as file:
        print(os.environ["HOLDFAST_FUZZ_SEED"], os.environ["HOLDFAST_CHAOS_SEED"], sep="-", file=file)
    assert not beside_others

def test_good():
    pass
"""
BROKEN = "def test_broken():\n    assert False\n"
STOPPED = "import pytest\n\ndef test_stops():\n    pytest.exit('the end')\n"


@pytest.fixture
def ci(tmp_path):
    """Runs the script on a project whose tests are ``files``: its exit code, its output, and what it wrote down."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "test", tmp_path / ".ci" / "test")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(**files):
        for name, text in files.items():
            (tmp_path / f"test_{name}.py").write_text(text)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "MAKE"))}
        done = subprocess.run(
            [tmp_path / ".ci" / "test", "noted"],
            env=kept | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # they take longer to load than all else takes
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        noted = tmp_path / "noted"
        return done.returncode, done.stdout + done.stderr, noted.read_text().splitlines() if noted.exists() else []

    return run


def hurried(*texts):
    return HURRIED.format(texts=list(texts))


def test_what_passes_is_not_run_again(ci):
    code, told, noted = ci(good="def test_good():\n    pass\n")
    assert (code, noted) == (0, []), told
    assert "once more" not in told


def test_a_test_that_passes_alone_is_named(ci):
    code, told, noted = ci(hurried=hurried("a 'b' $c [d]::e"))
    assert code == 0, told
    assert noted == ["== failed under load, passed alone: test_hurried.py::test_hurried[a 'b' $c [d]::e]"]
    first, again = re.findall("^(?:=+ )?(1 .*) in ", told, re.MULTILINE)
    assert (first, again) == ("1 failed, 1 passed", "1 passed")


def test_both_runs_have_the_same_chance(ci, tmp_path):
    assert ci(hurried=hurried("a"))[0] == 0
    first, again = (tmp_path / "seeds").read_text().split()
    assert first == again


def test_a_test_that_fails_again_fails(ci):
    code, told, noted = ci(hurried=hurried("a"), broken=BROKEN)
    assert code == 1, told
    assert noted == ["== failed under load, passed alone: test_hurried.py::test_hurried[a]"]


def test_more_than_three_are_not_run_again(ci):
    assert ci(hurried=hurried("a", "ab", "abc"))[0] == 0
    code, told, noted = ci(hurried=hurried("abcd", "abcde", "abcdef", "abcdefg"))
    assert (code, noted[3:]) == (1, []), told
    assert "4 failed tests" in told


def test_a_run_that_did_not_reach_its_end_fails(ci):
    code, told, noted = ci(a_broken=BROKEN, hurried=hurried("a"), stops=STOPPED)
    assert (code, noted) == (1, []), told


def test_a_file_that_cannot_be_read_fails(ci):
    code, told, noted = ci(wrong="import nothing_of_this_name\n")
    assert (code, noted) == (1, []), told
