"""``queue``: how many jobs wait; pause and resume queues."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from holdfast.contracts.queues import Depth
from holdfast.wiring import System

from . import options
from .deciding import decision
from .failures import Stop
from .lookup import missing_app
from .opening import existing_system
from .output import say, show_list

queue = typer.Typer(help="See how many jobs wait; pause and resume.", no_args_is_help=True, add_completion=False)

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="QUEUE",
        help="A queue or a workload; otherwise the main queue of every workload.",
        show_default=False,
    ),
]


_BY: Final = "paused by "


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
        lambda each: {**facts(*each), "": _paused(each[2].paused_because) if each[2].paused else None},
        lambda each: {**facts(*each), "paused": each[2].paused, "pausedBecause": each[2].paused_because},
        json=json,
        whole=("queue",),
    )


def _paused(because: str | None) -> str:
    if because is None:
        return "paused"
    return because if because.startswith(_BY) else f"paused: {because}"


@queue.command("pause")
async def pause(
    name: Name = None,
    reason: Annotated[
        str | None,
        typer.Option(help="Why; shown until the queue is resumed.", show_default="that you paused it"),
    ] = None,
    actor: options.Actor = None,
    app: options.App = None,
    data: options.Data = None,
) -> None:
    """Stop delivering jobs to workers, in every process, until resumed. New jobs are still accepted."""
    by = decision(actor, "none" if reason is None else reason)
    why = f"{_BY}{by.actor}" if reason is None else f"{by.reason} ({by.actor})"
    async with existing_system(data, app) as system:
        for each, _ in _queues(system, name, every=False):
            depth = await system.broker.depth(each)
            if depth.paused:  # the first reason stays: somebody relies on it
                say(f"{each} is already {_paused(depth.paused_because)}.")
                continue
            await system.broker.pause(each, reason=why)
            say(f"{each} is {_paused(why)}. `holdfast queue resume {each}` starts it again.")


@queue.command("resume")
async def resume(name: Name = None, app: options.App = None, data: options.Data = None) -> None:
    """Deliver jobs to workers again."""
    async with existing_system(data, app) as system:
        for each, _ in _queues(system, name, every=False):
            await system.broker.resume(each)
            say(f"{each} delivers jobs again.")


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
        message = f"There is no queue {name!r} here; there are {known}."
        raise Stop(message, *missing_app(system))
    return chosen
