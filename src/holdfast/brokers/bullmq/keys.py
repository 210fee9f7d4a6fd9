"""Where a queue lives in Redis. The layout is BullMQ's; every key of a queue begins with ``<prefix>:<queue>:``.

    wait            list    ids of jobs that are ready, newest on the left
    prioritized     zset    ids of ready jobs with a priority: priority * 2^32 + a counter (``pc``)
    delayed         zset    ids of jobs that wait for a time: milliseconds * 2^12 + a small counter
    active          list    ids of jobs in work; <id>:lock holds the token of whoever works on it, and expires
    completed       zset    ids of finished jobs by time, trimmed as they finish
    failed          zset    ids of jobs that failed for good, trimmed likewise
    paused          list    where versions before 5 kept the jobs of a paused queue
    <id>            hash    name, data, opts, timestamp, delay, priority, atm (attempts made), ats (started), stc
                            (stalls), processedOn, finishedOn, returnvalue, failedReason, stacktrace
    stalled         set     ids that looked active at the last stall check; stalled-check keeps checks apart
    marker          zset    wakes whoever blocks on it: member 0 for a ready job, member 1 with the next delay's time
    limiter         string  how many jobs were started in the present window of the rate limit
    meta            hash    paused, opts.maxLenEvents, and a queue-wide concurrency or rate limit
    events          stream  what happened, for QueueEvents and dashboards
    id, pc, repeat          counters, and job schedulers

These are ours, and belong to no queue, so that no job's key can be one of them:

    holdfast-epoch    string  the mark by which a lost queue is noticed
    holdfast-turns:<name>   zset    turns that are not free, by the microsecond at which they will be
    holdfast-places:<name>  zset    ids of jobs by the microsecond of their place in a flow, and the next free one
    holdfast-spans:<queue>  zset    spans of ``events`` that our own settling wrote, by the millisecond of their end

So are two fields, which BullMQ passes over: ``holdfast:pausedBecause`` of ``meta``, and ``holdfast:ended`` of a job's
hash, which says that it was Holdfast that ended the job.
"""

from __future__ import annotations

import base64
from functools import cached_property
from typing import Final

PAUSED_BECAUSE: Final = "holdfast:pausedBecause"
"""The field of ``meta`` that says why the queue is paused."""

ENDED_HERE: Final = "holdfast:ended"
"""The field of a job's hash that says that Holdfast ended it."""


class QueueKeys:
    """The keys of one queue.

    BullMQ's clients refuse ``:`` in a queue's name, but take it in a prefix. A name such as ``email:send`` is therefore
    what they open as the queue ``send`` with the prefix ``<prefix>:email``; the keys are the same.
    """

    def __init__(self, prefix: str, queue: str) -> None:
        self.queue = queue
        self.base = f"{prefix}:{queue}:"
        self._prefix = prefix

    def __getitem__(self, part: str) -> str:
        return self.base + part

    def named(self, *parts: str) -> list[str]:
        """Several keys, in the order that a script wants them."""
        return [self.base + part for part in parts]

    @cached_property
    def client_name(self) -> str:
        """What a waiting worker calls its connection, so that BullMQ's ``getWorkers`` finds it."""
        outer, _, name = self.queue.rpartition(":")
        prefix = f"{self._prefix}:{outer}" if outer else self._prefix
        return f"{prefix}:{base64.b64encode(name.encode()).decode()}"


def epoch_key(prefix: str) -> str:
    """Where the mark of this Redis's memory is."""
    return f"{prefix}:holdfast-incarnation"


def permits_key(prefix: str, name: str) -> str:
    """Where the turns of this name are that are not free."""
    return f"{prefix}:holdfast-turns:{name}"


def places_key(prefix: str, name: str) -> str:
    """Where the places in the flow of this name are."""
    return f"{prefix}:holdfast-places:{name}"


def spans_key(prefix: str, queue: str) -> str:
    """Where the spans of a queue's events are that our own settling wrote."""
    return f"{prefix}:holdfast-spans:{queue}"


def has_hash_tag(prefix: str) -> bool:
    """Whether a Redis Cluster keeps all keys of this prefix on one node."""
    start = prefix.find("{")
    return start >= 0 and prefix.find("}", start) > start + 1
