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
PLUGINS = ("pytest_asyncio.plugin", "holdfast.testing.plugin")
"""What pytest loads here: what else is installed must not matter."""
SECONDS = 120

page_by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@page_by_page
def test_the_code_of_the_page_runs_and_prints_what_the_page_says(page, tmp_path):
    run(page, tmp_path)


def run(page, folder):
    """Run everything in a page."""
    files = programs(page)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    main = f"{page.stem.replace('-', '_')}.py"
    tests = [name for name, text in files.items() if re.search(r"^(async )?def test_", text, re.MULTILINE)]

    for name in files.keys() - {main, *tests}:
        if not any(re.search(rf"^(from|import) {name[:-3]}\b", text, re.MULTILINE) for text in files.values()):
            python(folder, "-W", "error", name)
    if main in files:
        assert python(folder, "-W", "error", main) == "".join(texts(page, "text"))
    if tests:
        plugins = [word for plugin in PLUGINS for word in ("-p", plugin)]
        options = ("-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto")
        python(folder, "-m", "pytest", *plugins, *options, *tests, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


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


GOOD = """\
```python
# shop.py
price = 7
```

```python
from shop import price

print(price)
```

```text
7
```

```python
# test_shop.py
from shop import price


def test_the_price():
    assert price == 7
```

```console
$ holdfast up
```
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("price = 7", "price = seven"),
        ("print(price)", "print(prize)"),
        ("```text\n7", "```text\n8"),
        ("assert price == 7", "assert price == 8"),
        ("# shop.py\nprice = 7\n", "# shop.py\nprice = 7\n```\n\n```python\n# other.py\nprice = seven\n"),
    ],
)
def test_a_mistake_in_a_page_is_noticed(right, wrong, tmp_path):
    page = tmp_path / "a-page.md"
    page.write_text(GOOD)
    run(page, tmp_path)

    page.write_text(GOOD.replace(right, wrong))
    with pytest.raises(AssertionError) as noticed:
        run(page, tmp_path)

    if "seven" in wrong:  # a traceback leads to the line of the page
        line = page.read_text().splitlines().index("price = seven") + 1
        assert f"line {line}, in <module>" in str(noticed.value)
