"""``queue``: how many jobs wait; pause and resume queues."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from holdfast.contracts.errors import InvalidQuery
from holdfast.contracts.queues import Depth
from holdfast.wiring import System

from . import options
from .opening import existing_system
from .output import say, show_list

queue = typer.Typer(help="See how many jobs wait; pause and resume.", no_args_is_help=True, add_completion=False)

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="[QUEUE]",
        help="A queue or a workload; otherwise the main queue of every workload.",
        show_default=False,
    ),
]


@queue.command("status")
async def status(
    name: Name = None, app: options.App = None, data: options.Data = None, json: options.Json = False
) -> None:
    """Show how many jobs each queue holds, dead-letter queues included."""
    async with existing_system(data, app) as system:
        queues = _queues(system, name, every=True)
        found = [(queue, workload, await system.broker.depth(queue)) for queue, workload in queues]

    def facts(queue: str, workload: str, depth: Depth) -> dict[str, object]:
        jobs = {"ready": depth.ready, "delayed": depth.delayed, "active": depth.active}
        return {"queue": queue, "workload": workload, **jobs}

    show_list(
        found,
        lambda each: {**facts(*each), "": _pause(each[2])},
        lambda each: {**facts(*each), "paused": each[2].paused, "pausedBecause": each[2].paused_because},
        json=json,
        whole=("queue",),
    )


def _pause(depth: Depth) -> str:
    if not depth.paused:
        return ""
    return f"paused: {depth.paused_because}" if depth.paused_because else "paused"


@queue.command("pause")
def pause(name: Name = None, app: options.App = None, data: options.Data = None) -> None:
    """Stop delivering jobs to workers, in every process, until resumed. New jobs are still accepted."""
    for each in asyncio.run(_switch(name, app, data, paused=True)):
        say(f"{each} is paused. `holdfast queue resume` starts it again.")


@queue.command("resume")
def resume(name: Name = None, app: options.App = None, data: options.Data = None) -> None:
    """Deliver jobs to workers again."""
    for each in asyncio.run(_switch(name, app, data, paused=False)):
        say(f"{each} delivers jobs again.")


async def _switch(name: str | None, app: str | None, data: Path | None, *, paused: bool) -> list[str]:
    async with existing_system(data, app) as system:
        queues = [queue for queue, _ in _queues(system, name, every=False)]
        for each in queues:
            await (system.broker.pause(each) if paused else system.broker.resume(each))
        return queues


def _queues(system: System, name: str | None, *, every: bool) -> list[tuple[str, str]]:
    """The chosen queues, each with the name of its workload."""
    main = [(workload.queue, workload.name) for workload in system.workloads.values()]
    dead = [(workload.dead_letter_queue, workload.name) for workload in system.workloads.values()]
    if name is None:
        return main + dead if every else main
    exact = [pair for pair in main + dead if pair[0] == name]
    chosen = exact or [pair for pair in (main + dead if every else main) if pair[1] == name]
    if not chosen:
        known = ", ".join(queue for queue, _ in main + dead)
        message = f"There is no queue {name!r} here; there are {known}. Queues of your own workloads need --app."
        raise InvalidQuery(message)
    return chosen
