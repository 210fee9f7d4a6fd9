"""Trying one mutant: a broken copy of the package, and the simulation over it in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import holdfast

from .catalogue import Mutant

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = Path(holdfast.__file__).parent
_FOUND: Final = re.compile(r"^seed (\d+):\n  (.*)$", re.MULTILINE)


class DoesNotApply(Exception):
    """The text that a mutant replaces is not in the source exactly once."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How a mutant fared: the seed that noticed it and what was noticed, or None when it survived."""

    mutant: Mutant
    seed: int | None
    finding: str


def edited(mutant: Mutant) -> dict[str, str]:
    """The files that the mutant changes, by name, as it leaves them."""
    files: dict[str, str] = {}
    for edit in mutant.edits:
        text = files.get(edit.file) or (SOURCE / edit.file).read_text()
        if text.count(edit.old) != 1:
            message = f"{mutant.name}: {edit.file} has {text.count(edit.old)} times: {edit.old!r}"
            raise DoesNotApply(message)
        files[edit.file] = text.replace(edit.old, edit.new)
    return files


def breed(mutant: Mutant, folder: Path) -> None:
    """Put a copy of the package, with the mutant's edits, into the folder."""
    package = folder / "holdfast"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, text in edited(mutant).items():
        (package / file).write_text(text)


def attempt(mutant: Mutant, seeds: int) -> Trial:
    """Run the simulation over the mutant until a seed notices it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-mutant-") as folder:
        breed(mutant, Path(folder))
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation", f"0-{seeds - 1}", "--first"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if found := _FOUND.search(done.stdout):
        return Trial(mutant, int(found[1]), found[2])
    if done.returncode:  # it did not even run: that is no test of the simulation
        message = f"{mutant.name}: {done.stderr.strip()[-500:]}"
        raise DoesNotApply(message)
    return Trial(mutant, None, "")
