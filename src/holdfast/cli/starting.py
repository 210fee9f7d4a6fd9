"""``new``: a small project of one's own, ready to run and to test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from .configuring import starter_text, write_private
from .failures import Stop
from .output import say

APP: Final = '''\
"""The work of $name: each job is a function. Holdfast runs it, tries it again, and keeps what failed."""

from holdfast import App, Context, Reject
from pydantic import BaseModel

app = App()


class Invoice(BaseModel):
    number: str
    customer: str
    cents: int


class Receipt(BaseModel):
    number: str
    text: str


@app.job(key="number", attempts=3)
async def issue_invoice(invoice: Invoice, ctx: Context) -> Receipt:
    """Issue one invoice. The number is the key: the same invoice twice is one job."""
    if invoice.cents <= 0:
        raise Reject("NOTHING_TO_PAY", "An invoice must ask for more than nothing.")
    ctx.log("invoice issued", number=invoice.number)
    return Receipt(number=invoice.number, text=f"{invoice.customer} pays {invoice.cents / 100:.2f}.")
'''

TEST: Final = '''\
"""The jobs of $name, run by the real engine on a temporary file and a clock that the test moves."""

from holdfast.testing import Harness

from app import Invoice, app, issue_invoice


def test_an_invoice_is_issued_once() -> None:
    invoice = Invoice(number="2026-001", customer="ACME", cents=1299)
    with Harness(app).sync() as harness:
        submission = harness.submit(issue_invoice, invoice)
        assert harness.submit(issue_invoice, invoice).duplicate
        harness.settle()
        assert harness.result(submission).text == "ACME pays 12.99."


def test_an_invoice_over_nothing_becomes_a_dead_letter() -> None:
    with Harness(app).sync() as harness:
        harness.submit(issue_invoice, Invoice(number="2026-002", customer="ACME", cents=0))
        harness.settle()
        (letter,) = harness.dead_letters()
        assert letter.reason_code == "NOTHING_TO_PAY"
'''

README: Final = """\
# $name

Jobs that run on Holdfast, the job gateway. `app.py` has the work, `tests/` tests it, and `holdfast.toml` has
the settings and the secrets: keep that file out of version control.

```console
$ python -m pytest                  # the jobs, with the real engine and no server
$ holdfast doctor                   # checks the installation
$ holdfast up                       # API, worker and maintenance on http://127.0.0.1:8080
```

In another terminal, in this folder:

```console
$ holdfast submit '{"number": "2026-001", "customer": "ACME", "cents": 1299}'
$ holdfast jobs list
$ holdfast jobs show 2026-001       # its attempts and its result
$ holdfast submit '{"number": "2026-002", "customer": "ACME", "cents": 0}'
$ holdfast dlq list                 # the invoice over nothing: a dead letter, with its reason
```
"""

IGNORED: Final = """\
holdfast.toml
holdfast-data/
__pycache__/
.pytest_cache/
.venv/
"""

PYTEST: Final = """\
[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
"""

_FILES: Final = {
    "app.py": APP,
    "tests/test_app.py": TEST,
    "README.md": README,
    "pyproject.toml": PYTEST,
    ".gitignore": IGNORED,
}


def new(
    folder: Annotated[Path, typer.Argument(metavar="NAME", help="The new folder, and its name.", show_default=False)],
) -> None:
    """Write a small project of your own into a new folder.

    It has a job, its test, a holdfast.toml with fresh secrets, and a README with the next commands. A folder that has
    files in it is refused.
    """
    name = folder.absolute().name
    if re.fullmatch(r"[\w .-]{1,100}", name) is None:
        message = "NAME takes letters, digits, spaces, dots, - and _."
        raise Stop(message)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        message = f"{folder} is there already, and is not an empty folder. Nothing was written."
        raise Stop(message)
    for place, text in _FILES.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("$name", name), encoding="utf-8")
    write_private(folder / "holdfast.toml", starter_text(app="app:app"))
    say(f"Wrote {folder}: app.py, tests/test_app.py, holdfast.toml with fresh secrets, README.md.")
    say(f"Next: cd {folder}, then `python -m pytest` tests it, `holdfast doctor` checks it, `holdfast up` starts it.")
