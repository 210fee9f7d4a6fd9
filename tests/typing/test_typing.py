"""Programs of users are typed: `mypy --strict` finds nothing in the files here, and all mistakes in `*_wrong.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.node import FOLDER

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = [*sorted(each for each in HERE.glob("*.py") if not each.name.startswith("test_"))]
PROGRAMS += [ROOT / "tests/embedding/design_program.py"]
PROGRAMS += sorted(each for each in ROOT.glob("examples/*/*.py") if not each.name.startswith("test_"))


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


@pytest.mark.slow
def test_pyright_finds_nothing_in_programs_of_users(node_packages, tmp_path):
    right = [each for each in PROGRAMS if not each.stem.endswith("_wrong")]
    configuration = {
        "include": [os.path.relpath(each, tmp_path) for each in right],
        "extraPaths": [str(ROOT / "src"), str(ROOT)],
        "typeCheckingMode": "strict",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(configuration))
    done = subprocess.run(
        [str(FOLDER / "node_modules/.bin/pyright"), "--project", str(tmp_path), "--pythonpath", sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (
        0,
        ["0 errors, 0 warnings, 0 informations"],
    ), done.stdout
