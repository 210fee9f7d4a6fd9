"""The command line. :func:`main` is the program ``holdfast``.

The result of a command goes to standard output, as a table or (``--json``) for a script. Messages about the result go
to standard error. Exit codes: 0 done; 1 the answer is no (refused, not found, unhealthy); 2 wrong usage, or not
possible here; 70 a bug; 130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast import __version__

from .failures import INTERRUPTED, PIPE_CLOSED, report_error
from .lazy import Entry, LazyGroup, register
from .options import Json
from .output import print_json, print_line, say

RUN, SEND, READ, SET_UP = "Run", "Send", "Read and decide", "Set up and check"

COMMANDS: tuple[Entry, ...] = (
    Entry("up", "holdfast.cli.serving:up", RUN, "Run everything: API, worker and maintenance."),
    Entry("api", "holdfast.cli.serving:api", RUN, "Run only the API."),
    Entry("worker", "holdfast.cli.serving:worker", RUN, "Run a worker with maintenance, without the API."),
    Entry("demo", "holdfast.demo:demo_command", RUN, "Take a guided tour in a separate data folder."),
    Entry("submit", "holdfast.cli.posting:submit", SEND, "Submit a job to one of your own workloads."),
    Entry("jobs", "holdfast.cli.jobs:jobs", READ, "List jobs; show one, wait for it, cancel it."),
    Entry("dlq", "holdfast.cli.letters:dlq", READ, "Read, review, replay and close dead letters."),
    Entry("queue", "holdfast.cli.queues:queue", READ, "See how many jobs wait; pause and resume."),
    Entry("schedules", "holdfast.cli.schedules:schedules", READ, "See, run, pause and resume schedules."),
    Entry("new", "holdfast.cli.starting:new", SET_UP, "Write a small project of your own into a new folder."),
    Entry("init", "holdfast.cli.configuring:init", SET_UP, "Write a holdfast.toml with fresh secrets."),
    Entry("tenants", "holdfast.cli.tenants:tenants", SET_UP, "Add tenants; see and set what they may use."),
    Entry("keys", "holdfast.cli.keys:keys", SET_UP, "Create, list and revoke API keys of tenants."),
    Entry("config", "holdfast.cli.configuring:config", SET_UP, "See the settings in force."),
    Entry("migrate", "holdfast.cli.configuring:migrate", SET_UP, "Create the ledger's tables or collections."),
    Entry("doctor", "holdfast.cli.doctor:doctor", SET_UP, "Check this installation; show how to repair it."),
    Entry("schema", "holdfast.cli.schemas:schema", SET_UP, "List and export the contracts as JSON Schemas."),
    Entry("version", "holdfast.cli:version", SET_UP, "Show the versions of Holdfast, Python and SQLite."),
)
OLD_NAMES: tuple[Entry, ...] = (
    Entry("events", "holdfast.cli.jobs:jobs", READ, "The same as `holdfast jobs`.", hidden=True),
)


def _brought_commands() -> list[Entry]:
    """The commands of the installed features."""
    from holdfast.installed import find_features  # noqa: PLC0415 - most commands need no features

    found = find_features()
    for problem in found.problems:
        say(f"Warning: {problem}")
    commands = (each for feature in found.features for each in feature.commands)
    return [Entry(each.name, each.where, each.panel, each.summary) for each in commands]


app = typer.Typer(
    cls=LazyGroup,
    name="holdfast",
    help="Holdfast, the job gateway that never lets go.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    # A pretty traceback shows the values of variables, and some of those are secrets.
    pretty_exceptions_enable=False,
)
register(app, [*COMMANDS, *OLD_NAMES], _brought_commands)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Holdfast, the job gateway that never lets go."""


def version(json: Json = False) -> None:
    """Show the versions of Holdfast, Python and SQLite."""
    import sqlite3  # noqa: PLC0415 - no other command needs it at its start

    facts = {"holdfast": __version__, "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    if json:
        print_json(facts)
    else:
        print_line(f"holdfast {__version__} (Python {facts['python']}, SQLite {facts['sqlite']})")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code. No error prints a traceback, unless HOLDFAST_DEBUG is set."""
    command = typer.main.get_command(app)
    try:
        command.main(args=None if arguments is None else list(arguments), prog_name="holdfast")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = PIPE_CLOSED
    except BaseException as error:  # noqa: BLE001 - the last frame of the program: the error becomes a message
        code = report_error(error)
    else:  # pragma: no cover - typer always leaves by SystemExit
        code = 0
    return _flushed(code)


def _flushed(code: int) -> int:
    """Flush the output. The reader of a pipe may close it early (``| head``); that prints no error."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (BrokenPipeError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code or PIPE_CLOSED
    return code
