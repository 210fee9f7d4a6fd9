"""The tour: opens the stage, plays every chapter, and tells whether all went as expected."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import httpx

from holdfast.config import Settings

from .chapters import CHAPTERS, SLOW, Chapter
from .clients import Clients
from .downstream import Downstream, Mood
from .fates import NOT_REACHED, Fate, all_as_expected
from .folder import DemoFolder, claimed
from .narration import Narrator
from .server import COMMAND, MAX_ATTEMPTS, SHORTENED, DemoSecrets, Server, ServerFailed, environment
from .stage import Stage, Surprise

_QUERY: Final = "SELECT idempotencyKey, status, generation, attemptCount, note FROM processed_events"


def take_tour(
    narrator: Narrator,
    data: Path,
    *,
    chapters: Sequence[Chapter] = CHAPTERS,
    mood: Mood = Mood.WORKING,
    command: Sequence[str] = COMMAND,
) -> bool:
    """Play the chapters on a fresh data folder; whether every fate is the expected one, and the server stopped well.

    ``mood`` is how the downstream treats events that no chapter says anything about. Raises
    :class:`ConfigurationError` for a folder that is not the demo's to use.
    """
    began = time.monotonic()
    cli = _cli_on(data)
    with contextlib.ExitStack() as opened:
        folder = opened.enter_context(claimed(data))
        keys = DemoSecrets()
        downstream = Downstream(keys.downstream, mood)
        url = opened.enter_context(downstream.listening())
        clients = Clients(keys.operator)
        opened.callback(clients.close)
        server = Server(folder, environment(os.environ, folder, keys, url), command)
        opened.callback(server.stop)

        _open(narrator)
        try:
            clients.connect(server.start())
        except ServerFailed as error:
            narrator.trouble(str(error), error.log_tail)
            return False
        narrator.event(f"The server is up: process {server.pid}.")
        stage = Stage(narrator, server, clients, downstream, keys, cli)
        fates = play(stage, chapters)
        code = server.stop()

    narrator.closing(fates, time.monotonic() - began)
    if code != 0:
        narrator.trouble(f"The server did not stop in order: exit code {code}.", server.log_tail())
    _say_where_things_are(narrator, folder, data, cli)
    return all_as_expected(fates) and code == 0


def play(stage: Stage, chapters: Sequence[Chapter]) -> list[Fate]:
    """Play the chapters in order. One that goes wrong does not keep the others from being told."""
    fates = []
    for chapter in chapters:
        actual = NOT_REACHED
        if stage.server.alive:
            stage.narrator.chapter(chapter.title)
            actual = _played(stage, chapter)
        fates.append(Fate(chapter.event, chapter.expected, actual))
    return fates


def _played(stage: Stage, chapter: Chapter) -> str:
    try:
        return chapter.play(stage)
    except Surprise as surprise:
        actual = str(surprise)
        stage.narrator.trouble(f"That was not expected: {actual}.", "")
    except httpx.HTTPError as error:
        actual = f"no answer from the server ({type(error).__name__})"
        stage.narrator.trouble(f"The demo got {actual}.", stage.server.log_tail())
    except ServerFailed as error:
        actual = "the server did not start"
        stage.narrator.trouble(str(error), error.log_tail)
    return actual


def _open(narrator: Narrator) -> None:
    narrator.opening(
        "Holdfast takes in events from others, and never loses one that it has accepted.",
        "This tour starts the real server. It plays the courier that sends events, the operator who looks after them, "
        "and a downstream system that misbehaves on purpose. Everything stays on this machine.",
    )
    narrator.say("So that you need not wait long, these settings are shorter than they would be by default:")
    narrator.settings([(name, f"{here:,}", f"{_default(name):,}") for name, here in SHORTENED.items()])
    narrator.say(
        f"An event gets {MAX_ATTEMPTS} attempts. With the default settings the waits in between would be about "
        f"{_default_waits()} seconds."
    )


def _default(name: str) -> int:
    return int(Settings.model_fields[name.lower()].default)


def _default_waits() -> str:
    base = _default("RETRY_BACKOFF_BASE_MS") / 1000
    factor = float(Settings.model_fields["retry_backoff_multiplier"].default)
    waits = [f"{base * factor**failure:g}" for failure in range(MAX_ATTEMPTS - 1)]
    return f"{', '.join(waits[:-1])} and {waits[-1]}"


def _say_where_things_are(narrator: Narrator, folder: DemoFolder, data: Path, cli: Callable[[str], str]) -> None:
    database, log = (shlex.quote(str(data / path.name)) for path in (folder.database, folder.log))
    # The sqlite3 shell may not be there; Python is.
    code = f'import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute("{_QUERY}"), sep="\\n")'
    narrator.plain("")
    narrator.plain(f"Everything is still there to look at. What the server logged is in {log}.")
    narrator.plain("The dead letter, and the event that took three attempts:")
    narrator.plain(f"  {cli('dlq list')}", style="cyan")
    narrator.plain(f"  {cli(f'events show {SLOW.key}')}", style="cyan")
    narrator.plain("In SQLite, the ledger and the rest: processed_events, active_shipments, dead_letter_events.")
    narrator.plain(f"  python3 -c '{code}' {database}", style="cyan")


def _cli_on(data: Path) -> Callable[[str], str]:
    """Writes command lines for this data folder, by the name under which the user can call the program."""
    if shutil.which("holdfast"):
        program = "holdfast"
    elif Path(sys.argv[0]).name == "holdfast":
        program = shlex.quote(sys.argv[0])
    else:
        program = f"{shlex.quote(sys.executable)} -m holdfast"
    return lambda arguments: f"{program} {arguments} --data {shlex.quote(str(data))}"
