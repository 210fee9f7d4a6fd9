"""Schedules: when a job of its own is submitted again and again, and the ticks that tell its handler which time it is.

The library ``cronsim`` reads cron expressions and finds local times. This module turns local times into instants. All
processes must find the same instants, wherever they begin to count: so ticks over daylight saving are decided here, by
the rules of Debian's cron.

* An expression with a fixed minute and hour (``30 2 * * *``) ticks once on each day. If the clock is put forward over
  its time, it ticks right after the gap. If its time comes twice, the first one counts.
* An expression whose minute or hour begins with ``*`` (``*/15 * * * *``), or one with seconds, follows the clock on the
  wall: it does not tick in the gap, and it ticks in both passes of an hour that comes twice.

Intervals (``every``) are counted from 1970 in UTC and know no daylight saving.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import sha256
from typing import Final, Literal, NoReturn, get_args
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from pydantic import AwareDatetime, BaseModel

from .effects import Collection
from .errors import ConfigurationError
from .times import isoformat

CatchUp = Literal["last", "all", "none"]
"""What happens to ticks that were missed because no process ran: the newest is submitted, or all, or none."""

SCHEDULES: Final = "schedules"

SCHEDULE_COLLECTIONS: Final = (
    Collection(SCHEDULES, key="name", instants=("cursor", "lastTick", "lastRun", "pausedAt", "resumedAt")),
)
"""``schedules``: expression, cursor (the tick up to which all is decided), lastTick (the last one that was submitted),
lastRun (by a person); paused, pausedBy, reason, pausedAt; resumedBy, resumeReason, resumedAt."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,60}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NEVER_LONGER: Final = timedelta(days=3660)
_LONGEST_EXPRESSION: Final = 200
_DEBIAN_FIELDS: Final = 5


class Tick(BaseModel):
    """The data of a schedule's job: which schedule, and the instant for which the job was submitted, in UTC.

    ``manual``: a person asked for this run; ``at`` is then the time of the request.
    """

    schedule: str
    at: AwareDatetime
    manual: bool = False

    @property
    def key(self) -> str:
        """The idempotency key: one instant of a schedule is one job (I22)."""
        key = f"schedule:{self.schedule}:{isoformat(self.at)}"
        return f"{key}:manual" if self.manual else key


@dataclass(frozen=True)
class Schedule:
    """When a schedule ticks: by a cron expression in a time zone, or at an interval.

    ``cron`` has five fields, or six with the second first. ``every`` is at least a second. ``catch_up`` decides about
    ticks that no process was there for. ``jitter`` delays each tick's job by a part of this time, so that many
    schedules of one minute do not start at once; the part depends on the name and the instant alone.

    Raises :class:`ConfigurationError` for anything that cannot be meant.
    """

    name: str
    cron: str | None = None
    every: timedelta | None = None
    timezone: str = "UTC"
    catch_up: CatchUp = "last"
    jitter: timedelta = timedelta(0)
    zone: tzinfo = field(init=False, repr=False, compare=False)
    """The time zone, to show instants in."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            self._refuse("a name has 1 to 60 letters, digits, - and _")
        if (self.cron is None) == (self.every is None):
            self._refuse("give either a cron expression or an interval (every)")
        if self.catch_up not in get_args(CatchUp):
            self._refuse(f"catch_up is one of {', '.join(get_args(CatchUp))}, not {self.catch_up!r}")
        if not timedelta(0) <= self.jitter <= _NEVER_LONGER:
            self._refuse("jitter is a time from zero to ten years")
        object.__setattr__(self, "zone", self._zone())
        if self.every is not None:
            self._check_interval(self.every)
        if self.cron is not None:
            self._check_expression(self.cron)

    def _check_interval(self, every: timedelta) -> None:
        if not _SECOND <= every <= _NEVER_LONGER or every % _MILLISECOND:
            self._refuse("every is a time from one second to ten years, in whole milliseconds")

    def _check_expression(self, cron: str) -> None:
        if len(cron) > _LONGEST_EXPRESSION:
            self._refuse(f"a cron expression has at most {_LONGEST_EXPRESSION} characters")
        try:
            next(CronSim(cron, datetime(2000, 1, 1)))  # noqa: DTZ001 - local times, as cronsim counts them
        except (CronSimError, ValueError) as error:
            fields = "minute, hour, day of month, month and day of week; a second may stand before them"
            self._refuse(f"the cron expression {cron!r} is wrong ({error}). Its fields are {fields}")
        except StopIteration:
            self._refuse(f"the cron expression {cron!r} names a date that never comes")

    def _zone(self) -> tzinfo:
        if self.timezone == "UTC":
            return UTC
        try:
            return ZoneInfo(self.timezone)
        except (KeyError, ValueError, OSError, TypeError):
            if available_timezones():
                self._refuse(f"there is no time zone {self.timezone!r}; names are such as America/Sao_Paulo")
            remedy = "install the system's package tzdata, or `pip install tzdata`"
            self._refuse(f"this machine has no time zone data: {remedy}")

    def _refuse(self, problem: str) -> NoReturn:
        message = f"Schedule {self.name!r}: {problem}."
        raise ConfigurationError(message) from None

    @property
    def expression(self) -> str:
        """What decides the instants, as text for people, and to see whether it has changed."""
        if self.cron is not None:
            return f"{' '.join(self.cron.split())} {self.timezone}"
        every = self.every or _SECOND
        seconds, rest = divmod(every, _SECOND)
        return f"every {seconds}s" if not rest else f"every {every // _MILLISECOND}ms"

    # --- instants -----------------------------------------------------------------------------------------

    def next_after(self, instant: datetime) -> datetime:
        """The first tick after this instant, in UTC."""
        if self.every is not None:
            return _EPOCH + ((instant - _EPOCH) // self.every + 1) * self.every
        local = instant.astimezone(self.zone)
        if self._at_fixed_times:
            return next(tick for time in self._times(local) if (tick := self._first_from(time)) > instant)
        return self._next_on_the_wall(instant, local)

    def between(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """The ticks after ``after``, up to and including ``until``: the oldest ones, at most ``most``."""
        found: list[datetime] = []
        while len(found) < most and (after := self.next_after(after)) <= until:
            found.append(after)
        return found

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """The newest tick after ``after``, up to and including ``until``; None if there is none.

        The work grows with the logarithm of the time, not with the number of ticks.
        """
        found = None
        while (tick := self.next_after(after)) <= until:
            # A tick after the middle is newer than any tick before it.
            found, low, high = tick, tick, until
            while high - low > _SECOND:
                middle = low + (high - low) / 2
                if (tick := self.next_after(middle)) <= until:
                    found = low = tick
                else:
                    high = middle
            after = found
        return found

    def delay_of(self, tick: datetime) -> timedelta:
        """The jitter of this tick: the same in every process."""
        digest = sha256(f"{self.name}:{isoformat(tick)}".encode()).digest()
        return self.jitter * (int.from_bytes(digest[:6], "big") / 2**48)

    # --- local times --------------------------------------------------------------------------------------

    @property
    def _at_fixed_times(self) -> bool:
        """Whether Debian's cron runs this expression once for each local time, also when the clock is changed."""
        fields = (self.cron or "").split()
        return len(fields) == _DEBIAN_FIELDS and not fields[0].startswith("*") and not fields[1].startswith("*")

    def _times(self, after: datetime) -> Iterator[datetime]:
        """The local times that match, without a zone: also those that do not exist, and each one once."""
        return CronSim(self.cron or "", after.replace(tzinfo=None, fold=0))

    def _first_from(self, time: datetime) -> datetime:
        """The instant of this local time: its first pass; or the first instant after it, if it does not exist."""
        while (instant := self._pass(time, 0)) is None:
            time += _MINUTE
        return instant

    def _pass(self, time: datetime, fold: int) -> datetime | None:
        """The instant of the first (0) or second (1) pass of this local time; None if the time does not exist."""
        instant = time.replace(tzinfo=self.zone, fold=fold).astimezone(UTC)
        return instant if instant.astimezone(self.zone).replace(tzinfo=None, fold=0) == time else None

    def _next_on_the_wall(self, instant: datetime, local: datetime) -> datetime:
        ticks = (tick for time in self._times(local) for fold in (0, 1) if (tick := self._pass(time, fold)) is not None)
        found = next(tick for tick in ticks if tick > instant)
        back = local.replace(fold=0).astimezone(UTC) - local.replace(fold=1).astimezone(UTC)
        if local.fold or not back:
            return found
        # This local time comes again. The second pass begins before all times that are later on the wall.
        begin = self._second_pass(instant, instant - back)
        again = begin.astimezone(self.zone) - _SECOND
        ticks = (tick for time in self._times(again) if (tick := self._pass(time, 1)) is not None)
        return min(found, next(tick for tick in ticks if tick >= begin))

    def _second_pass(self, early: datetime, late: datetime) -> datetime:
        """The instant between these two at which the clock is put back, to the second."""
        offset = early.astimezone(self.zone).utcoffset()
        while late - early > _SECOND:
            middle = early + (late - early) // 2
            if middle.astimezone(self.zone).utcoffset() == offset:
                early = middle
            else:
                late = middle
        return late.replace(microsecond=0)
