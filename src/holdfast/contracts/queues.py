"""What goes into a queue and what comes out of it. The queue is a hint; the ledger is the truth."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True)
class QueueJob:
    """A job to publish. ``data`` is JSON text; a smaller ``priority`` goes first and 0 before all.

    The queue may still keep a finished job of the same id. With ``revive`` the new job replaces it. Without, the
    finished job stays, so that a reader does not get it again.
    """

    job_id: str
    data: str
    name: str = "job"
    priority: int = 0
    delay: timedelta = timedelta(0)
    revive: bool = True


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most ``most`` jobs are started in ``per``, by all workers of a queue together."""

    most: int
    per: timedelta

    @property
    def distance(self) -> timedelta:
        """The time between two jobs in an even flow, rounded up to a microsecond."""
        return -(-self.per // self.most)


_PER: Final = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_RATE: Final = re.compile(r"([1-9][0-9]{0,8}) ?/ ?([smhd])")


def rate(value: RateLimit | str) -> RateLimit:
    """``"5/s"``, ``"100/m"``, ``"1000/h"``, ``"20000/d"`` or a :class:`RateLimit`. Raises ``ValueError`` otherwise."""
    if isinstance(value, RateLimit):
        return value
    found = _RATE.fullmatch(value.strip())
    if found is None:
        message = f"{value!r} is not a rate: write a number and a span, such as 5/s, 100/m, 1000/h or 20000/d."
        raise ValueError(message)
    return RateLimit(int(found[1]), _PER[found[2]])


@dataclass(frozen=True, slots=True)
class Permits:
    """Permits of a limit: a name for each permit that was given, and the wait until there may be another."""

    given: tuple[str, ...] = ()
    wait: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job that the broker leased to us. ``token`` is the proof.

    ``name``, ``sent_at`` and ``opts`` are stored in the queue: the job's kind, the time when its producer added it,
    and the producer's options as JSON text.
    """

    queue: str
    job_id: str
    data: str
    token: str
    name: str = ""
    sent_at: datetime | None = None
    opts: str = "{}"


class Presence(StrEnum):
    """Whether a queue has a job, and in which state."""

    ABSENT = "absent"
    OPEN = "open"
    """It waits, is delayed, or is in work."""
    ENDED = "ended"
    """It is finished or failed, and no other system's worker did it."""


@dataclass(frozen=True, slots=True)
class WorkedElsewhere:
    """A job that another system's worker finished: ``result`` is what that worker returned, as JSON text.

    With ``failure``, the job has failed for good there, for this reason. ``at`` is the time by the queue's clock.
    """

    job_id: str
    at: datetime
    result: str = "null"
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class History:
    """A part of a queue's events: the jobs that were worked elsewhere, and the position to continue from."""

    ended: tuple[WorkedElsewhere, ...] = ()
    position: str = ""
    more: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The queue's copy can go: the ledger has settled the job. ``result`` is JSON text.

    A queue that keeps finished jobs keeps ``data`` instead of the job's own data.
    """

    result: str = "null"
    data: str | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """Deliver the job again after a while, with new data where given (for a new attempt number)."""

    after: timedelta = timedelta(0)
    data: str | None = None
    reason: str | None = None
    stacktrace: str | None = None
    """The traceback of the attempt that failed, for a queue that shows it to people."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The job has failed for good. The queue may keep it for people to read, with ``data`` instead of its own data."""

    reason: str
    data: str | None = None
    stacktrace: str | None = None


Handling = Finished | Again | Failed


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What to do with one delivery."""

    delivery: Delivery
    handling: Handling


@dataclass(frozen=True, slots=True)
class Depth:
    """How many jobs a queue has, whether it is paused, and the reason if somebody gave one."""

    ready: int
    delayed: int
    active: int
    paused: bool
    paused_because: str | None = None
