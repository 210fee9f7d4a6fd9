"""Running the program in this process, and preparing stores for it to look at."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.cli import main
from holdfast.contracts.queries import LetterQuery, Page
from holdfast.wiring import open_system
from tests.cli.parcels import Parcel, app
from tests.support.settings import Settings
from tests.support.waiting import eventually

APP = "tests.cli.parcels:app"
SECRET = "canary-BXq7vLw2Tn9sRk4e"
TOKEN = "canary-Zr8mYp3uHd6cGf1j"

ENVIRONMENT = {
    "COURIER_SECRETS": json.dumps({"courier-x": [SECRET]}),
    "OPERATOR_TOKEN": TOKEN,
    "UPKEEP_INTERVAL_MS": "50",
    "USER": "ana",
    "LOG_FORMAT": "json",
    "LOG_LEVEL": "debug",
}


@dataclass(frozen=True)
class Said:
    """What a run of the program said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Program:
    """The program, in this process. Whatever it says, it must not say a secret."""

    def __init__(self, capsys) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Said:
        self._capsys.readouterr()
        code = main(arguments)
        said = Said(code, *self._capsys.readouterr())
        assert_no_secrets(said.out + said.err)
        assert "Traceback" not in said.err
        return said


def assert_no_secrets(text: str) -> None:
    assert SECRET not in text
    assert TOKEN not in text


def settings(data: Path) -> Settings:
    return Settings(holdfast_data=data, upkeep_interval_ms=50)


def make_dead_letters(data: Path, *parcels: Parcel) -> list[str]:
    """Run parcels with a real worker until all are dead-lettered; returns their letters' ids, oldest first."""

    async def live() -> list[str]:
        async with open_system(settings(data), app) as system:
            for parcel in parcels:
                await system.intake.accept(system.workloads["parcels"], parcel)
            stop = asyncio.Event()
            working = asyncio.create_task(system.worker().run(stop))

            async def all_are_dead() -> bool:
                return await system.review.count(LetterQuery()) == len(parcels)

            await eventually(all_are_dead)
            stop.set()
            await working
            found = await system.review.list(LetterQuery(), Page(1000))
            return [letter.id for letter in found.items]

    return asyncio.run(live())


def make_empty_ledger(data: Path) -> None:
    async def live() -> None:
        async with open_system(settings(data)):
            pass

    asyncio.run(live())


def work_until_idle(data: Path) -> None:
    """Run a worker until nothing is left to do."""

    async def live() -> None:
        async with open_system(settings(data), app) as system:
            stop = asyncio.Event()
            working = asyncio.create_task(system.worker().run(stop))

            async def idle() -> bool:
                return not await _open_jobs(system)

            await eventually(idle)
            stop.set()
            await working

    asyncio.run(live())


async def _open_jobs(system) -> int:
    counts = await system.store.counts("parcels")
    return sum(counts.get(each, 0) for each in ("received", "processing", "failed"))
