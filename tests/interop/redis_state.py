"""Everything that a queue left in Redis, in a form in which two queues can be compared.

Only what cannot be equal is made so: instants (after a look that they are instants, and the right ones), and the text
of stack traces (after a look that they tell the reason). Our own mark on the jobs that we ended is left out.
"""

from __future__ import annotations

import json
from typing import Any

from redis.asyncio import Redis

_INSTANTS = ("timestamp", "processedOn", "finishedOn")
_EARLIEST = 1_500_000_000_000
_DELAY_BITS = 4_096


async def state_of(client: Redis, base: str) -> dict[str, Any]:
    """Every key that begins with ``base``, by the rest of its name. The client decodes responses."""
    raw = {key.removeprefix(base): await _value(client, key) async for key in client.scan_iter(f"{base}*", count=1_000)}
    state = {name: _job(value) if isinstance(value, dict) else value for name, value in raw.items()}
    for name in ("completed", "failed"):
        if name in raw:
            # By id: two that finished in one millisecond have no order. The events tell it.
            state[name] = sorted(_finished(member, score, raw[member]) for member, score in raw[name])
    if "delayed" in raw:
        state["delayed"] = [_delayed(member, score, raw[member]) for member, score in raw["delayed"]]
    if "events" in raw:
        state["events"] = [_event(fields) for _, fields in raw["events"]]
    return state


async def _value(client: Redis, key: str) -> Any:
    match await client.type(key):
        case "hash":
            return await client.hgetall(key)
        case "zset":
            return await client.zrange(key, 0, -1, withscores=True)
        case "list":
            return await client.lrange(key, 0, -1)
        case "set":
            return sorted(await client.smembers(key))
        case "stream":
            return await client.xrange(key)
        case _:
            return await client.get(key)


def _job(fields: dict[str, str]) -> dict[str, Any]:
    job: dict[str, Any] = dict(fields)
    # Our own mark, which BullMQ passes over; only a job that we ended has it.
    assert job.pop("holdfast:ended", None) is None or "finishedOn" in job
    for name in _INSTANTS:
        if name in job:
            job[name] = _instant(job[name])
    if "opts" in job:
        job["opts"] = json.loads(job["opts"])
    if "stacktrace" in job:
        job["stacktrace"] = [_trace(each) for each in json.loads(job["stacktrace"])]
    return job


def _event(fields: dict[str, str]) -> dict[str, str]:
    # The event "delayed" tells until when.
    return fields | {"delay": _instant(fields["delay"])} if fields["event"] == "delayed" else fields


def _instant(text: str) -> str:
    assert int(text) > _EARLIEST, f"{text!r} is no instant"
    return "an instant"


def _trace(text: str) -> str:
    return "tells of boom" if "boom" in text else text


def _finished(member: str, score: float, job: dict[str, str]) -> tuple[str, str]:
    """Finished jobs are ordered by the instant that they carry."""
    return member, "its finishedOn" if score == float(job["finishedOn"]) else f"{score}, not {job['finishedOn']}"


def _delayed(member: str, score: float, job: dict[str, str]) -> tuple[str, str]:
    """Delayed jobs are ordered by the instant at which they are due, with room for a counter."""
    due = score // _DELAY_BITS
    since = due - float(job["delay"])
    told = "due its delay after it was last seen" if since >= float(job.get("processedOn", job["timestamp"])) else score
    return member, str(told)
