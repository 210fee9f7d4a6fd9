"""``schedules``: what is submitted again and again; run, pause and resume it."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.api.views import ScheduleView
from holdfast.contracts.schedules import Schedule
from holdfast.contracts.times import duration_ms
from holdfast.engine.intake import Receipt
from holdfast.engine.schedules import ScheduleState

from . import options
from .deciding import decision
from .opening import OWN_WORKLOADS, existing_system
from .options import user_name
from .output import moment, print_json, print_line, say, show_item, show_list, show_table

_NO_REASON: Final = "Resumed from the command line; no reason was given."
_EMPTY: Final = f"There are no schedules here. Write one with @app.schedule. {OWN_WORKLOADS}"

schedules = typer.Typer(help="See, run, pause and resume schedules.", no_args_is_help=True, add_completion=False)

Name = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The schedule's name.", show_default=False)]


@schedules.command("list")
async def list_(app: options.App = None, data: options.Data = None, json: options.Json = False) -> None:
    """List all schedules: when they tick next, in UTC and in their time zone, and how the last tick went."""
    async with existing_system(data, app) as system:
        found = await system.schedules.states()
    show_list(found, _row, _document, json=json, whole=("next", "there"), empty=_EMPTY)


@schedules.command("show")
async def show(name: Name, app: options.App = None, data: options.Data = None, json: options.Json = False) -> None:
    """Show one schedule: its rules, its last tick, its next times, and who paused it."""
    async with existing_system(data, app) as system:
        state = await system.schedules.state(name)
    schedule = state.schedule
    facts = {
        "schedule": schedule.name,
        "ticks": schedule.cron or schedule.expression,
        "time zone": schedule.timezone,
        "missed ticks": _CATCH_UP[schedule.catch_up],
        "jitter": f"up to {duration_ms(schedule.jitter) / 1000:g} s" if schedule.jitter else None,
        "workload": state.workload,
        "paused": _pause(state),
        "last tick": moment(state.last_tick) or "none yet",
        "its job": state.last_key,
        "its status": state.status or ("no longer in the ledger" if state.last_key else None),
        "last run by hand": moment(state.last_run),
    }
    title = "Next times, if it is resumed" if state.paused else "Next times"
    times = [(moment(each), _there(schedule, each)) for each in state.next]
    sections = {title: lambda: show_table(("UTC", schedule.timezone), times)}
    show_item(_document(state), facts, json=json, sections=sections)


@schedules.command("run")
def run(
    name: Name,
    actor: options.Actor = None,
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Submit one job of a schedule now, even if it is paused. A worker runs the job."""
    receipt, workload = asyncio.run(_run(name, actor or user_name(), app, data))
    if json:
        print_json({"workload": workload, "key": receipt.key, "jobId": receipt.job_id, "queued": receipt.queued})
        return
    print_line(receipt.key)
    say(f"One job of {name} is submitted. `holdfast jobs show {receipt.key}` shows it.")


@schedules.command("pause")
def pause(
    name: Name,
    reason: Annotated[str, typer.Option("--reason", help="Why; shown with the schedule.", show_default=False)],
    actor: options.Actor = None,
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Submit no more ticks, in all processes, until the schedule is resumed. Jobs that were submitted go on."""
    state = asyncio.run(_pause_or_resume(name, actor, reason, app, data, paused=True))
    if json:
        print_json(_document(state))
        return
    say(f"{name} is paused: {_pause(state)}. `holdfast schedules resume {name}` starts it again.")


@schedules.command("resume")
def resume(
    name: Name,
    reason: Annotated[
        str, typer.Option("--reason", help="Why; kept with the schedule.", show_default="that none was given")
    ] = _NO_REASON,
    actor: options.Actor = None,
    app: options.App = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Submit ticks again, from now on. Ticks that fell into the pause are skipped."""
    state = asyncio.run(_pause_or_resume(name, actor, reason, app, data, paused=False))
    if json:
        print_json(_document(state))
        return
    following = state.next[0]
    say(f"{name} is not paused. It ticks next at {moment(following)}{_in_its_zone(state.schedule, following)}.")


async def _run(name: str, actor: str, app: str | None, data: Path | None) -> tuple[Receipt, str]:
    async with existing_system(data, app) as system:
        receipt = await system.schedules.run(name, actor=actor)
        return receipt, (await system.schedules.state(name)).workload


async def _pause_or_resume(
    name: str, actor: str | None, reason: str, app: str | None, data: Path | None, *, paused: bool
) -> ScheduleState:
    why = decision(actor, reason)
    async with existing_system(data, app) as system:
        decide = system.schedules.pause if paused else system.schedules.resume
        return await decide(name, actor=why.actor, reason=why.reason)


# --- schedules for people -----------------------------------------------------------------------------------------

_CATCH_UP: Final = {
    "last": "the newest one is submitted",
    "all": "all are submitted, oldest first",
    "none": "they are skipped",
}


def _row(state: ScheduleState) -> dict[str, object]:
    schedule, following = state.schedule, state.next[0]
    return {
        "schedule": schedule.name,
        "ticks": schedule.expression,
        "next": "paused" if state.paused else f"{_short(following, '%Y-%m-%d ')}Z",
        "there": None if state.paused else _short(following.astimezone(schedule.zone), "%a "),
        "last": state.status,
    }


def _short(instant: datetime, day: str) -> str:
    """An instant to the minute, after its day in this format. Where seconds matter, it is soon, and needs no day."""
    return instant.strftime("%H:%M:%S" if instant.second else f"{day}%H:%M")


def _pause(state: ScheduleState) -> str | None:
    if not state.paused:
        return None
    return f"by {state.paused_by}, {moment(state.paused_at)}: {state.reason}"


def _there(schedule: Schedule, instant: datetime) -> str:
    return f"{instant.astimezone(schedule.zone):%a %Y-%m-%d %H:%M:%S %z}"


def _in_its_zone(schedule: Schedule, instant: datetime) -> str:
    return "" if schedule.timezone == "UTC" else f" ({_there(schedule, instant)}, {schedule.timezone})"


def _document(state: ScheduleState) -> dict[str, object]:
    return ScheduleView.of(state).as_json()
