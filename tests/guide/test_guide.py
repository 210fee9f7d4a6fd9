"""The guide: the code of each page runs as it stands there, and prints what the page says.

Each page runs in a process of its own, in an empty folder, with an empty environment. A block whose first line is a
comment with the name of a file (``# shop.py``) belongs to that file. The other blocks of a page are one program, in
their order. Blocks of the language ``text`` are what this program prints. Tests in a page are run by pytest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support.markdown import commands_in, complaint, programs, texts
from tests.support.program import ROOT

GUIDE = ROOT / "docs" / "guide"
PAGES = sorted(GUIDE.glob("*.md"))
KEPT = {"HOME", "LANG", "PATH", "PYTHONPATH", "TMPDIR"}
SECONDS = 120

page_by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@page_by_page
def test_the_code_of_the_page_runs_and_prints_what_the_page_says(page, tmp_path):
    files = programs(page)
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    main = f"{page.stem.replace('-', '_')}.py"
    tests = [name for name, text in files.items() if re.search(r"^(async )?def test_", text, re.MULTILINE)]

    for name in files.keys() - {main, *tests}:
        if not any(re.search(rf"^(from|import) {name[:-3]}\b", text, re.MULTILINE) for text in files.values()):
            python(tmp_path, "-W", "error", name)
    if main in files:
        printed = python(tmp_path, "-W", "error", main)
        assert printed == "".join(texts(page, "text"))
    if tests:
        pytest_itself = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin", "-p", PLUGIN)
        python(tmp_path, *pytest_itself, "-o", "asyncio_mode=auto", *tests, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


PLUGIN = "holdfast.testing.plugin"


def python(folder, *arguments, **more):
    """What Python prints in this folder."""
    environment = {name: value for name, value in os.environ.items() if name in KEPT} | more
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@page_by_page
def test_every_command_and_option_of_the_page_exists(page):
    commands = commands_in(page.read_text(encoding="utf-8"))

    assert [problem for words in commands if (problem := complaint(words))] == []


def test_the_index_names_every_page():
    index = (GUIDE / "README.md").read_text(encoding="utf-8")

    assert set(re.findall(r"\(([a-z-]+\.md)\)", index)) == {page.name for page in PAGES} - {"README.md"}
