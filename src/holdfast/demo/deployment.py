"""The two deployments of Holdfast, and their differences in the tour."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from holdfast.cli.servers import ServerPair
from holdfast.wiring import DATABASE_FILE

from .chapters import CHAPTERS, Chapter
from .folder import DemoFolder
from .narration import Narrator
from .server import COMMAND, SHORTENED

_QUERY: Final = "SELECT idempotencyKey, status, generation, attemptCount, note FROM processed_events"

_IN_QUEUE: Final = "SELECT data FROM queue_jobs WHERE queue = ? ORDER BY seq"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The settings of the program, and the servers of a cluster."""

    settings: dict[str, str]
    queued: Callable[[str], Sequence[Mapping[str, Any]]]
    """The waiting jobs of a queue, by its name."""
    servers: ServerPair | None = None


class ToLookAt(NamedTuple):
    """Something for the reader to look at: a sentence, and command lines to copy."""

    sentence: str
    commands: Sequence[str]


class Deployment(Protocol):
    """Where Holdfast keeps its ledger and its queue, and in how many processes it runs."""

    introduction: ClassVar[str]
    command: ClassVar[Sequence[str]]
    chapters: ClassVar[Sequence[Chapter]]
    shortened: ClassVar[Mapping[str, int]]
    """Settings that make the tour quick. The tour shows them with their defaults."""

    def opened(self, folder: DemoFolder, narrator: Narrator) -> contextlib.AbstractContextManager[Surroundings]:
        """Start what the program needs, and stop it after the body."""
        ...

    def cli(self, data: Path) -> Callable[[str], str]:
        """A function that makes command lines for this data folder."""
        ...

    def ways_to_look(self, data: Path, commands: ToLookAt) -> Sequence[ToLookAt]:
        """What to look at after the tour: ``commands`` of the program, and the rest."""
        ...


class Embedded:
    """One process, and one SQLite file."""

    introduction: ClassVar[str] = "This tour starts the real server."
    command: ClassVar[Sequence[str]] = COMMAND
    chapters: ClassVar[Sequence[Chapter]] = CHAPTERS
    shortened: ClassVar[Mapping[str, int]] = SHORTENED

    @contextlib.contextmanager
    def opened(self, folder: DemoFolder, narrator: Narrator) -> Iterator[Surroundings]:  # noqa: ARG002 - of the protocol
        """Needs only the folder."""
        yield Surroundings({}, partial(_queued, folder.database))

    def cli(self, data: Path) -> Callable[[str], str]:
        """The folder is given by an option."""
        name = program()
        return lambda arguments: f"{name} {arguments} --data {shlex.quote(str(data))}"

    def ways_to_look(self, data: Path, commands: ToLookAt) -> Sequence[ToLookAt]:
        """The commands, and the SQLite file itself."""
        database = shlex.quote(str(data / DATABASE_FILE))
        # The sqlite3 shell may be missing; Python is there.
        code = f'import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute("{_QUERY}"), sep="\\n")'
        tables = "In SQLite, the ledger and the rest: processed_events, active_shipments, dead_letter_events."
        return [commands, ToLookAt(tables, (f"python3 -c '{code}' {database}",))]


def _queued(database: Path, queue: str) -> list[Mapping[str, Any]]:
    with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        jobs = connection.execute(_IN_QUEUE, (queue,)).fetchall()
    return [json.loads(data) for (data,) in jobs]


def program() -> str:
    """The name with which the user can call the program."""
    if shutil.which("holdfast"):
        return "holdfast"
    if Path(sys.argv[0]).name == "holdfast":
        return shlex.quote(sys.argv[0])
    return f"{shlex.quote(sys.executable)} -m holdfast"
