"""The harness for tests that are not async: the same verbs, without ``await``."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from pydantic import BaseModel

from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.functions import JobFunction
from holdfast.contracts.ledger import Cancelled, LedgerEntry, Status
from holdfast.contracts.submissions import Submission
from holdfast.contracts.times import Duration
from holdfast.contracts.workload import Workload
from holdfast.embedding.steps import AnyJob

from .crashes import WORKED
from .harness import Harness

Data = TypeVar("Data", bound=BaseModel)
Result = TypeVar("Result")
Answer = TypeVar("Answer")


class SyncHarness:
    """A harness with an event loop of its own, which runs only during the calls. ``Harness.sync()`` makes it."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._run(self._harness.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._runner:
            self._run(self._harness.__aexit__(kind, error, traceback))

    def _run(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        return self._runner.run(call)

    @overload
    def submit(
        self, job: JobFunction[Data, Result], data: Data, *, delay: Duration | None = None, priority: int = 0
    ) -> Submission[Result]: ...

    @overload
    def submit(
        self,
        job: Workload[Data] | str,
        data: Data | Mapping[str, Any],
        *,
        delay: Duration | None = None,
        priority: int = 0,
    ) -> Submission[Any]: ...

    def submit(self, job: Any, data: Any, *, delay: Duration | None = None, priority: int = 0) -> Submission[Any]:
        """As :meth:`Harness.submit`."""
        return self._run(self._harness.submit(job, data, delay=delay, priority=priority))

    def cancel(self, job: Submission[Any] | tuple[AnyJob, str]) -> Cancelled:
        """As :meth:`Harness.cancel`."""
        return self._run(self._harness.cancel(job))

    def replay(self, letter: DeadLetter, *, reason: str = "repaired") -> None:
        """As :meth:`Harness.replay`."""
        self._run(self._harness.replay(letter, reason=reason))

    @property
    def now(self) -> datetime:
        """As :attr:`Harness.now`."""
        return self._harness.now

    def settle(self) -> None:
        """As :meth:`Harness.settle`."""
        self._run(self._harness.settle())

    def advance(self, by: Duration) -> None:
        """As :meth:`Harness.advance`."""
        self._run(self._harness.advance(by))

    def advance_to(self, instant: datetime) -> None:
        """As :meth:`Harness.advance_to`."""
        self._run(self._harness.advance_to(instant))

    def crash(self, point: str = WORKED) -> None:
        """As :meth:`Harness.crash`."""
        self._harness.crash(point)

    def result(self, submission: Submission[Result]) -> Result:
        """As :meth:`Harness.result`."""
        return self._run(self._harness.result(submission))

    def job(self, job: Submission[Any] | tuple[AnyJob, str]) -> LedgerEntry:
        """As :meth:`Harness.job`."""
        return self._run(self._harness.job(job))

    def jobs(self, job: AnyJob, *, status: Status | None = None) -> list[LedgerEntry]:
        """As :meth:`Harness.jobs`."""
        return self._run(self._harness.jobs(job, status=status))

    @overload
    def sent(self, job: JobFunction[Data, Any] | Workload[Data]) -> list[Data]: ...

    @overload
    def sent(self, job: str) -> list[Any]: ...

    def sent(self, job: Any) -> list[Any]:
        """As :meth:`Harness.sent`."""
        return self._run(self._harness.sent(job))

    def dead_letters(self, job: Submission[Any] | AnyJob | None = None) -> list[DeadLetter]:
        """As :meth:`Harness.dead_letters`."""
        return self._run(self._harness.dead_letters(job))

    def record(self, collection: str, key: str) -> Mapping[str, Any]:
        """As :meth:`Harness.record`."""
        return self._run(self._harness.record(collection, key))
