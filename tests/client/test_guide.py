"""docs/guide/client.md: its blocks run as one program, and print what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "client.md").read_text(encoding="utf-8")
KEPT = {"HOME", "LANG", "PATH", "PYTHONPATH", "TMPDIR"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page_runs_and_prints_what_it_says(tmp_path):
    program = []
    for block in blocks("python"):
        named = re.match(r"# (\w+\.py)\n", block)
        if named is None:
            program.append(block)
        else:
            (tmp_path / named[1]).write_text(block, encoding="utf-8")
    (tmp_path / "client.py").write_text("\n".join(program), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "client.py"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name in KEPT},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "".join(blocks("text"))
