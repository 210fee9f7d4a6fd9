"""A place for kill tests: one SQLite file, real processes on it, load from outside, and a checker at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.config import load
from holdfast.wiring import DATABASE_FILE, open_system

from . import witness
from .checker import Report, Witnessed, check
from .counted_work import GATES_VARIABLE, MAX_ATTEMPTS, RUNS_VARIABLE, app
from .desk import Desk
from .downstream import Downstream
from .load import SECRET, SOURCE, TOKEN, Author, Load, Message, Outcome
from .processes import Fleet

DRAIN_SECONDS: Final = 120

_UNSETTLED: Final = """
SELECT (SELECT count(*) FROM ledger_entries WHERE status NOT IN ('processed', 'dead_lettered', 'expired'))
     + (SELECT count(*) FROM queue_jobs WHERE queue NOT LIKE '%-dlq')
     + (SELECT count(*) FROM dead_letters WHERE published = 0 AND review_status = 'pending')
     + (SELECT count(*) FROM dead_letters WHERE published = 1 AND review_status IN ('replayed', 'closed'))
"""


@dataclass(frozen=True, slots=True)
class Arena:
    """What a kill test works with."""

    folder: Path
    chance: random.Random
    fleet: Fleet
    downstream: Downstream
    author: Author
    load: Load
    desk: Desk
    max_attempts: int

    @property
    def database(self) -> Path:
        return self.folder / DATABASE_FILE

    def open_gate(self, name: str) -> None:
        (self.folder / "gates" / name).touch()

    def runs(self) -> list[tuple[str, int, int, str]]:
        """The handler runs so far: key, generation, attempt, worker."""
        path = self.folder / "runs"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

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

    @contextlib.asynccontextmanager
    async def under_load(self) -> AsyncIterator[None]:
        """Clients and an operator at work."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.load.run())
            group.create_task(self.desk.run())
            try:
                yield
            finally:
                self.load.stop()
                self.desk.stop()

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
        await self.until(_UNSETTLED)

    def check(self) -> Report:
        return check(
            self.database,
            Witnessed(
                history=self.load.history,
                asked_replays=frozenset(self.desk.asked),
                acknowledged_replays=frozenset(self.desk.replayed),
                runs=self.runs(),
                max_attempts=self.max_attempts,
                taken_downstream=self.downstream.taken,
            ),
        )


@contextlib.asynccontextmanager
async def arena(
    folder: Path,
    seed: int,
    *,
    modes: tuple[str, ...] | None = None,
    **settings: str,
) -> AsyncIterator[Arena]:
    """An arena with its tables made and its witness in place; all that runs in it ends with it."""
    chance = random.Random(seed)
    author = Author(chance) if modes is None else Author(chance, modes)
    (folder / "gates").mkdir()
    async with Downstream() as downstream:
        environment = _environment(folder, downstream) | settings
        async with open_system(load(environment, folder), app):
            pass  # makes the tables, as the first process of an installation would
        witness.install(folder / DATABASE_FILE)
        async with Fleet(environment, folder) as fleet:
            load_ = Load(author, chance, lambda: fleet.addresses)
            desk = Desk(chance, lambda: fleet.addresses)
            attempts = int(environment["RETRY_MAX_ATTEMPTS"])
            yield Arena(folder, chance, fleet, downstream, author, load_, desk, attempts)


def _environment(folder: Path, downstream: Downstream) -> dict[str, str]:
    """Everything short, so that what heals by waiting heals soon."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HOLDFAST_DATA": str(folder),
        "API_PORT": "0",
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
