"""The parent process: keeps its children running, and replaces or stops them on a signal."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from holdfast.telemetry import emit, events

from .member import Duty, Member

_STEADY_SECONDS: Final = 60.0
_SHORTEST_SECONDS: Final = 0.5
_LONGEST_SECONDS: Final = 30.0


class Restarts:
    """No pause the first time. Then the pause doubles, up to half a minute, until a process runs for a minute."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def pause_after(self, ready_for: float) -> float:
        """Seconds to wait, after a process that was ready for ``ready_for`` seconds."""
        self._in_a_row = 1 if ready_for >= _STEADY_SECONDS else self._in_a_row + 1
        if self._in_a_row == 1:
            return 0.0
        return min(_LONGEST_SECONDS, _SHORTEST_SECONDS * 2.0 ** min(self._in_a_row - 2, 16))


_FAILED: Final = 1
_COMING_UP: Final = timedelta(minutes=2)
"""If a replacement is not ready in this time, the rolling restart is abandoned."""


class _Place:
    """The place of one process. A task that replaces the process holds ``changing``."""

    def __init__(self, duty: Duty) -> None:
        self.duty = duty
        self.member: Member | None = None
        self.restarts = Restarts()
        self.changing = asyncio.Lock()


class Supervisor:
    """Runs one process for each duty.

    SIGTERM and SIGINT stop all processes, each after its drain, and then the parent. SIGHUP replaces them one after
    another: a process is stopped when its replacement is ready, so settings and code can change without downtime. If a
    replacement does not become ready, the restart is abandoned and the old processes stay. A process that ends by
    itself is started again. Only at the first start, a process that ends with an exit code ends all of them.
    """

    def __init__(
        self,
        duties: Sequence[Duty],
        *,
        ready: Callable[[Sequence[Member]], None],
        stop_within: timedelta,
    ) -> None:
        """``ready`` is called when all are ready. A process that does not stop within ``stop_within`` is killed."""
        self._places = [_Place(duty) for duty in duties]
        self._ready = ready
        self._stop_within = stop_within.total_seconds()
        self._members: set[Member] = set()
        self._stop = asyncio.Event()
        self._roll = asyncio.Event()

    async def run(self) -> int:
        """Run until a stop signal. Returns the exit code: 0 if every process stopped in order."""
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop, signal.SIGHUP: self._roll.set}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            failed = await self._start_all()
            if failed is None and not self._stop.is_set():
                self._ready([place.member for place in self._places if place.member is not None])
                await self._watch()
            self.stop()
            codes = await asyncio.gather(*(self._wait_for_end(member) for member in list(self._members)))
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)
            for member in self._members:
                member.kill()
        return failed or (_FAILED if any(codes) else 0)

    def stop(self) -> None:
        """Send SIGTERM to every process."""
        if self._stop.is_set():
            return
        self._stop.set()
        for member in self._members:
            member.terminate()

    # --- starting -----------------------------------------------------------------------------------------

    async def _start_all(self) -> int | None:
        """Start all processes. Returns the exit code of a process that ended before it was ready.

        The first process starts alone. An error that would stop every process is then reported once.
        """
        for group in (self._places[:1], self._places[1:]):
            codes = await asyncio.gather(*(self._bring_up(place) for place in group))
            if any(codes):
                return next(code for code in codes if code)
        return None

    async def _bring_up(self, place: _Place) -> int:
        """Start the process of this place, again and again if it is killed, until it is ready or all stop.

        Returns the exit code of a process that ended by itself: it has said why, and would end in the same way again.
        All others stop then.
        """
        while not self._stop.is_set():
            member = place.member = self._start(place.duty)
            if await member.came_up() or self._stop.is_set():
                break
            code = await member.ended()
            self._members.discard(member)
            place.member = None
            fields = {"process": place.duty.name, "pid": member.pid, "exit_code": code, "where": "start"}
            if code >= 0:
                emit(events.PROCESS_LOST, **fields)
                self.stop()
                return code or _FAILED
            pause = place.restarts.pause_after(0.0)
            emit(events.PROCESS_LOST, **fields, again_in_seconds=pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stop.wait()
        return 0

    def _start(self, duty: Duty) -> Member:
        member = Member.start(duty)
        self._members.add(member)
        if self._stop.is_set():  # the stop signal came during the start
            member.terminate()
        emit(events.PROCESS_STARTED, process=duty.name, pid=member.pid)
        return member

    # --- while they run -----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Keep all processes running until a stop signal."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._keep(place)) for place in self._places]
            tasks.append(group.create_task(self._roll_on_signal()))
            await self._stop.wait()
            for task in tasks:
                task.cancel()

    async def _keep(self, place: _Place) -> None:
        """Start the process of this place again when it ends by itself."""
        while True:
            gone = place.member
            code = await gone.ended() if gone is not None else None
            async with place.changing:
                if gone is not None:
                    self._members.discard(gone)
                if place.member is not gone:
                    continue  # a replacement took over
                place.member = None
            pause = place.restarts.pause_after(gone.ready_for if gone is not None else 0.0)
            if gone is not None:
                fields = {"process": place.duty.name, "pid": gone.pid, "exit_code": code}
                emit(events.PROCESS_LOST, **fields, again_in_seconds=pause)
            await asyncio.sleep(pause)
            await self._refill(place)

    async def _refill(self, place: _Place) -> None:
        async with place.changing:
            if place.member is not None:
                return
            try:
                fresh = place.member = self._start(place.duty)
            except OSError as error:  # no memory or no process id: a later try may succeed
                emit(events.PROCESS_LOST, process=place.duty.name, reason=error.strerror, where="start")
                return
        await fresh.came_up()

    async def _roll_on_signal(self) -> None:
        while True:
            await self._roll.wait()
            self._roll.clear()
            emit(events.RESTART_BEGUN, processes=len(self._places))
            for place in self._places:
                if not await self._replace(place):
                    break
            else:
                emit(events.RESTART_DONE, processes=len(self._places))

    async def _replace(self, place: _Place) -> bool:
        """Start a new process in the place, then stop the old one. False if the new one does not become ready."""
        async with place.changing:
            fresh, why = await self._replacement(place.duty)
            if fresh is None:
                emit(events.RESTART_ABANDONED, process=place.duty.name, reason=why)
                return False
            old, place.member, place.restarts = place.member, fresh, Restarts()
        if old is not None and old.alive:
            old.terminate()
            await self._wait_for_end(old)
        return True

    async def _replacement(self, duty: Duty) -> tuple[Member | None, str]:
        """A process that is ready; or None, and the reason."""
        try:
            fresh = self._start(duty)
        except OSError as error:
            return None, str(error.strerror)
        in_time = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_COMING_UP.total_seconds()):
                await fresh.came_up()
                in_time = True
        if fresh.was_ready:
            return fresh, ""
        if not in_time:
            fresh.kill()
        code = await fresh.ended()
        self._members.discard(fresh)
        return None, f"it ended with exit code {code}" if in_time else "it was not ready in time"

    # --- stopping -----------------------------------------------------------------------------------------

    async def _wait_for_end(self, member: Member) -> int:
        """Wait for the end of a process that got SIGTERM, and kill it if it takes too long. Returns its exit code."""
        try:
            async with asyncio.timeout(self._stop_within):
                code = await member.ended()
        except TimeoutError:
            member.kill()
            emit(events.PROCESS_KILLED, process=member.duty.name, pid=member.pid)
            code = await member.ended()
        self._members.discard(member)
        emit(events.PROCESS_STOPPED, process=member.duty.name, pid=member.pid, exit_code=code)
        # A process that got SIGTERM before it set its handlers had no work yet.
        return 0 if code == -signal.SIGTERM and not member.was_ready else code
