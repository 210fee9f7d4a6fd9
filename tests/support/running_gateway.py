"""A gateway of real processes: a store, any number of APIs and workers on it, load from outside, and a checker.

:func:`running_gateway` is the embedded one, on one SQLite file; ``running_cluster`` has the one on Redis and MongoDB.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.wiring import DATABASE_FILE, open_system
from tests.support.settings import load

from . import witness
from .checker import Report, Witnessed, check
from .counted_work import GATES_VARIABLE, MAX_ATTEMPTS, RUNS_VARIABLE, app
from .downstream import Downstream
from .load import MODES, SECRET, SOURCE, TOKEN, Author, Load, Message, Outcome
from .processes import Fleet
from .reviewer import Reviewer
from .sqlite_truth import read_file
from .truth import Truth

DRAIN_SECONDS: Final = 120

_UNSETTLED: Final = """
SELECT (SELECT count(*) FROM ledger_entries WHERE status NOT IN ('processed', 'dead_lettered', 'expired'))
     + (SELECT count(*) FROM queue_jobs WHERE queue NOT LIKE '%-dlq')
     + (SELECT count(*) FROM dead_letters WHERE published = 0 AND review_status = 'pending')
     + (SELECT count(*) FROM dead_letters WHERE published = 1 AND review_status IN ('replayed', 'closed'))
"""


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """What a kill test works with. The two deployments differ in how they are looked at."""

    folder: Path
    chance: random.Random
    fleet: Fleet
    downstream: Downstream
    author: Author
    load: Load
    reviewer: Reviewer
    max_attempts: int

    def open_gate(self, name: str) -> None:
        (self.folder / "gates" / name).touch()

    def runs(self) -> list[tuple[str, int, int, str]]:
        """The handler runs so far: key, generation, attempt, worker."""
        path = self.folder / "runs"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

    @contextlib.asynccontextmanager
    async def under_load(self, *, entries: int = 0) -> AsyncIterator[None]:
        """Clients and an operator at work, until there are so many entries at least."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.load.run())
            group.create_task(self.reviewer.run())
            try:
                yield
                await self.acknowledged(entries)
            finally:
                self.load.stop()
                self.reviewer.stop()

    async def acknowledged(self, entries: int) -> None:
        """Wait until so many entries were acknowledged as new; give up when there is no more for a long time."""
        clock = asyncio.get_running_loop().time
        seen, end = self.load.entries, clock() + DRAIN_SECONDS
        while (found := self.load.entries) < entries:
            if found > seen:
                seen, end = found, clock() + DRAIN_SECONDS
            assert clock() < end, f"still {found} of {entries} entries; logs in {self.folder}"
            await asyncio.sleep(0.05)

    async def ask_again(self) -> None:
        """Half of the senders that were left without an answer ask once more; the others never do."""
        left = [sent.message for sent in self.load.history if sent.outcome is not Outcome.OK and sent.answer is None]
        for message in left[::2]:
            await self.load.send(message)

    async def accepted(self, *messages: Message) -> None:
        """Post messages that nothing stands in the way of."""
        for sent in await self.load.send(*messages):
            assert sent.outcome is Outcome.OK, f"{sent}; logs in {self.folder}"

    async def drained(self) -> None:
        """Wait until every entry is settled, the queues are worked off and the letters are published."""
        raise NotImplementedError

    def truth(self) -> Truth:
        """What was committed, read past Holdfast's own code."""
        raise NotImplementedError

    def check(self) -> Report:
        return check(
            self.truth(),
            Witnessed(
                history=self.load.history,
                asked_replays=frozenset(self.reviewer.asked),
                acknowledged_replays=frozenset(self.reviewer.replayed),
                runs=self.runs(),
                max_attempts=self.max_attempts,
                taken_downstream=self.downstream.taken,
            ),
        )


class EmbeddedGateway(RunningGateway):
    """The embedded deployment."""

    @property
    def database(self) -> Path:
        return self.folder / DATABASE_FILE

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.database, timeout=30)) as connection:
            return connection.execute(statement, values).fetchall()

    async def until(self, statement: str, *values: Any, equals: Any = 0, within: float = DRAIN_SECONDS) -> None:
        """Wait until the statement's one value is the wanted one."""
        clock = asyncio.get_running_loop().time
        end = clock() + within
        while (found := self.query(statement, *values)[0][0]) != equals:
            assert clock() < end, f"still {found} instead of {equals} after {within} s; logs in {self.folder}"
            await asyncio.sleep(0.05)

    async def drained(self) -> None:
        await self.until(_UNSETTLED)

    def truth(self) -> Truth:
        return read_file(self.database)


@contextlib.asynccontextmanager
async def running_gateway(
    folder: Path,
    seed: int,
    *,
    modes: tuple[str, ...] = MODES,
    **settings: str,
) -> AsyncIterator[EmbeddedGateway]:
    """A gateway with its tables made and its witness in place, and no process yet; all of them end with it."""

    def watched() -> None:
        witness.install(folder / DATABASE_FILE)

    async with parts_of(folder, seed, settings, modes, watched) as parts:
        yield EmbeddedGateway(**parts)


@contextlib.asynccontextmanager
async def parts_of(
    folder: Path,
    seed: int,
    settings: Mapping[str, str],
    modes: tuple[str, ...],
    made: Callable[[], None] = lambda: None,
) -> AsyncIterator[dict[str, Any]]:
    """The parts of a gateway. ``made`` is called when the store is ready and before the first process starts."""
    chance = random.Random(seed)
    author = Author(chance, modes)
    (folder / "gates").mkdir()
    async with Downstream() as downstream:
        variables = environment(folder, downstream) | settings
        async with open_system(load(variables, folder), app):
            pass  # makes the tables, as the first process of an installation would
        made()
        async with Fleet(variables, folder) as fleet:
            yield {
                "folder": folder,
                "chance": chance,
                "fleet": fleet,
                "downstream": downstream,
                "author": author,
                "load": Load(author, chance, lambda: fleet.addresses),
                "reviewer": Reviewer(chance, lambda: fleet.addresses),
                "max_attempts": int(variables["RETRY_MAX_ATTEMPTS"]),
            }


def environment(folder: Path, downstream: Downstream) -> dict[str, str]:
    """Everything short, so that what heals by waiting heals soon."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HOLDFAST_DATA": str(folder),
        "API_PORT": "0",
        "API_MAX_CONNECTIONS_PER_ADDRESS": "10000",  # all senders of a test have one address
        "OPERATOR_TOKEN": TOKEN,
        "COURIER_SECRETS": json.dumps({SOURCE: [SECRET]}),
        "COURIER_DOWNSTREAM_URL": downstream.url,
        "COURIER_DOWNSTREAM_SECRET": "d4Xe7Rb2Mw9Tq5Zk8Lp1",
        "WORKER_CONCURRENCY": "20",
        "WORKER_LEASE_SECONDS": "1",
        "WORKER_DRAIN_TIMEOUT_MS": "1000",
        "RETRY_MAX_ATTEMPTS": str(MAX_ATTEMPTS),
        "RETRY_BACKOFF_BASE_MS": "20",
        "RETRY_BACKOFF_MULTIPLIER": "1",
        "UPKEEP_INTERVAL_MS": "100",
        "PUBLISH_GRACE_MS": "50",
        "LOG_LEVEL": "warning",
        "LOG_FORMAT": "json",
        RUNS_VARIABLE: str(folder / "runs"),
        GATES_VARIABLE: str(folder / "gates"),
    }
