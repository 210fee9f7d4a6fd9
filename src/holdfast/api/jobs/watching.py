"""Answers that take long: waiting for the end of a job, and the stream of its progress."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from fastapi import Request, Response

from holdfast.api import ApiServices
from holdfast.api.errors import Code
from holdfast.api.openapi import refusals
from holdfast.api.routes import Routes
from holdfast.api.streams import Progress, ProgressStream, Streams, event_schema, wait_for_disconnect
from holdfast.api.tenant_guard import Caller, caller_of
from holdfast.api.views import JobEvent
from holdfast.contracts.errors import NotFound
from holdfast.contracts.ledger import LedgerEntry
from holdfast.contracts.tenants import KeyRefused
from holdfast.engine.sender_limits import WAIT

from .lookup import Key, Lookup, WorkloadName

LONGEST_WAIT: Final = 60
"""Seconds."""
_MOST_STREAMS: Final = 200
_MOST_WAITS: Final = 2_000
"""Waits are cheap: all of them share one poll of the ledger."""
_LOOK_EVERY: Final = timedelta(milliseconds=500)
_KEEP_ALIVE: Final = timedelta(seconds=15)

_ABOUT: Final = """\
Server-sent events: `progress` at once and after each change of the job, and `end` with its last state. Each event has
the state as JSON. After a stop of the process the stream breaks off: connect again."""
_EXAMPLE: Final = 'retry: 2000\n\nevent: progress\ndata: {"key": "invoice-7", "status": "processing", ...}\n\n'


class Watching:
    """The waits and the streams of one process. Their numbers are limited, in all and for each tenant."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services
        self._waits = Streams(_MOST_WAITS, services.limits)
        self.streams = Streams(_MOST_STREAMS, services.limits)

    def stop(self) -> None:
        """The process is about to stop: all of them end now."""
        self._services.waiting.stop()
        self.streams.stop()

    async def until_ended(self, request: Request, caller: Caller, entry: LedgerEntry, seconds: float) -> None:
        """Return when the job has ended, the time is over, the client has gone, or the process is about to stop."""
        with self._waits.count_one(caller.sender, share=WAIT):
            until = self._services.waiting.until_ended(entry.workload, entry.key, timedelta(seconds=seconds))
            reasons = [asyncio.ensure_future(until), asyncio.create_task(wait_for_disconnect(request.receive))]
            try:
                await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in reasons:
                    each.cancel()
                await asyncio.gather(*reasons, return_exceptions=True)
        if not await self.allowed(caller):
            raise KeyRefused

    async def allowed(self, caller: Caller) -> bool:
        """Whether the key of this caller still works: it may have been revoked meanwhile."""
        return caller.tenant is None or await self._services.tenants.still_allowed(caller.tenant)


def add_watching(routes: Routes, watching: Watching, lookup: Lookup, guarded: list[Any]) -> None:
    """Add the stream."""

    @routes.get(
        "/v1/jobs/{workload}/{key:path}/events",
        dependencies=guarded,
        summary="Watch a job: server-sent events",
        description=_ABOUT,
        response_class=Response,
        responses={
            200: {"content": {ProgressStream.media_type: {"schema": event_schema("JobSummary"), "example": _EXAMPLE}}},
            **refusals(Code.TOO_MANY_REQUESTS, Code.TOO_MANY_STREAMS),
        },
    )
    async def watch_job(request: Request, workload: WorkloadName, key: Key) -> Response:
        caller = caller_of(request)
        await lookup.entry(workload, key, caller)

        async def read_progress() -> Progress | None:
            if not await watching.allowed(caller):
                return None
            try:
                _, entry = await lookup.entry(workload, key, caller)
            except NotFound:
                return None
            return Progress(JobEvent.of(entry, key).model_dump_json(by_alias=True), entry.status.terminal)

        return ProgressStream(
            watching.streams, caller.sender, read_progress, interval=_LOOK_EVERY, keep_alive=_KEEP_ALIVE
        )
