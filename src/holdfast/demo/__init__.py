"""``holdfast demo``: a guided tour that starts the real program and shows what it does with events.

Here are the command, and the tour: it prepares the stage, runs every chapter, and compares the fates with the expected
ones. The chapters are in ``courier``, ``emails`` and ``documents``, those of a cluster in ``cluster``. They act on a
``stage``, which also tells the story.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import httpx
import typer
from rich.console import Console

from holdfast.cli.failures import INTERRUPTED, REFUSED, Stop
from holdfast.cli.servers import ServerMissing, require_servers
from holdfast.cli.unwinding import signals_unwind
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.extras import install_command, missing_libraries
from holdfast.installed import CLUSTER, settings_model

from .courier import EVENTS
from .documents import DOCUMENTS, FOLDER
from .emails import EMAILS
from .servers import LOG_FILE, Downstream, MailServer, Program, serving
from .stage import SOURCE, Chapter, Part, Stage, Unexpected

NOT_REACHED: Final = "not reached"
MAILBOX: Final = "mailbox"  # the emails that the demo's mail server accepted
_WIDTH_IN_A_FILE: Final = 100


class Embedded(Stage):
    """The tour of the default: one process, one file."""

    parts = (EVENTS, EMAILS, DOCUMENTS)


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
            help="The demo's data folder, new or empty; otherwise a new holdfast-demo, or with --cluster "
            "holdfast-demo-cluster.",
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
    where = data or unused("holdfast-demo-cluster" if cluster else "holdfast-demo")
    try:
        with signals_unwind():
            tour = _cluster() if cluster else Embedded
            as_expected = take_tour(tour(console, where, fast=fast))
    except KeyboardInterrupt:
        console.print(f"\nStopped, and the {'servers' if cluster else 'server'} with it.")
        raise typer.Exit(INTERRUPTED) from None
    except ServerMissing as error:
        raise Stop(*str(error).splitlines(), "`holdfast demo` without --cluster needs no other server.") from error
    if not as_expected:
        raise typer.Exit(REFUSED)


def _cluster() -> type[Embedded]:
    """The tour of a cluster. Raises :class:`Stop` or :class:`ServerMissing` if it cannot run here, such as on macOS."""
    missing = missing_libraries(CLUSTER)
    if missing:
        message = f"The cluster's tour needs {', '.join(missing)}. Nothing was started."
        raise Stop(message, f"Install what is missing: {install_command(missing)}")
    require_servers()
    from .cluster import Cluster  # noqa: PLC0415 - the embedded tour needs no drivers

    return Cluster


def unused(name: str) -> Path:
    """A folder that is not there yet: of this name, or with a number after it."""
    numbered = (Path(f"{name}-{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([Path(name)], numbered) if not path.exists())


def claim(path: Path) -> None:
    """Make the folder. Raises :class:`ConfigurationError` if it holds anything: a demo never changes what was there."""
    folder = path.expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(folder.iterdir()):
            message = f"{path} is not empty. Nothing was changed. Name a new or empty folder with --data."
            raise ConfigurationError(message)
        (folder / LOG_FILE).touch(exist_ok=False)  # of two demos that begin at once, one fails here
    except OSError as error:
        message = f"The demo cannot use {path}: {error.strerror or error}. Name another folder with --data."
        raise ConfigurationError(message) from error


def take_tour(stage: Stage, chapters: Sequence[Chapter] | None = None) -> bool:
    """Run the chapters in a fresh data folder. True if all fates are as expected and the server stopped in order.

    Without ``chapters``, it runs those of all parts whose libraries are installed. Raises :class:`ConfigurationError`
    for a folder that the demo may not use, and :class:`ServerMissing` if a server of a cluster does not start. No
    process is left in any case.
    """
    began = time.monotonic()
    parts = [part for part in stage.parts if not missing_libraries(part.libraries)]
    if chapters is None:
        chapters = [each for part in parts for each in part.chapters]
    claim(stage.data)
    with contextlib.ExitStack() as opened:
        opened.callback(stage.http.close)
        stage.downstream = opened.enter_context(serving(Downstream(stage.secrets["downstream"])))
        stage.mail = opened.enter_context(serving(MailServer(stage.folder / MAILBOX)))
        _open(stage, parts)
        settings = opened.enter_context(stage.surroundings())
        stage.server = Program(stage.folder, _environment(stage, parts) | settings, stage.up)
        opened.callback(stage.server.stop)
        try:
            stage.start()
        except ServerMissing as error:
            stage.trouble(*str(error).split("\n", 1))
            return False
        stage.line("**", f"The server is up: process {stage.server.pid}.")
        for duty, pids in stage.server.pids.items():
            stage.facts({f"{duty} processes": ", ".join(map(str, pids))})
        fates = []
        for number, each in enumerate(chapters, start=1):
            actual = _play(stage, number, each) if stage.server.running else NOT_REACHED
            fates.append((each.name, each.expected, actual))
        code = stage.server.stop()

    as_expected = stage.closing(fates, time.monotonic() - began)
    if code != 0:
        stage.trouble(f"The server did not stop in order: exit code {code}.", stage.server.log_tail())
    _show_what_is_left(stage, parts)
    return as_expected and code == 0


def _open(stage: Stage, parts: Sequence[Part]) -> None:
    stage.opening(f"""Holdfast accepts events, emails and documents, and never loses one that it has accepted.

{stage.introduction} The tour itself plays the senders, the operator and the systems behind Holdfast, which fail on \
purpose. Everything stays on this machine.""")
    stage.say("To make the tour short, these settings are smaller than their defaults:")
    for name, value in (each for part in parts for each in part.shortened.items()):
        default = settings_model().model_fields[name.lower()].default
        here, there = (f"{each:,}" if isinstance(each, int) else str(each).strip("()") for each in (value, default))
        stage.show(f"{name:29}  {here}  (default {there})")
    for part in stage.parts:
        if absent := missing_libraries(part.libraries):
            what = f"The chapters on {part.subject} are skipped: {', '.join(absent)} not installed."
            stage.say(f"{what} To see them, install:")
            stage.plain(f"      {install_command(absent)}", "cyan")


def _environment(stage: Stage, parts: Sequence[Part]) -> dict[str, str]:
    """Our own environment without any setting of Holdfast, plus the demo's settings."""
    ours = {name.upper() for name in settings_model().model_fields}
    environ = {name: value for name, value in os.environ.items() if name not in ours and name[:9] != "HOLDFAST_"}
    for part in parts:
        environ |= {**part.settings, **{name: str(value).strip("()") for name, value in part.shortened.items()}}
    return environ | {
        "HOLDFAST_DATA": str(stage.folder),
        "API_PORT": "0",
        "OPERATOR_TOKEN": stage.secrets["operator"],
        "COURIER_SECRETS": json.dumps({SOURCE: [stage.secrets["courier"]]}),
        "COURIER_DOWNSTREAM_URL": stage.downstream.url,
        "COURIER_DOWNSTREAM_SECRET": stage.secrets["downstream"],
        "SMTP_PORT": str(stage.mail.server_address[1]),
        "LOG_LEVEL": "debug",
        "LOG_FORMAT": "json",
    }


def _play(stage: Stage, number: int, chapter: Chapter) -> str:
    """Run a chapter; returns the fate. A chapter that fails does not stop the tour."""
    stage.heading(f"{number}. {chapter.name[0].upper()}{chapter.name[1:]}")
    stage.say(chapter.play.__doc__ or "")
    log = ""
    try:
        return chapter.play(stage)
    except Unexpected as unexpected:
        fate = str(unexpected)
    except subprocess.TimeoutExpired as error:
        fate = f"`{shlex.join(error.cmd)}` took more than {error.timeout:.0f} s"
    except (httpx.HTTPError, json.JSONDecodeError) as error:
        fate, log = f"no usable answer from the server ({type(error).__name__})", stage.server.log_tail()
    except ServerMissing as error:
        fate, log = f"{'Valkey' if stage.server.running else 'the server'} did not start", str(error)
    stage.trouble(f"That was not expected: {fate}.", log)
    return fate


def _show_what_is_left(stage: Stage, parts: Sequence[Part]) -> None:
    stage.plain(f"\nAll data is still there. The server's log is in {shlex.quote(str(stage.data / LOG_FILE))}.")
    if DOCUMENTS in parts:
        results = shlex.quote(str(stage.data / FOLDER / "results"))
        stage.plain(f"The texts are in {results}: text.txt, document.md and result.json of each document.")
    stage.show_ways_to_look([stage.cli(command) for part in parts for command in part.look])
