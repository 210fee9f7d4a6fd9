"""The command line. :func:`main` is the program ``holdfast``.

What a command finds out goes to standard output, as a table or (``--json``) for a script; what it has to say about it
goes to standard error. Exit codes: 0 done; 1 the answer is no (refused, not found, unhealthy); 2 asked wrongly, or not
possible here; 70 a bug; 130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast import __version__

from .failures import INTERRUPTED, PIPE_CLOSED, tell
from .lazy import Entry, LazyGroup, register

RUN, SEND, READ, SET_UP = "Run", "Send", "Read and decide", "Set up and check"

COMMANDS: tuple[Entry, ...] = (
    Entry("up", "holdfast.cli.serving:up", RUN, "Run everything: API, worker and upkeep."),
    Entry("api", "holdfast.cli.serving:api", RUN, "Run the API alone."),
    Entry("worker", "holdfast.cli.serving:worker", RUN, "Run a worker, with upkeep, and no API."),
    Entry("demo", "holdfast.cli.demo:demo_command", RUN, "Take a narrated tour on a data folder of its own."),
    Entry("send", "holdfast.cli.sending:send", SEND, "Sign a courier event and post it to a running API."),
    Entry("submit", "holdfast.cli.submitting:submit", SEND, "Hand in a job of one of your own workloads."),
    Entry("events", "holdfast.cli.events:events", READ, "Look jobs up in the ledger."),
    Entry("dlq", "holdfast.cli.letters:dlq", READ, "Read, review, replay and close dead letters."),
    Entry("emails", "holdfast.cli.emails:emails", READ, "See what became of emails; cancel."),
    Entry(
        "documents",
        "holdfast.cli.documents:documents",
        READ,
        "Read a file; hand files in; see what became of them; cancel.",
    ),
    Entry(
        "suppressions",
        "holdfast.cli.suppressions:suppressions",
        READ,
        "Addresses that get no more emails: list, add and remove.",
    ),
    Entry("queue", "holdfast.cli.queues:queue", READ, "See how much waits; pause and resume."),
    Entry("init", "holdfast.cli.configuring:init", SET_UP, "Write a holdfast.toml with fresh secrets."),
    Entry("tenants", "holdfast.cli.tenants:tenants", SET_UP, "Who may hand in work: add and list tenants."),
    Entry("keys", "holdfast.cli.keys:keys", SET_UP, "API keys of tenants: create, list and revoke."),
    Entry("privacy", "holdfast.cli.privacy:privacy", SET_UP, "Forget a person; seal personal data under a new key."),
    Entry("config", "holdfast.cli.configuring:config", SET_UP, "See the settings in force."),
    Entry(
        "migrate",
        "holdfast.cli.migrating:migrate",
        SET_UP,
        "Create what the ledger needs: tables, or collections.",
    ),
    Entry("doctor", "holdfast.cli.doctor:doctor", SET_UP, "Check this installation and say what to do."),
    Entry("schema", "holdfast.cli.schemas:schema", SET_UP, "The contracts as JSON Schemas."),
    Entry("version", "holdfast.cli.versions:version", SET_UP, "Show what this is and what it runs on."),
)

app = typer.Typer(
    cls=LazyGroup,
    name="holdfast",
    help="Holdfast, the job gateway that never lets go.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    # A pretty traceback shows the values of variables, and some of those are secrets.
    pretty_exceptions_enable=False,
)
register(app, COMMANDS)


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code. Nothing that goes wrong ends in a traceback, unless asked for."""
    command = typer.main.get_command(app)
    try:
        command.main(args=None if arguments is None else list(arguments), prog_name="holdfast")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = PIPE_CLOSED
    except BaseException as error:  # noqa: BLE001 - the last frame of the program: it is told in words
        code = tell(error)
    else:  # pragma: no cover - typer always leaves by SystemExit
        code = 0
    return _flushed(code)


def _flushed(code: int) -> int:
    """The reader of a pipe may leave early (``| head``); that is no error worth a word at exit."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (BrokenPipeError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code or PIPE_CLOSED
    return code
