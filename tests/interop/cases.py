"""Jobs, and how each ends. The name of a job decides its end: Node's side of the same rules is ``node/worker.mjs``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast.contracts.queues import Again, Failed, Finished, Handling

HOUR_MS = 3_600_000
SNOOZE_MS = 100
RESULT = {"ok": True}
REASON = "boom"


@dataclass(frozen=True)
class Case:
    """Jobs that Node adds to an empty queue, in this order; ``left_delayed`` of them still wait at the end."""

    jobs: tuple[tuple[str, dict[str, Any]], ...]
    left_delayed: int = 0
    works_in_python: bool = True
    """Whether the stock Python worker can do the case."""


def case(*jobs: tuple[str, dict[str, Any]], **about: Any) -> Case:
    return Case(jobs, **about)


CASES = {
    "is done": case(("ok", {})),
    "is done and has nothing to say": case(("nothing", {})),
    "has an id of its own": case(("ok", {"jobId": "courier-x.evt_5"})),
    "waits for its time": case(("ok", {"delay": 60})),
    "is removed when done": case(("ok", {}), ("ok", {"removeOnComplete": True})),
    "is removed when failed": case(("ok", {}), ("bad", {"removeOnFail": True})),
    "is one of the last two that are kept": case(*[("ok", {"removeOnComplete": 2})] * 5),
    "is one of the last two failed that are kept": case(*[("bad", {"removeOnFail": {"count": 2}})] * 4),
    "is kept for an hour": case(*[("ok", {"removeOnComplete": {"age": 3600, "count": 100}})] * 2),
    "is kept for ever": case(("ok", {"removeOnComplete": False}), ("bad", {"removeOnFail": False})),
    "goes by priority": case(
        ("ok", {"priority": 7}), ("ok", {"priority": 2}), ("ok", {}), ("bad", {"priority": 2, "attempts": 2})
    ),
    "fails": case(("bad", {})),
    "fails with an id of its own": case(("bad", {"jobId": "courier-x.evt_6"})),
    "is tried again at once and done": case(("flaky", {"attempts": 2})),
    "is tried again at once, first in line": case(("flaky", {"attempts": 2, "lifo": True}), ("ok", {})),
    "is tried again later and done": case(("flaky", {"attempts": 3, "backoff": {"type": "fixed", "delay": 40}})),
    "is tried again later by priority": case(
        ("flaky", {"attempts": 2, "priority": 3, "backoff": {"type": "fixed", "delay": 40}})
    ),
    "waits to be tried again": case(
        ("flaky", {"attempts": 2, "backoff": {"type": "fixed", "delay": HOUR_MS}}), ("ok", {}), left_delayed=1
    ),
    "is tried until its attempts are used up": case(("bad", {"attempts": 3})),
    "is tried with pauses until its attempts are used up": case(
        ("bad", {"attempts": 3, "backoff": {"type": "fixed", "delay": 20}})
    ),
    "keeps the last trace only": case(("bad", {"attempts": 3, "stackTraceLimit": 1})),
    "keeps no trace": case(("bad", {"attempts": 2, "stackTraceLimit": 0})),
    "keeps every trace": case(("bad", {"attempts": 12})),
    "fails before its attempts are used up": case(("hopeless", {"attempts": 5})),
    "asks to be run later": case(("snooze", {"attempts": 2})),
    "asks to be run by somebody else": case(("return", {"attempts": 2}), works_in_python=False),
    "is the only one of its kind": case(("ok", {"deduplication": {"id": "one"}}), ("ok", {})),
}


@dataclass
class Job:
    """What a rule needs to know of a job."""

    name: str
    opts: dict[str, Any]
    made: int = 0
    started: int = 0


def handling(job: Job) -> Handling:
    """What our worker does with a job, and counts."""
    job.started += 1
    if job.name == "bad" or (job.name == "flaky" and job.made == 0):
        job.made += 1
        pause = timedelta(milliseconds=job.opts.get("backoff", {}).get("delay", 0))
        return Again(pause, reason=REASON) if job.made < job.opts.get("attempts", 1) else Failed(REASON)
    match job.name:
        case "hopeless":
            return Failed(REASON)
        case "snooze" if job.started == 1:
            return Again(timedelta(milliseconds=SNOOZE_MS))
        case "return" if job.started == 1:
            return Again()
    return Finished() if job.name == "nothing" else Finished(json.dumps(RESULT, separators=(",", ":")))
