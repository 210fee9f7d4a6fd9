"""Real stores and brokers that fail when a test says so."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Any

Check = Callable[..., Awaitable[None]]


class Troubled:
    """Passes every call on to a real port, unless trouble was ordered for it.

    This is no fake: what is not ordered to fail is answered by the real adapter.
    """

    def __init__(self, port: Any) -> None:
        self._port = port
        self._once: dict[str, deque[BaseException]] = defaultdict(deque)
        self._always: dict[str, BaseException] = {}
        self._before: dict[str, Check] = {}
        self.calls: Counter[str] = Counter()

    def fail(self, verb: str, error: BaseException, times: int = 1) -> None:
        """Let the next calls of this verb fail."""
        self._once[verb].extend([error] * times)

    def break_down(self, error: BaseException, *verbs: str) -> None:
        """Let these verbs fail until repaired."""
        self._always |= dict.fromkeys(verbs, error)

    def repair(self) -> None:
        self._always.clear()

    def before(self, verb: str, check: Check) -> None:
        """Await ``check`` with the call's arguments before the call."""
        self._before[verb] = check

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._port, name)
        if not callable(verb):
            return verb

        async def call(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            if name in self._always:
                raise self._always[name]
            if self._once[name]:
                raise self._once[name].popleft()
            if name in self._before:
                await self._before[name](*arguments, **options)
            return await verb(*arguments, **options)

        return call
