"""``holdfast demo``: a guided tour that starts the real program and shows what it does with events.

``tour`` runs the chapters and compares their fates with the expected ones; ``cluster`` does the same on a cluster. The
chapters are in ``courier``, ``emails`` and ``documents``. They use a ``stage``. Here are the options and the exit code.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from holdfast.cli.failures import INTERRUPTED, REFUSED, Stop
from holdfast.cli.servers import ServerMissing, require_servers
from holdfast.cli.unwinding import signals_unwind
from holdfast.contracts.extras import install_command, missing_libraries
from holdfast.installed import CLUSTER

from .narration import Narrator
from .tour import Embedded, take_tour

_WIDTH_IN_A_FILE: Final = 100


def demo_command(
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster",
            help="Use a real Valkey and MongoDB from Python packages, and three worker processes, instead of one file.",
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="The demo's data folder: new, empty, or of an earlier demo; otherwise holdfast-demo, or with "
            "--cluster holdfast-demo-cluster.",
            show_default=False,
        ),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="No pauses for reading.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours. NO_COLOR does the same.")] = False,
) -> None:
    """Take a guided tour in a separate data folder.

    It starts the real server on this machine. It shows what Holdfast does with a good event, a duplicate, a forged
    event and others; with emails that arrive, wait, are refused or come too late; and with documents that are read or
    missing. The exit code is 0 only if all of them end as expected.
    """
    width = None if sys.stdout.isatty() else _WIDTH_IN_A_FILE
    console = Console(width=width, no_color=no_color or None, highlight=False, emoji=False)
    tour = _cluster() if cluster else Embedded
    folder = data or Path("holdfast-demo-cluster" if cluster else "holdfast-demo")
    try:
        with signals_unwind():
            as_expected = take_tour(tour(Narrator(console, fast=fast), folder))
    except KeyboardInterrupt:
        console.print(f"\nStopped, and the {'servers' if cluster else 'server'} with it.")
        raise typer.Exit(INTERRUPTED) from None
    except ServerMissing as error:
        raise Stop(*str(error).splitlines()) from error
    if not as_expected:
        raise typer.Exit(REFUSED)


def _cluster() -> type[Embedded]:
    """The tour of a cluster. Raises :class:`Stop` if it cannot run here: macOS has no package with a MongoDB."""
    missing = missing_libraries(CLUSTER)
    if missing:
        message = f"The cluster's tour needs {', '.join(missing)}. Nothing was started."
        raise Stop(message, f"Install what is missing: {install_command(missing)}")
    try:
        require_servers()
    except ServerMissing as error:
        message = "The cluster's tour needs a Valkey and a MongoDB from Python packages. Nothing was started."
        raise Stop(message, str(error), "`holdfast demo` without --cluster needs neither.") from error
    from .cluster import Cluster  # noqa: PLC0415 - the embedded tour needs no drivers

    return Cluster
