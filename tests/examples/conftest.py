"""The programs in ``examples/``: imported from their folders, or started as their users start them."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from tests.support.program import ROOT

EXAMPLES = ROOT / "examples"
KEPT = {"HOME", "LANG", "PATH", "PYTHONPATH", "TMPDIR"}
END_SECONDS = 60


@pytest.fixture
def load(monkeypatch, tmp_path):
    """Imports a program, in an empty folder: ``load("fan-out", "catalogue")``."""
    imported = []

    def load_one(folder, module):
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(EXAMPLES / folder)
        imported.append(module)
        return importlib.import_module(module)

    yield load_one
    for module in imported:
        del sys.modules[module]


@pytest.fixture
def environment():
    """What a program gets from this environment."""
    return {name: value for name, value in os.environ.items() if name in KEPT}


@pytest.fixture
def serve(tmp_path, environment):
    """Runs a web app with uvicorn: ``with serve("fastapi-app", "invoices_api:api") as client``."""

    @contextlib.contextmanager
    def serve_one(folder, app, **more) -> Iterator[httpx.Client]:
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            app,
            "--app-dir",
            EXAMPLES / folder,
            "--port",
            "0",
            "--no-use-colors",
        ]
        with (tmp_path / "log").open("w+") as log:
            server = subprocess.Popen(
                command, cwd=tmp_path, env=environment | more, stdout=log, stderr=subprocess.PIPE, text=True
            )
            try:
                with httpx.Client(base_url=_address(server.stderr), trust_env=False) as client:
                    yield client
            finally:
                server.terminate()
                server.communicate(timeout=END_SECONDS)

    return serve_one


def _address(told) -> str:
    seen = []
    for line in told:
        seen.append(line)
        if found := re.search(r"running on (http://\S+)", line):
            return found[1]
    raise AssertionError("".join(seen))
