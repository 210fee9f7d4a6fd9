# noqa: INP001 - a script, not a module
"""Print the part of hashes.txt that Holdfast with some extras needs, for ``pip install --require-hashes --no-deps``.

    python deploy/select_hashes.py cluster,email > selected.txt

pip says which packages belong to it, in the versions of constraints.txt. It installs nothing, and asks only for wheels:
no code of a package runs before its hash is compared.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent.parent


def main() -> None:
    """Print the lines."""
    extras = [extra for extra in ",".join(sys.argv[1:]).replace(" ", "").split(",") if extra]
    entries = known()
    names = resolved(requirements(extras))
    if missing := sorted(names - set(entries)):
        sys.exit(f"hashes.txt does not have: {', '.join(missing)}. Write it again with .ci/hashes.py.")
    sys.stdout.write("".join(entries[name] for name in sorted(names)))


def requirements(extras: list[str]) -> list[str]:
    """What pyproject.toml asks for: to build, always, and for these extras."""
    settings = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))
    project, optional = settings["project"], settings["project"]["optional-dependencies"]
    found: list[str] = [*settings["build-system"]["requires"], *project["dependencies"]]
    left = list(extras)
    while left:
        extra = left.pop()
        if extra not in optional:
            sys.exit(f"There is no extra {extra!r}. There are: {', '.join(sorted(optional))}.")
        for each in optional[extra]:
            others = re.fullmatch(rf"{re.escape(project['name'])}\[(.+)\]", each)
            left += others[1].split(",") if others else []
            found += [] if others else [each]
    return found


def resolved(wanted: list[str]) -> set[str]:
    """The names of all packages that these requirements need on this machine, with what these need in turn."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    command += ["--only-binary", ":all:", "--constraint", str(FOLDER / "constraints.txt"), *wanted]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)  # noqa: S603 - fixed words
    return {plain(each["metadata"]["name"]) for each in report["install"]}


def known() -> dict[str, str]:
    """The lines of each package in hashes.txt."""
    text = (FOLDER / "hashes.txt").read_text(encoding="utf-8")
    blocks = re.findall(r"^[^#\s].*(?:\n[ \t].*)*\n", text, re.MULTILINE)
    return {plain(re.split(r"[=\s]", block, maxsplit=1)[0]): block for block in blocks}


def plain(name: str) -> str:
    """The name as the index writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
