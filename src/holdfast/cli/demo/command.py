"""``holdfast demo``: the options, and what the exit code says."""

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
from holdfast.wiring.libraries import CLUSTER

from .deployment import Deployment, Embedded
from .narration import Narrator
from .tour import take_tour

_WIDTH_IN_A_FILE: Final = 100


def demo_command(
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster",
            help="On a real Valkey and MongoDB from Python packages, with three worker processes, instead of one file.",
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="The demo's own data folder: new, empty, or left by an earlier demo; otherwise holdfast-demo, or with "
            "--cluster holdfast-demo-cluster.",
            show_default=False,
        ),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Do not pause for reading.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours. NO_COLOR does the same.")] = False,
) -> None:
    """Take a narrated tour of what Holdfast does with events, emails and documents, good and bad.

    Starts the real server on this machine and shows what becomes of a good event, of a duplicate, of a forged one, and
    of others; of emails that arrive, wait, are refused or come too late; and of documents that are read, or not there.
    Exits with 0 only if each met the fate that it should.
    """
    width = None if sys.stdout.isatty() else _WIDTH_IN_A_FILE
    console = Console(width=width, no_color=no_color or None, highlight=False, emoji=False)
    deployment = _cluster() if cluster else Embedded()
    folder = data or Path("holdfast-demo-cluster" if cluster else "holdfast-demo")
    try:
        with signals_unwind():
            well = take_tour(Narrator(console, fast=fast), folder, deployment=deployment)
    except KeyboardInterrupt:
        console.print(f"\nStopped, and the {'servers' if cluster else 'server'} with it.")
        raise typer.Exit(INTERRUPTED) from None
    except ServerMissing as error:
        raise Stop(*str(error).splitlines()) from error
    if not well:
        raise typer.Exit(REFUSED)


def _cluster() -> Deployment:
    """The cluster; raises :class:`Stop` where it cannot be: macOS has no package with a MongoDB."""
    missing = missing_libraries(CLUSTER)
    if missing:
        message = f"The cluster's tour needs {', '.join(missing)}. Nothing was started."
        raise Stop(message, f"Install what is missing: {install_command(missing)}")
    try:
        require_servers()
        from .cluster import Cluster  # noqa: PLC0415 - the embedded tour does without drivers
    except ServerMissing as error:
        message = "The cluster's tour needs a Valkey and a MongoDB from Python packages. Nothing was started."
        raise Stop(message, str(error), "`holdfast demo` without --cluster needs neither.") from error
    return Cluster()
