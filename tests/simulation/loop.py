"""An event loop with virtual time and a seeded order, whose processes can be frozen and killed.

Every callback belongs to the simulated process in whose context it was scheduled. The loop, like an operating system,
decides whose callbacks run: those of a frozen process wait (SIGSTOP), those of a killed one are dropped (SIGKILL).
So a killed process does no cleanup of any kind, whatever its code says in ``finally``.

Ready callbacks run in an order drawn from the seed, not first come first served. Time moves only when nothing is
ready, and then at once to the next timer: a minute of waiting costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Final

_MOST_STEPS: Final = 400_000


class ProcessKilled(BaseException):
    """Thrown through the code that was running when its process was killed. Nothing in the engine may catch it."""


class Stuck(Exception):
    """Nothing is ready and no timer is set, or the steps never end."""


class Process:
    """A process as the loop sees it: a name, and whether its callbacks may run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.waiting: list[asyncio.Handle] = []
        self.context = copy_context()
        self.context.run(_current.set, self)

    def __repr__(self) -> str:
        return self.name


_current: ContextVar[Process | None] = ContextVar("process", default=None)


def current_process() -> Process | None:
    """The simulated process whose code is running; None outside of all of them."""
    return _current.get()


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set depends on its number and not on its address: the same seed, the same order."""

    def __init__(self, number: int, coroutine: Any, **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The loop. Only what asyncio's tasks, futures and timeouts need is here; there is no I/O."""

    def __init__(self, seed: object) -> None:
        self._random = Random(f"loop {seed}")
        self._now = 0.0
        self._ready: list[tuple[asyncio.Handle, Process | None]] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Process | None]] = []
        self._numbers = itertools.count()
        self._running = False
        self._closed = False
        self._tasks: list[asyncio.Task[Any]] = []
        self._tidy_at = 1000
        self.steps = 0
        self.surprises: list[str] = []

    # --- processes ----------------------------------------------------------------------------------------

    def spawn(self, process: Process, coroutine: Any) -> asyncio.Task[Any]:
        """Run a coroutine inside a process."""
        return self.create_task(coroutine, context=process.context.copy())

    def freeze(self, process: Process, seconds: float) -> None:
        """Run none of the process's callbacks for a while. Its timers fire late, as after SIGSTOP and SIGCONT."""
        if not process.frozen:
            process.frozen = True
            self.call_later(seconds, self.thaw, process, context=Context())

    def thaw(self, process: Process) -> None:
        """Let the process go on."""
        process.frozen = False
        self._ready += [(handle, process) for handle in process.waiting]
        process.waiting.clear()

    def kill(self, process: Process) -> None:
        """Run none of the process's callbacks ever again."""
        process.alive = False
        process.waiting.clear()

    # --- the schedule -------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        context = copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append((handle, context.get(_current)))
        return handle

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle, context.get(_current)))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """asyncio tells; a cancelled timer is skipped when its time comes."""

    def _step(self) -> None:
        if not self._ready:
            self._move_time()
        self.steps += 1
        if self.steps > _MOST_STEPS:
            message = f"{_MOST_STEPS} steps and no end"
            raise Stuck(message)
        ready = self._ready
        chosen = int(self._random.random() * len(ready))
        ready[chosen], ready[-1] = ready[-1], ready[chosen]
        handle, process = ready.pop()
        if handle.cancelled():
            return
        if process is not None:
            if not process.alive:
                return
            if process.frozen:
                process.waiting.append(handle)
                return
        handle._run()

    def _move_time(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            message = "nothing is ready and no timer is set"
            raise Stuck(message)
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            _, _, handle, process = heapq.heappop(timers)
            self._ready.append((handle, process))

    def run_until_complete(self, future: Any) -> Any:
        task = self.create_task(future)
        asyncio._set_running_loop(self)
        self._running = True
        try:
            while not task.done():
                self._step()
        finally:
            self._running = False
            asyncio._set_running_loop(None)
        return task.result()

    # --- what asyncio asks of a loop ------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Context | None = None) -> asyncio.Task[Any]:
        task = NumberedTask(next(self._numbers), coro, loop=self, name=name, context=context)
        # asyncio keeps no hold of tasks. Were a killed process's tasks collected, their `finally` blocks would run.
        self._tasks.append(task)
        if len(self._tasks) > self._tidy_at:
            self._tasks = [each for each in self._tasks if not each.done()]
            self._tidy_at = len(self._tasks) + 1000
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An exception that nobody awaited is a finding, unless it is the end of a killed process."""
        error = context.get("exception")
        if not isinstance(error, ProcessKilled):
            self.surprises.append(f"{context.get('message')}: {error!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End the coroutines that are left over, quietly: those of killed processes never came to their end."""
        for task in self._tasks:
            if task.done():
                continue
            task._log_destroy_pending = False
            coroutine = task.get_coro()
            for _ in range(10):  # a `finally` that awaits wants to be closed once more for each `await`
                with contextlib.suppress(BaseException):
                    coroutine.close()
                    break
        self._ready.clear()
        self._timers.clear()
        self._closed = True
