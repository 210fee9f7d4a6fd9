"""The keys of a queue in Redis. The layout is BullMQ's; every key of a queue begins with ``<prefix>:<queue>:``.

    wait            list    ids of jobs that are ready, newest on the left
    prioritized     zset    ids of ready jobs with a priority: priority * 2^32 + a counter (``pc``)
    delayed         zset    ids of jobs that wait for a time: milliseconds * 2^12 + a small counter
    active          list    ids of jobs in work; <id>:lock holds the token of the worker, and expires
    completed       zset    ids of finished jobs by time, trimmed as they finish
    failed          zset    ids of jobs that failed for good, trimmed in the same way
    paused          list    where versions before 5 kept the jobs of a paused queue
    <id>            hash    name, data, opts, timestamp, delay, priority, atm (attempts made), ats (started), stc
                            (stalls), processedOn, finishedOn, returnvalue, failedReason, stacktrace
    stalled         set     ids that looked active at the last stall check; stalled-check keeps checks apart
    marker          zset    wakes the clients that block on it: member 0 for a ready job, member 1 with the next delay's
                            time
    limiter         string  how many jobs were started in the present window of the rate limit
    meta            hash    paused, opts.maxLenEvents, and a queue-wide concurrency or rate limit
    events          stream  events, for QueueEvents and dashboards
    id, pc, repeat          counters, and job schedulers

These keys are Holdfast's own. They begin with ``<prefix>:`` and belong to no queue, so no job can have the same key:

    holdfast-incarnation    string  the epoch, without the server's run id: a new value shows that the queue was lost
    holdfast-turns:<name>   zset    permits that are not free, by the microsecond at which they will be free
    holdfast-places:<name>  zset    ids of jobs by the microsecond of their place, and the next free place
    holdfast-spans:<queue>  zset    spans of ``events`` that our own settling wrote, by the millisecond of their end

Two key names are older than our words for them: ``incarnation`` is the epoch, and ``turns`` are permits.

Two fields are Holdfast's own too, and BullMQ ignores them: ``holdfast:pausedBecause`` of ``meta``, and
``holdfast:ended`` of a job's hash, for a job that Holdfast itself completed or failed.
"""

from __future__ import annotations

import base64
from functools import cached_property
from typing import Final

PAUSED_BECAUSE: Final = "holdfast:pausedBecause"
"""The field of ``meta`` with the reason of a pause."""

ENDED_HERE: Final = "holdfast:ended"
"""The field of a job's hash that marks a job that Holdfast ended."""


class QueueKeys:
    """The keys of one queue.

    BullMQ's clients refuse ``:`` in a queue's name, but accept it in a prefix. So they open ``email:send`` as the queue
    ``send`` with the prefix ``<prefix>:email``; the keys are the same.
    """

    def __init__(self, prefix: str, queue: str) -> None:
        self.queue = queue
        self.base = f"{prefix}:{queue}:"
        self._prefix = prefix

    def __getitem__(self, part: str) -> str:
        return self.base + part

    def named(self, *parts: str) -> list[str]:
        """Several keys, in the order that a script expects."""
        return [self.base + part for part in parts]

    @cached_property
    def client_name(self) -> str:
        """The connection name of a waiting worker, so that BullMQ's ``getWorkers`` finds the worker."""
        outer, _, name = self.queue.rpartition(":")
        prefix = f"{self._prefix}:{outer}" if outer else self._prefix
        return f"{prefix}:{base64.b64encode(name.encode()).decode()}"


def epoch_key(prefix: str) -> str:
    """The key of the epoch of the data in this Redis."""
    return f"{prefix}:holdfast-incarnation"


def permits_key(prefix: str, name: str) -> str:
    """The key of the permits of this limit that are not free."""
    return f"{prefix}:holdfast-turns:{name}"


def places_key(prefix: str, name: str) -> str:
    """The key of the places of this limit."""
    return f"{prefix}:holdfast-places:{name}"


def spans_key(prefix: str, queue: str) -> str:
    """The key of the spans of a queue's events that our own settling wrote."""
    return f"{prefix}:holdfast-spans:{queue}"


def has_hash_tag(prefix: str) -> bool:
    """Whether a Redis Cluster keeps all keys of this prefix on one node."""
    start = prefix.find("{")
    return start >= 0 and prefix.find("}", start) > start + 1
