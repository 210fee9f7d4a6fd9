"""Programs of users are typed: `mypy --strict` finds nothing in the files here, and all mistakes in `*_wrong.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = [*sorted(each for each in HERE.glob("*.py") if not each.name.startswith("test_"))]
PROGRAMS += [ROOT / "tests/embedding/design_program.py"]


@pytest.mark.slow
def test_programs_of_users_are_clean_in_strict_mode(tmp_path):
    options = ["--strict", "--explicit-package-bases", "--config-file", os.devnull, "--cache-dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *map(str, PROGRAMS)],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (
        0,
        [f"Success: no issues found in {len(PROGRAMS)} source files"],
    ), done.stdout
