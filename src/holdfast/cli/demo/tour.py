"""The tour: opens the stage, plays every chapter, and tells whether all went as expected."""

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
from .downstream import Downstream, Mood
from .email_chapters import EMAIL_CHAPTERS
from .fates import NOT_REACHED, Fate, all_as_expected
from .folder import DemoFolder, claimed
from .mail_server import MailServer
from .narration import Narrator
from .server import MAX_ATTEMPTS, DemoSecrets, Server, ServerFailed, environment
from .stage import Stage, Surprise

Value = int | tuple[int, ...]
"""Of a setting that is shortened."""


def take_tour(
    narrator: Narrator,
    data: Path,
    *,
    deployment: Deployment | None = None,
    chapters: Sequence[Chapter] | None = None,
    mood: Mood = Mood.WORKING,
    command: Sequence[str] | None = None,
) -> bool:
    """Play the chapters on a fresh data folder; whether every fate is the expected one, and the server stopped well.

    The deployment, embedded by default, has the chapters and the command that belong to it; those on emails and on
    documents follow where the libraries for them are installed. ``mood`` is how the downstream treats events that no
    chapter says anything about. Raises :class:`ConfigurationError` for a folder that is not the demo's to use, and
    :class:`ServerMissing` when a server of the deployment does not start. Whatever happens, no process is left.
    """
    began = time.monotonic()
    deployment = deployment or Embedded()
    cli = deployment.cli(data)
    with contextlib.ExitStack() as opened:
        folder = opened.enter_context(claimed(data))
        keys = DemoSecrets()
        downstream = Downstream(keys.downstream, mood)
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
    except ServerMissing as error:
        actual = "Valkey did not start"
        stage.narrator.trouble(f"{actual}.", str(error))
    return actual


def _by_duty(server: Server) -> dict[str, list[int]]:
    duties = dict.fromkeys(server.parts.values())
    return {duty: [pid for pid, its in server.parts.items() if its == duty] for duty in duties}


def _open(narrator: Narrator, deployment: Deployment, shortened: Mapping[str, Value]) -> None:
    narrator.opening(
        "Holdfast takes in events, emails and documents from others, and never loses one that it has accepted.",
        f"{deployment.introduction} It plays those who send, the operator who looks after everything, and the systems "
        "next in line, which misbehave on purpose. Everything stays on this machine.",
    )
    narrator.say("So that you need not wait long, these settings are shorter than they would be by default:")
    narrator.settings([(name, _shown(here), _shown(_default(name))) for name, here in shortened.items()])
    narrator.say(
        f"An event gets {MAX_ATTEMPTS} attempts. With the default settings the waits in between would be about "
        f"{_default_waits()} seconds."
    )
    for what, absent in (("emails", mailing.missing()), ("documents", reading.missing())):
        if absent:
            narrator.say(f"The chapters on {what} are left out, without {', '.join(absent)}. To see them, install:")
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
    narrator.plain(f"Everything is still there to look at. What the server logged is in {log}.")
    told, commands = "The dead letters, and the event that took three attempts", ["dlq list", f"events show {SLOW.key}"]
    if not mailing.missing():
        told, commands = f"{told}; the emails", [*commands, "emails list"]
    if not reading.missing():
        results = shlex.quote(str(data / folder.documents.name / "results"))
        narrator.plain(f"What it read is in {results}: text.txt, document.md and result.json of each document.")
        told, commands = f"{told}; the documents", [*commands, "documents list"]
    for way in deployment.ways_to_look(data, ToLookAt(f"{told}:", [cli(each) for each in commands])):
        narrator.plain(way.sentence)
        for line in way.commands:
            narrator.plain(f"  {line}", style="cyan")
