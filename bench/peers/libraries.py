"""The libraries of the other systems, in ``.venv-bench``: one folder for each, because they exclude each other.

arq wants a redis-py before 6, Celery one after it. ``python -m bench.peers.libraries`` installs what the extra
``bench`` of pyproject.toml names, in the versions of constraints.txt (for arq, constraints-arq.txt). A library that
cannot be installed is left out; the reason is kept and shown in the table.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_HERE: Final = Path(__file__).parent
_SECONDS: Final = 300
_STAMP: Final = "holdfast-bench.json"
_MORE: Final = {
    "procrastinate": ("psycopg[binary,pool]",),  # the compiled driver, which its documentation recommends
    "saq": ("typing_extensions",),  # imported on Python 3.11, and not declared
}


class LibraryMissing(Exception):
    """A library is not installed. The message is the reason."""


class Libraries:
    """What is installed in a folder, ``.venv-bench`` by default."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or _ROOT / ".venv-bench"

    def python(self, library: str, root: Path) -> tuple[tuple[str, ...], str]:
        """The interpreter for a library, and its PYTHONPATH. Raises :class:`LibraryMissing`."""
        stamp = self._stamp(library)
        if "reason" in stamp:
            raise LibraryMissing(stamp["reason"])
        return (str(self._folder / "bin" / "python"),), os.pathsep.join([str(self._of(library)), str(root)])

    def version(self, library: str) -> str | None:
        """The installed version."""
        path = [str(self._of(library))]
        found = next(iter(importlib.metadata.distributions(name=library, path=path)), None)
        return found.version if found is not None else None

    def install(self) -> None:
        """Install each library that is not there, or not in the version that is asked for now."""
        if not (self._folder / "bin" / "python").exists():
            venv.create(self._folder, with_pip=True)
        for requirement in requirements():
            name = name_of(requirement)
            wanted = _fingerprint(requirement)
            if self._read(name) == {"wanted": wanted}:  # what failed before is tried again
                continue
            print(f"Installing {requirement} into {self._of(name).relative_to(self._folder.parent)}", file=sys.stderr)
            reason = self._install(requirement)
            stamp = {"wanted": wanted} if reason is None else {"wanted": wanted, "reason": reason}
            self._of(name).mkdir(parents=True, exist_ok=True)
            (self._of(name) / _STAMP).write_text(json.dumps(stamp))
            if reason is not None:
                print(f"{name} is left out: {reason}", file=sys.stderr)

    def _install(self, requirement: str) -> str | None:
        """Install; the reason if this fails."""
        folder = self._of(name_of(requirement))
        shutil.rmtree(folder, ignore_errors=True)
        command = [self._folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--target", folder]
        try:
            finished = subprocess.run(
                [*command, "--constraint", _constraints(requirement), *_split(requirement)],
                check=False,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"pip took more than {_SECONDS} s"
        if not finished.returncode:
            return None
        if "maturin" in finished.stderr or "cargo" in finished.stderr:
            return "PyPI has no wheel for this machine, and its Rust crates cannot be had here"
        errors = [line for line in finished.stderr.splitlines() if line.startswith("ERROR")]
        return re.sub(r"\S+://\S+", "...", errors[-1] if errors else "pip failed")[:200]

    def _stamp(self, library: str) -> dict[str, str]:
        found = self._read(library)
        if not found:
            message = f"{library} is not installed; `make bench-peers` installs it"
            raise LibraryMissing(message)
        return found

    def _read(self, library: str) -> dict[str, str]:
        try:
            found: dict[str, str] = json.loads((self._of(library) / _STAMP).read_text())
        except OSError:
            return {}
        return found

    def _of(self, library: str) -> Path:
        return self._folder / "libraries" / library


def requirements() -> list[str]:
    """What the extra names."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: list[str] = project["optional-dependencies"]["bench"]
    return found


def name_of(requirement: str) -> str:
    """The name of the distribution."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None  # noqa: S101 - pip would not take it either
    return found[0]


def _constraints(requirement: str) -> Path:
    own = _HERE / f"constraints-{name_of(requirement)}.txt"
    return own if own.exists() else _HERE / "constraints.txt"


def _split(requirement: str) -> list[str]:
    """A requirement, and what its library needs but does not name itself."""
    return [requirement, *_MORE.get(name_of(requirement), ())]


def _fingerprint(requirement: str) -> str:
    text = str(_split(requirement)) + _constraints(requirement).read_text()
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    Libraries().install()
