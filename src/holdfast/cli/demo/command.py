"""``holdfast demo``: the options, and what the exit code says."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer
from rich.console import Console

from holdfast.cli.failures import INTERRUPTED, REFUSED

from .narration import Narrator
from .tour import take_tour

_ENDED_BY_SIGNAL: Final = 128
_WIDTH_IN_A_FILE: Final = 100


def demo_command(
    data: Annotated[
        Path,
        typer.Option(
            "--data", metavar="DIR", help="The demo's own data folder: new, empty, or left by an earlier demo."
        ),
    ] = Path("holdfast-demo"),
    fast: Annotated[bool, typer.Option("--fast", help="Do not pause for reading.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours. NO_COLOR does the same.")] = False,
) -> None:
    """Take a narrated tour of what Holdfast does with events, good and bad.

    Starts the real server on this machine and shows what becomes of a good event, of a duplicate, of a forged one, and
    of others. Exits with 0 only if each met the fate that it should.
    """
    width = None if sys.stdout.isatty() else _WIDTH_IN_A_FILE
    console = Console(width=width, no_color=no_color or None, highlight=False, emoji=False)
    try:
        with _signals_unwind():
            well = take_tour(Narrator(console, fast=fast), data)
    except KeyboardInterrupt:
        console.print("\nStopped, and the server with it.")
        raise typer.Exit(INTERRUPTED) from None
    if not well:
        raise typer.Exit(REFUSED)


@contextlib.contextmanager
def _signals_unwind() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the demo as an exception would, so that the server is stopped on the way out."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(_ENDED_BY_SIGNAL + number)

    # What is ignored stays ignored: that is what nohup is for.
    wanted = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
