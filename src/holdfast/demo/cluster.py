"""The cluster of the tour: the ledger in MongoDB, the queue in Valkey, one API and three workers."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from holdfast.cli.servers import ServerPair

from . import external_producer, mailing
from .chapters import Chapter
from .cluster_chapters import CLUSTER_CHAPTERS
from .deployment import Surroundings, ToLookAt, program
from .folder import DemoFolder
from .leftovers import CLUSTER_FILE, MONGO_DATABASE, SERVERS
from .narration import Narrator
from .server import COMMAND, SHORTENED

WORKERS: Final = 3
"""The narration names this number."""
_NAMES: Final = (
    "REDIS_URL",
    "MONGO_URI",
    "MONGO_DB_NAME",
    "QUEUE_PREFIX",
    "EMAIL_PEPPER",
    "EMAIL_KEYS",
    "DOCUMENT_FOLDER",
)


class Cluster:
    """A Valkey and a mongod in the demo's folder, and the program in several processes."""

    introduction: ClassVar[str] = (
        "This tour starts a real cluster: MongoDB for the ledger, Valkey (compatible with Redis) for the queue, and "
        "the server as one API process and three worker processes."
    )
    command: ClassVar[Sequence[str]] = (*COMMAND, "--processes", str(WORKERS))
    chapters: ClassVar[Sequence[Chapter]] = CLUSTER_CHAPTERS
    shortened: ClassVar[Mapping[str, int]] = SHORTENED | {"PUBLISH_GRACE_MS": 1_000}

    @contextlib.contextmanager
    def opened(self, folder: DemoFolder, narrator: Narrator) -> Iterator[Surroundings]:
        """Run both servers during the body. Raises ``ServerMissing`` if they do not start."""
        servers = ServerPair(folder.servers)
        settings = {
            "REDIS_URL": servers.redis_url,
            "MONGO_URI": servers.mongo_uri,
            "MONGO_DB_NAME": MONGO_DATABASE,
            "DOCUMENT_FOLDER": str(folder.documents),
        } | ({} if mailing.missing() else mailing.fresh_keys())
        try:
            servers.start()
            _write(folder.cluster_file, settings)
            narrator.event(f"MongoDB is up: process {servers.mongod.pid}.")
            narrator.event(f"Valkey is up: process {servers.valkey.pid}.")
            yield Surroundings(settings, partial(external_producer.waiting, servers.redis_url), servers)
        finally:
            servers.stop()

    def cli(self, data: Path) -> Callable[[str], str]:
        """The addresses are in a file. Variables with a higher priority than the file are emptied."""
        taken = [f"{name}= " for name in _NAMES if os.environ.get(name)]
        prefix = f"{''.join(taken)}HOLDFAST_CONFIG={shlex.quote(str(data / CLUSTER_FILE))} {program()}"
        return lambda arguments: f"{prefix} {arguments}"

    def ways_to_look(self, data: Path, commands: ToLookAt) -> Sequence[ToLookAt]:
        """Commands for looking, after the servers are started again."""
        where = shlex.quote(str(data / SERVERS))
        again = f"{shlex.quote(sys.executable)} -m holdfast.cli.servers {where}"
        return [
            ToLookAt("MongoDB and Valkey have stopped. To start them again, in another terminal:", (again,)),
            commands,
            ToLookAt(
                f"In MongoDB, the database {MONGO_DATABASE} has the ledger and the rest: processed_events, "
                "active_shipments, dead_letter_events.",
                (),
            ),
        ]


def _write(file: Path, settings: Mapping[str, str]) -> None:
    lines = [f"{name.lower()} = {json.dumps(value)}" for name, value in settings.items()]
    file.touch(mode=0o600)  # it has the keys of the sealed data in the demo's ledger
    file.write_text("\n".join(["# Made by `holdfast demo --cluster`.", *lines, ""]), encoding="utf-8")
