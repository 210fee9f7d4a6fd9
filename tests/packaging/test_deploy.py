"""The Dockerfile, the compose file and the units have limits, and install only what hashes.txt knows.

There is no Docker engine here: the files are read as text.
"""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
READ_DOCUMENTS = {"holdfast.service", "holdfast-worker.service"}
EACH_UNIT = pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)

select = runpy.run_path(str(DEPLOY / "select_hashes.py"))


def settings_of(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


# --- the image --------------------------------------------------------------------------------------------------------


def test_the_image_installs_nothing_without_a_hash():
    installs = re.findall(r"pip install (.*?)(?: \\)?$", DOCKERFILE, re.MULTILINE)
    assert len(installs) == 2
    assert "--require-hashes --requirement selected.txt" in installs[0]
    assert "--no-build-isolation ." in installs[1]
    assert all("--no-deps" in each for each in installs)
    assert re.search(r'select_hashes\.py "\$EXTRAS" > selected\.txt', DOCKERFILE)


def test_what_the_image_copies_is_not_ignored():
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        *sources, _ = line.split()
        assert all(f"!{source}" in kept and (ROOT / source).exists() for source in sources), line


def test_the_image_has_a_user_without_rights_a_volume_and_a_health_check():
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.search(r"^USER holdfast$", last, re.MULTILINE)
    assert re.search(r"^VOLUME /var/lib/holdfast$", last, re.MULTILINE)
    assert "HOLDFAST_DATA=/var/lib/holdfast" in last
    check = re.search(r"^HEALTHCHECK .*\n +CMD \[(.+)\]$", last, re.MULTILINE)
    assert check is not None
    assert "/ready" in check[1]
    assert "curl" not in check[1]


def test_the_health_check_is_python_that_fails_without_a_server():
    command = re.search(r'CMD \["python", "-c", "(import os.+)"\]$', DOCKERFILE, re.MULTILINE)
    assert command is not None
    code = command[1].replace('\\"', '"')
    ran = subprocess.run([sys.executable, "-c", code], env={"API_PORT": "1"}, capture_output=True, check=False)
    assert b"URLError" in ran.stderr


# --- the part of hashes.txt -------------------------------------------------------------------------------------------


def test_an_extra_of_extras_is_followed():
    assert set(select["requirements"](["aws", "email"])) < set(select["requirements"](["all"]))
    assert not [each for each in select["requirements"](["all"]) if "holdfast" in each]


def test_an_unknown_extra_is_named():
    with pytest.raises(SystemExit, match="There is no extra 'emial'"):
        select["requirements"](["emial"])


def needed(requirement: Requirement, found: dict[str, set[str]]) -> None:
    """Add what this machine needs for a requirement, by what is installed. pip would ask the index, for minutes."""
    name = select["plain"](requirement.name)
    extras = found.setdefault(name, set())
    new = {"", *requirement.extras} - extras
    extras |= new
    try:
        all_of_it = requires(name) or []
    except PackageNotFoundError:
        return
    for each in map(Requirement, all_of_it if new else []):
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in new):
            needed(each, found)


def test_whatever_the_extras_need_has_its_hashes(monkeypatch, capsys):
    def by_what_is_installed(wanted):
        found = {}
        for each in map(Requirement, wanted):
            needed(each, found)
        return set(found)

    monkeypatch.setitem(select["main"].__globals__, "resolved", by_what_is_installed)
    monkeypatch.setattr(sys, "argv", ["select_hashes.py", "aws, cluster,email"])
    select["main"]()
    lines = capsys.readouterr().out
    names = {select["plain"](each) for each in re.findall(r"^([\w.-]+)==", lines, re.MULTILINE)}
    assert {"fastapi", "starlette", "redis", "hiredis", "aiosmtplib", "botocore", "hatchling"} <= names
    assert names.isdisjoint({"onnxruntime", "pytest", "schemathesis"})
    text = (ROOT / "hashes.txt").read_text(encoding="utf-8")
    assert set(lines.splitlines()) <= set(text.splitlines())
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", lines)) > len(names)


def test_a_package_without_a_hash_stops_the_installation(monkeypatch):
    monkeypatch.setitem(select["main"].__globals__, "resolved", lambda wanted: {"fastapi", "unheard-of"})
    monkeypatch.setattr(sys, "argv", ["select_hashes.py", ""])
    with pytest.raises(SystemExit, match=r"hashes\.txt does not have: unheard-of"):
        select["main"]()


# --- limits -----------------------------------------------------------------------------------------------------------


@EACH_UNIT
def test_a_unit_has_limits(unit):
    service = settings_of(unit)
    assert service["LimitCORE"] == ["0"]
    for name in ("MemoryHigh", "MemoryMax", "TasksMax", "LimitNOFILE"):
        assert len(service[name]) == 1, name


@EACH_UNIT
def test_the_processes_that_read_documents_may_confine_themselves(unit):
    service = settings_of(unit)
    if unit.name not in READ_DOCUMENTS:
        assert service["RestrictNamespaces"] == ["yes"]
        return
    assert service["RestrictNamespaces"] == ["user net"]
    allowed = service["SystemCallFilter"][-1].split()
    assert {
        "capset",
        "landlock_create_ruleset",
        "landlock_add_rule",
        "landlock_restrict_self",
        "seccomp",
        "unshare",
    } <= {*allowed}
    assert "@resources" not in " ".join(service["SystemCallFilter"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="There is no systemd here.")
def test_systemd_understands_the_units(tmp_path):
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace("/opt/holdfast/bin/holdfast", sys.executable)
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    command = ["systemd-analyze", "verify", *map(str, sorted(tmp_path.iterdir()))]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    ours = [line for line in (ran.stdout + ran.stderr).splitlines() if "holdfast" in line]
    assert ours == []


def test_the_containers_have_limits():
    yaml = pytest.importorskip("yaml", reason="There is no YAML parser here.")
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    for name, service in services.items():
        assert {"mem_limit", "pids_limit"} <= set(service), name
        assert "no-new-privileges:true" in service["security_opt"], name
        if service["image"] == "holdfast":
            assert service["read_only"], name
            assert service["cap_drop"] == ["ALL"], name
            assert service["ulimits"]["core"] == 0, name
    assert "data:/var/lib/holdfast" in services["api"]["volumes"]
