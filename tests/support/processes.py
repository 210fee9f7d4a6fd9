"""Real gateway processes: started, killed, stopped and continued by the test that owns them, and by nobody else."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from .nursery import Child, nursery

ROOT: Final = Path(__file__).parents[2]
START_SECONDS: Final = 120


class GatewayProcess:
    """One process. ``address`` is its API's; None for a worker, and for a process that died before it was ready."""

    def __init__(self, process: Child, roles: tuple[str, ...], log: Path) -> None:
        self._process = process
        self.roles = roles
        self.log = log
        self.address: str | None = None
        self.ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    @property
    def exit_code(self) -> int | None:
        """Negative: the number of the signal that ended it."""
        return self._process.returncode

    async def wait_until_ready(self) -> None:
        """Return once it is up, or has died on the way there (an armed process may)."""
        line = await asyncio.wait_for(self._process.first_line(), START_SECONDS)
        if line:
            told = json.loads(line)
            self.address, self.ready = told["address"], told["ready"]
        else:
            await self.ended(START_SECONDS)

    async def ended(self, within: float) -> int:
        """The exit code, once there is one."""
        return await asyncio.wait_for(self._process.wait(), within)

    def signal(self, number: signal.Signals) -> None:
        """Does nothing to a process that has ended."""
        self._process.signal(number)

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self.ended(START_SECONDS)

    async def terminate(self, within: float = START_SECONDS) -> int:
        self.signal(signal.SIGTERM)
        return await self.ended(within)


class Fleet:
    """All processes of one test. Whatever happens in the test, none of them is left when it ends."""

    def __init__(self, environment: Mapping[str, str], logs: Path) -> None:
        self.environment = dict(environment)
        self._logs = logs
        self._numbers = itertools.count()
        self.members: list[GatewayProcess] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self.members:
            member.signal(signal.SIGKILL)
        for member in self.members:
            await member.ended(START_SECONDS)

    async def start(self, *roles: str, **settings: str) -> GatewayProcess:
        """Start a process and wait until it is ready, or dead."""
        log = self._logs / f"{next(self._numbers):04d}-{'-'.join(roles)}.log"
        process = await nursery().start(self.environment | settings, roles, log)
        member = GatewayProcess(process, roles, log)
        self.members.append(member)
        await member.wait_until_ready()
        return member

    @property
    def addresses(self) -> list[str]:
        """The APIs that are believed to be up."""
        return [member.address for member in self.members if member.address and member.alive]
