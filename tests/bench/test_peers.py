"""``make bench-peers`` starts, measures little, and ends; what it cannot measure has a reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bench.peers import report
from bench.peers.catalogue import SYSTEMS
from bench.peers.counter import total
from bench.peers.libraries import Libraries, LibraryMissing, name_of, requirements
from bench.peers.plan import content
from bench.processor_time import used_by_tree

ROOT = Path(__file__).parents[2]
PINS = [ROOT / "bench" / "peers" / name for name in ("constraints.txt", "constraints-arq.txt")]


def run(*arguments):
    finished = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.slow
def test_it_measures_the_embedded_deployment_and_names_what_it_cannot_measure(tmp_path):
    only = ("--only", "holdfast-embedded", "celery")
    figures = json.loads(
        run("bench.peers", "--jobs", "400", "--rounds", "1", "--libraries", str(tmp_path), *only, "--json")
    )
    ours = figures["systems"]["holdfast-embedded"]["figures"]
    assert all(ours[name] > 0 for name in ("submit_per_second", "work_per_second", "both_per_second", "both_cpu_us"))
    assert "not installed" in figures["systems"]["celery"]["reason"]
    assert "not measured: celery is not installed" in report.markdown(figures)


def test_a_job_has_about_500_bytes():
    assert 450 < len(json.dumps(content(1), separators=(",", ":"))) < 550


def test_each_library_of_the_extra_is_measured_and_pinned_without_addresses():
    libraries = {system.library for system in SYSTEMS if system.library}
    assert libraries == {name_of(each) for each in requirements()}
    pins = "".join(path.read_text() for path in PINS)
    assert all(re.search(rf"^{name}==", pins, re.MULTILINE) for name in libraries)
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in pins.split())


def test_the_extra_is_not_part_of_dev():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert not {name_of(each) for each in extras["bench"]} & {name_of(each) for each in extras["dev"]}


def test_a_library_that_failed_has_its_reason(tmp_path):
    folder = tmp_path / "libraries" / "honker"
    folder.mkdir(parents=True)
    (folder / "holdfast-bench.json").write_text('{"wanted": "x", "reason": "no wheel"}')
    with pytest.raises(LibraryMissing, match="no wheel"):
        Libraries(tmp_path).python("honker", ROOT)


def test_the_counts_of_all_processes_are_added(tmp_path):
    (tmp_path / "1").write_bytes((3).to_bytes(8, "little"))
    (tmp_path / "2").write_bytes((4).to_bytes(8, "little"))
    assert total(tmp_path) == 7


def test_the_processor_time_of_a_child_that_ended_counts():
    if not Path("/proc/self/stat").exists():
        pytest.skip("there is no /proc here")
    before = used_by_tree(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)
    assert used_by_tree(os.getpid()) > before
