"""``new``: a project that runs, and whose own test passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.commands import ENVIRONMENT
from tests.support.program import started, stop

ROOT = Path(__file__).parents[2]


def run(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a module of Python in the project, as its user would."""
    environment = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "TMPDIR"}}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "API_PORT": "0", **more}
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def project(program, home, monkeypatch):
    """A new project, and an environment that says nothing about Holdfast."""
    for name in ENVIRONMENT:
        monkeypatch.delenv(name)
    said = program("new", "shop")
    assert said.code == 0
    for words in ("cd shop", "python -m pytest", "holdfast doctor", "holdfast up"):
        assert words in said.err
    return home / "shop"


def test_what_it_writes(project):
    assert {str(each.relative_to(project)) for each in project.rglob("*") if each.is_file()} == {
        ".gitignore",
        "README.md",
        "app.py",
        "holdfast.toml",
        "pyproject.toml",
        "tests/test_app.py",
    }
    settings = tomllib.loads((project / "holdfast.toml").read_text())
    assert settings["app"] == "app:app"
    assert len(settings["operator_token"]) > 30
    assert (project / "holdfast.toml").stat().st_mode & 0o777 == 0o600
    assert "holdfast.toml" in (project / ".gitignore").read_text().splitlines()
    for each in project.rglob("*.*"):
        assert "$name" not in (each.read_text() if each.is_file() else "")


def test_its_own_test_passes_and_its_code_is_clean(project):
    tested = run(project, "pytest", "-q", "-p", "no:cacheprovider")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "2 passed" in tested.stdout
    linted = run(project, "ruff", "check", "--isolated", "--no-cache", "--line-length", "120", ".")
    assert linted.returncode == 0, linted.stdout
    typed = run(project, "mypy", "--strict", "app.py", "tests/test_app.py", "--cache-dir", os.devnull)
    assert typed.returncode == 0, typed.stdout + typed.stderr


def test_the_doctor_is_content_and_its_commands_work(project):
    checked = run(project, "holdfast", "doctor", "--json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    findings = {each["check"]: each for each in json.loads(checked.stdout)["checks"]}
    assert findings["app"]["message"] == 'app = "app:app" in holdfast.toml brings issue_invoice.'
    assert {each["verdict"] for each in findings.values()} <= {"OK", "WARN"}
    environment = {"PYTHONPATH": str(ROOT / "src"), "HOLDFAST_CONFIG": str(project / "holdfast.toml"), "API_PORT": "0"}
    with started(project, environment, "up", "--json") as server:
        good, bad = (
            run(project, "holdfast", "submit", job, "--url", server.address)
            for job in (
                '{"number": "2026-001", "customer": "ACME", "cents": 1299}',
                '{"number": "2026-002", "customer": "ACME", "cents": 0}',
            )
        )
        assert (good.returncode, bad.returncode) == (0, 0), good.stderr + bad.stderr
        waited = [run(project, "holdfast", "jobs", "wait", key) for key in ("2026-001", "2026-002")]
        assert [each.returncode for each in waited] == [0, 1]
        stop(server)
    assert "ACME pays 12.99." in waited[0].stdout
    assert "NOTHING_TO_PAY" in waited[1].stderr
    assert "2026-002" in run(project, "holdfast", "dlq", "list").stdout


def test_a_folder_with_files_is_left_alone(program, home):
    (home / "shop").mkdir()
    (home / "shop" / "app.py").write_text("mine")
    said = program("new", "shop")
    assert said.code == 2
    assert "Nothing was written" in said.err
    assert [each.name for each in (home / "shop").iterdir()] == ["app.py"]
    (home / "file").write_text("mine")
    assert program("new", "file").code == 2
    (home / "empty").mkdir()
    assert program("new", "empty").code == 0


@pytest.mark.parametrize("name", ["bad\nname", 'quo"te', "x" * 101])
def test_names_that_would_spoil_the_files(program, name):
    assert program("new", name).code == 2
