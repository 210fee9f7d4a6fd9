"""``/v1/schedules``: see, run, pause and resume schedules."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Path

from . import ApiOptions, ApiServices
from .operators import DecisionBody
from .routes import Routes, json_body
from .views import JobReceipt, ScheduleList, ScheduleView

_PATH: Final = "/v1/schedules"
_ABOUT: Final = "What is submitted again and again, by a cron expression or at an interval. Needs the operator token."

ScheduleName = Annotated[str, Path(description="The schedule's name.", examples=["remind"])]


def schedule_routes(services: ApiServices, options: ApiOptions) -> Routes:
    """List, run, pause, resume."""
    routes = Routes("schedules", _ABOUT)
    schedules = services.schedules
    body = json_body(limit=options.max_body_bytes)

    @routes.get(_PATH, summary="List all schedules with their next times")
    async def list_schedules() -> ScheduleList:
        return ScheduleList(items=[ScheduleView.of(each) for each in await schedules.states()])

    @routes.get(f"{_PATH}/{{name}}", summary="Show a schedule")
    async def show_schedule(name: ScheduleName) -> ScheduleView:
        return ScheduleView.of(await schedules.state(name))

    @routes.post(
        f"{_PATH}/{{name}}/run",
        status_code=202,
        summary="Submit one job of a schedule now",
        description="Also while the schedule is paused. Each request is a run of its own: its key has the time of now.",
    )
    async def run_schedule(name: ScheduleName) -> JobReceipt:
        receipt = await schedules.run(name)
        return JobReceipt.picked(receipt, acknowledged=True, workload=(await schedules.state(name)).workload)

    @routes.post(
        f"{_PATH}/{{name}}/pause",
        summary="Submit no more ticks until the schedule is resumed",
        description="Holds in all processes from the next tick on. The first pause counts.",
    )
    async def pause_schedule(name: ScheduleName, decision: DecisionBody = body) -> ScheduleView:
        return ScheduleView.of(await schedules.pause(name, actor=decision.actor, reason=decision.reason))

    @routes.post(
        f"{_PATH}/{{name}}/resume",
        summary="Submit ticks again, from now on",
        description="The ticks that fell into the pause are skipped.",
    )
    async def resume_schedule(name: ScheduleName, decision: DecisionBody = body) -> ScheduleView:
        return ScheduleView.of(await schedules.resume(name, actor=decision.actor, reason=decision.reason))

    return routes
