"""The small Node system of ``tests/interop/node``: its API and its workers, as processes that a test starts and ends.

A pytest plugin: ``tests/conftest.py`` names it. ``node_system`` is one for the test's own Redis prefix and MongoDB
database; :class:`NodeSystem` takes any other place. The options of a process are the environment that the heads of
``gateway.mjs``, ``gateway-api.mjs`` and ``gateway-worker.mjs`` list, in lower case: ``start_worker(dates="all-text")``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.node import FOLDER

START_SECONDS = 120
END_SECONDS = 120
_AT_ONCE = 100


class NodeProcess:
    """One half of the system. ``address`` is the API's."""

    def __init__(self, script: str, environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                ["node", script],
                cwd=FOLDER,
                env=os.environ | environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.address: str | None = None

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def wait_until_ready(self) -> None:
        line = await asyncio.wait_for(asyncio.to_thread(self._process.stdout.readline), START_SECONDS)
        if not line:
            self.kill()
            raise AssertionError(self.log.read_text())
        self.address = json.loads(line).get("address")

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._over()

    async def terminate(self) -> int:
        """SIGTERM: it finishes what is under way. Answers the exit code."""
        self._process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(self._process.wait, END_SECONDS)
        self._over()
        return self._process.returncode

    def freeze(self) -> None:
        """Stop it in its tracks."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on as if no time had passed."""
        self._process.send_signal(signal.SIGCONT)

    def _over(self) -> None:
        self._process.wait()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()


class NodeSystem:
    """Any number of APIs and workers on one Redis and one MongoDB.

    ``database`` is where its records are; without one, its workers write nothing but ``applied`` (``{_id: key, times:
    n}``), which is in ``applied_database`` for the test to check.
    """

    def __init__(
        self,
        *,
        redis_url: str,
        prefix: str,
        mongo_uri: str,
        database: str | None,
        applied_database: str,
        folder: Path,
    ) -> None:
        self._environment = {
            "REDIS_URL": redis_url,
            "QUEUE_PREFIX": prefix,
            "MONGO_URI": mongo_uri,
            "MONGO_DB_NAME": database or "",
            "APPLIED_DB_NAME": applied_database,
        }
        self._folder = folder
        self.members: list[NodeProcess] = []

    async def start_api(self, **options: Any) -> NodeProcess:
        """Start a ``gateway-api`` and wait until it listens."""
        return await self._start("gateway-api", options)

    async def start_worker(self, **options: Any) -> NodeProcess:
        """Start a ``gateway-worker`` and wait until it works."""
        return await self._start("gateway-worker", options)

    async def post(self, api: NodeProcess, events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send the courier's events, several at a time; answers the receipts in their order."""
        slots = asyncio.Semaphore(_AT_ONCE)
        async with httpx.AsyncClient(base_url=api.address, timeout=END_SECONDS, trust_env=False) as client:

            async def one(event: dict[str, Any]) -> dict[str, Any]:
                async with slots:
                    answer = await client.post("/events", json=event)
                assert answer.status_code == 202, answer.text
                return answer.json()

            return await asyncio.gather(*(one(event) for event in events))

    async def stop(self, members: Sequence[NodeProcess] | None = None) -> None:
        """Let these, or all, finish what is under way and end."""
        await asyncio.gather(*(each.terminate() for each in members or self.members if each.alive))

    def kill(self) -> None:
        """End whatever still runs."""
        for each in self.members:
            each.kill()

    async def _start(self, script: str, options: dict[str, Any]) -> NodeProcess:
        environment = self._environment | {name.upper(): _value(value) for name, value in options.items()}
        log = self._folder / f"{len(self.members):02d}-{script}.log"
        process = NodeProcess(f"{script}.mjs", environment, log)
        self.members.append(process)
        await process.wait_until_ready()
        return process


def _value(option: Any) -> str:
    return str(option).lower() if isinstance(option, bool) else str(option)


@pytest.fixture
async def node_system(node_packages, redis_place, mongo, mongo_database, tmp_path) -> AsyncIterator[NodeSystem]:
    """The Node system on the test's own prefix and database. What it applied is counted in ``applied`` there."""
    system = NodeSystem(
        redis_url=redis_place.url,
        prefix=redis_place.prefix,
        mongo_uri=mongo.uri,
        database=mongo_database,
        applied_database=mongo_database,
        folder=tmp_path,
    )
    yield system
    system.kill()
