"""``make bench-growth`` starts, measures a small ledger, and ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_it_fills_the_store_and_measures_jobs_lists_and_the_disk(tmp_path):
    sizes = ("--sizes", "1200", "--waiting", "700", "--count", "200")
    finished = subprocess.run(
        [sys.executable, "-m", "bench.growth", *sizes, "--folder", str(tmp_path), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    (line,) = json.loads(finished.stdout)["sizes"]
    assert line["settled"] == 1200
    assert line["bytes_each"] > 500
    for name in ("waiting 0", "waiting 700"):
        assert line[name]["intake"]["per_second"] > 0
        assert line[name]["work"]["per_second"] > 0
    assert line["pages_ms"]["jobs, by label"] > 0
    assert line["commands_ms"]["dlq list"] > 0
    assert list(tmp_path.iterdir()) == []
