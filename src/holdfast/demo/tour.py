"""The tour: prepares the stage, runs every chapter, and returns whether all went as expected."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx

from holdfast.cli.servers import ServerMissing
from holdfast.config import Settings
from holdfast.contracts.extras import install_command

from . import mailing, reading
from .chapters import SLOW, Chapter
from .clients import Clients
from .deployment import Deployment, Embedded, ToLookAt
from .document_chapters import DOCUMENT_CHAPTERS
from .downstream import Behaviour, Downstream
from .email_chapters import EMAIL_CHAPTERS
from .fates import NOT_REACHED, Fate, all_as_expected
from .folder import DemoFolder, claimed
from .mail_server import MailServer
from .narration import Narrator
from .server import MAX_ATTEMPTS, DemoSecrets, Server, ServerFailed, environment
from .stage import Stage, Unexpected

Value = int | tuple[int, ...]
"""The value of a shortened setting."""


def take_tour(  # noqa: PLR0913 - tests choose its parts
    narrator: Narrator,
    data: Path,
    *,
    deployment: Deployment | None = None,
    chapters: Sequence[Chapter] | None = None,
    behaviour: Behaviour = Behaviour.WORKING,
    command: Sequence[str] | None = None,
) -> bool:
    """Run the chapters in a fresh data folder. True if all fates are as expected and the server stopped in order.

    The deployment, embedded by default, has its chapters and its command. The chapters on emails and documents follow,
    if their libraries are installed. ``behaviour`` is that of the downstream for all other events. Raises
    :class:`ConfigurationError` for a folder that the demo may not use, and :class:`ServerMissing` if a server of the
    deployment does not start. No process is left in any case.
    """
    began = time.monotonic()
    deployment = deployment or Embedded()
    cli = deployment.cli(data)
    with contextlib.ExitStack() as opened:
        folder = opened.enter_context(claimed(data))
        keys = DemoSecrets()
        downstream = Downstream(keys.downstream, behaviour)
        url = opened.enter_context(downstream.listening())
        mail = MailServer(folder.mailbox)
        port = opened.enter_context(mail.listening())
        clients = Clients(keys.operator)
        opened.callback(clients.close)

        emails, documents = not mailing.missing(), not reading.missing()
        shortened = {
            **deployment.shortened,
            **(mailing.SHORTENED if emails else {}),
            **(reading.SHORTENED if documents else {}),
        }
        _open(narrator, deployment, shortened)
        around = opened.enter_context(deployment.opened(folder, narrator))
        settings = around.settings | {name: _written(value) for name, value in shortened.items()}
        settings |= mailing.settings(port) if emails else {}
        settings |= reading.settings() if documents else {}
        server = Server(folder, environment(os.environ, folder, keys, url, settings), command or deployment.command)
        opened.callback(server.stop)
        try:
            clients.connect(server.start())
        except ServerFailed as error:
            narrator.trouble(str(error), error.log_tail)
            return False
        narrator.event(f"The server is up: process {server.pid}.")
        if server.parts:
            narrator.facts({f"{duty} processes": ", ".join(map(str, pids)) for duty, pids in _by_duty(server).items()})
        stage = Stage(narrator, server, clients, downstream, mail, keys, folder, cli, around.queued, around.servers)
        whole = (
            *deployment.chapters,
            *(EMAIL_CHAPTERS if emails else ()),
            *(DOCUMENT_CHAPTERS if documents else ()),
        )
        fates = play(stage, whole if chapters is None else chapters)
        code = server.stop()

    narrator.closing(fates, time.monotonic() - began)
    if code != 0:
        narrator.trouble(f"The server did not stop in order: exit code {code}.", server.log_tail())
    _say_where_things_are(narrator, deployment, folder, data, cli)
    return all_as_expected(fates) and code == 0


def play(stage: Stage, chapters: Sequence[Chapter]) -> list[Fate]:
    """Run the chapters in order. A chapter that fails does not stop the others."""
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
    except Unexpected as unexpected:
        actual = str(unexpected)
        stage.narrator.trouble(f"That was not expected: {actual}.", "")
    except httpx.HTTPError as error:
        actual = f"no answer from the server ({type(error).__name__})"
        stage.narrator.trouble(f"The demo got {actual}.", stage.server.log_tail())
    except ServerFailed as error:
        actual = "the server did not start"
        stage.narrator.trouble(str(error), error.log_tail)
    except ServerMissing as error:
        actual = "Valkey did not start"
        stage.narrator.trouble(f"{actual}.", str(error))
    return actual


def _by_duty(server: Server) -> dict[str, list[int]]:
    duties = dict.fromkeys(server.parts.values())
    return {duty: [pid for pid, its in server.parts.items() if its == duty] for duty in duties}


def _open(narrator: Narrator, deployment: Deployment, shortened: Mapping[str, Value]) -> None:
    narrator.opening(
        "Holdfast accepts events, emails and documents, and never loses one that it has accepted.",
        f"{deployment.introduction} The tour itself plays the senders, the operator and the systems behind Holdfast, "
        "which fail on purpose. Everything stays on this machine.",
    )
    narrator.say("To make the tour short, these settings are smaller than their defaults:")
    narrator.settings([(name, _shown(here), _shown(_default(name))) for name, here in shortened.items()])
    narrator.say(
        f"An event gets {MAX_ATTEMPTS} attempts. With the default settings the waits between them are about "
        f"{_default_waits()} seconds."
    )
    for what, absent in (("emails", mailing.missing()), ("documents", reading.missing())):
        if absent:
            narrator.say(
                f"The chapters on {what} are skipped: {', '.join(absent)} not installed. To see them, install:"
            )
            narrator.plain(f"      {install_command(absent)}", style="cyan")


def _default(name: str) -> Value:
    default: Value = Settings.model_fields[name.lower()].default
    return default


def _shown(value: Value) -> str:
    return f"{value:,}" if isinstance(value, int) else ", ".join(map(str, value))


def _written(value: Value) -> str:
    return str(value) if isinstance(value, int) else ",".join(map(str, value))


def _default_waits() -> str:
    base = int(Settings.model_fields["retry_backoff_base_ms"].default) / 1000
    factor = float(Settings.model_fields["retry_backoff_multiplier"].default)
    waits = [f"{base * factor**failure:g}" for failure in range(MAX_ATTEMPTS - 1)]
    return f"{', '.join(waits[:-1])} and {waits[-1]}"


def _say_where_things_are(
    narrator: Narrator, deployment: Deployment, folder: DemoFolder, data: Path, cli: Callable[[str], str]
) -> None:
    log = shlex.quote(str(data / folder.log.name))
    narrator.plain("")
    narrator.plain(f"All data is still there. The server's log is in {log}.")
    shown, commands = "The dead letters, and the event with three attempts", ["dlq list", f"events show {SLOW.key}"]
    if not mailing.missing():
        shown, commands = f"{shown}; the emails", [*commands, "emails list"]
    if not reading.missing():
        results = shlex.quote(str(data / folder.documents.name / "results"))
        narrator.plain(f"The texts are in {results}: text.txt, document.md and result.json of each document.")
        shown, commands = f"{shown}; the documents", [*commands, "documents list"]
    for way in deployment.ways_to_look(data, ToLookAt(f"{shown}:", [cli(each) for each in commands])):
        narrator.plain(way.sentence)
        for line in way.commands:
            narrator.plain(f"  {line}", style="cyan")
