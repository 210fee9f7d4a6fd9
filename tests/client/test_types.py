"""The methods of the clients have the types of their verbs: mypy reads a program, and finds its mistakes only."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("typed_program.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_mypy_finds_the_mistakes_and_nothing_else():
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    mistakes = [number for number, line in enumerate(lines, 1) if line.endswith("# a mistake")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(PROGRAM)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = [int(each) for each in re.findall(r"typed_program\.py:(\d+): error", done.stdout)]
    assert len(mistakes) == 4
    assert found == mistakes, done.stdout + done.stderr


def test_methods_show_the_signature_and_the_docstring_of_their_verb():
    import inspect

    from holdfast.client import AsyncClient, Client

    with Client("http://127.0.0.1:9") as client:
        names = list(inspect.signature(client.submit).parameters)
        assert names == ["workload", "data", "delay", "priority"]
        assert "on disk" in inspect.getdoc(client.submit)
        assert client.submit.__qualname__ == "Client.submit"
    both = [{name for name in dir(each) if not name.startswith("_")} for each in (Client, AsyncClient)]
    assert both[0] == both[1]
    assert inspect.iscoroutinefunction(AsyncClient("http://127.0.0.1:9").submit)
