"""What goes into a queue and what comes out of it. The queue is a hint; the ledger is the truth."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class QueueJob:
    """A job to publish. ``data`` is JSON text; a smaller ``priority`` goes first and 0 before all.

    ``revive`` tells what becomes of a finished job of the same id that the queue still keeps: it makes room, or, where
    this is news for somebody who has had it, it stays.
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


@dataclass(frozen=True, slots=True)
class Permits:
    """Permissions to go ahead: a name for each that was given, and how long until there may be another."""

    given: tuple[str, ...] = ()
    wait: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job that the broker leased to us. ``token`` is the proof.

    ``name``, ``sent_at`` and ``opts`` are what the queue itself knows of a job: its kind, when its producer added it,
    and the options that the producer gave, as JSON text.
    """

    queue: str
    job_id: str
    data: str
    token: str
    name: str = ""
    sent_at: datetime | None = None
    opts: str = "{}"


class Presence(StrEnum):
    """Whether a queue has a job, and what it thinks of it."""

    ABSENT = "absent"
    OPEN = "open"
    """It waits, is delayed, or is in work."""
    ENDED = "ended"
    """It is finished or failed, and that is not the word of somebody else's worker."""


@dataclass(frozen=True, slots=True)
class WorkedElsewhere:
    """A job that somebody else's worker finished: ``result`` is what it returned, as JSON text.

    With ``failure``, the job has failed for good there, and this is why. ``at`` is when, by the queue.
    """

    job_id: str
    at: datetime
    result: str = "null"
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class History:
    """A part of what happened in a queue: the jobs that were worked elsewhere, and where to read on."""

    ended: tuple[WorkedElsewhere, ...] = ()
    position: str = ""
    more: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The queue's copy can go: the ledger has settled the job. ``result`` is JSON text.

    Where the queue keeps the job all the same, it keeps ``data`` instead of the job's own.
    """

    result: str = "null"
    data: str | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """Deliver the job again after a while, with new data where given (its attempt number has changed)."""

    after: timedelta = timedelta(0)
    data: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The job has failed for good; the queue may keep it for people to look at, with ``data`` instead of its own."""

    reason: str
    data: str | None = None


Handling = Finished | Again | Failed


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What to do with one delivery."""

    delivery: Delivery
    handling: Handling


@dataclass(frozen=True, slots=True)
class Depth:
    """How many jobs a queue holds, and whether it is paused; where somebody said so, why."""

    ready: int
    delayed: int
    active: int
    paused: bool
    paused_because: str | None = None


_RESERVED_IDS = frozenset(
    {
        "active",
        "completed",
        "delayed",
        "events",
        "failed",
        "id",
        "limiter",
        "marker",
        "meta",
        "paused",
        "pc",
        "prioritized",
        "priority",
        "repeat",
        "stalled",
        "stalled-check",
        "wait",
        "waiting-children",
    },
)
_MAX_ID = 200


def usable_job_id(candidate: str) -> bool:
    """Whether every broker keeps a job of this id apart from its own bookkeeping.

    BullMQ splits keys at ``:``, takes digits for its own counter, and names its sets after plain words.
    """
    return (
        0 < len(candidate) <= _MAX_ID
        and ":" not in candidate
        and not candidate.isdigit()
        and candidate not in _RESERVED_IDS
        and re.fullmatch(r"[!-~]+", candidate) is not None
    )


def job_id_for(key: str) -> str:
    """A usable job id for an idempotency key.

    ``:`` is written as ``.``, and a hash is added where that could collide with another key's id.
    """
    plain = key.replace(":", ".")
    # "a:b" and "a.b" must not meet, nor a plain id and one that ends in another key's hash.
    ambiguous = "." in key or re.search(r":[0-9a-f]{16}$", key) is not None
    if not ambiguous and usable_job_id(plain):
        return plain
    digest = sha256(key.encode()).hexdigest()[:16]
    readable = re.sub(r"[^!-~]", "_", plain)[: _MAX_ID - 17]
    return f"{readable}.{digest}"
