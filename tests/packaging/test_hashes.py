"""What is installed is known by its hash: hashes.txt beside constraints.txt, without download addresses."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
HASHES = (ROOT / "hashes.txt").read_text()


def entries() -> dict[str, list[str]]:
    """The hashes of each version."""
    lines = [line for line in HASHES.splitlines() if not line.startswith("#")]
    found: dict[str, list[str]] = {}
    for line in "\n".join(lines).replace(" \\\n", " ").splitlines():
        found[line.split(" ")[0]] = re.findall(r"--hash=sha256:([0-9a-f]{64})(?= |$)", line)
    return found


def test_every_version_that_we_test_with_has_its_hashes():
    assert list(entries()) == (ROOT / "constraints.txt").read_text().split()
    assert all(entries().values())


def test_no_address_is_recorded():
    assert "://" not in HASHES


def test_make_installs_nothing_without_a_hash():
    installs = re.findall(r"^\t@.*pip install .*$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    ours = [line for line in installs if ".venv-audit" not in line]
    assert len(ours) == 2
    assert "--require-hashes" in ours[0]
    assert all("--no-deps" in line for line in ours), "a dependency that is not in hashes.txt must not slip in"
