"""A gateway process of a test: the API, the worker, or both.

It is ``holdfast api`` and ``holdfast worker`` without the command line; ``tests.support.nursery`` starts it. Settings
come from the environment; once up, it prints ``{"ready": true, "address": ...}`` on standard output.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from holdfast import wiring
from tests.support.settings import load

from .counted_work import app
from .schedules import CLOCK_VARIABLE, move_clocks


def main(roles: Sequence[str]) -> None:
    # Whoever started this process holds the other end of its standard input: it must not outlive them.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if CLOCK_VARIABLE in os.environ:
        move_clocks(Path(os.environ[CLOCK_VARIABLE]))
    settings = load(os.environ, Path(os.environ["HOLDFAST_DATA"]))
    asyncio.run(wiring.run(settings, app, api="api" in roles, worker="worker" in roles, ready=_ready))


def _ready(address: str | None) -> None:
    sys.stdout.write(json.dumps({"ready": True, "address": address}) + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(70)
