"""Jobs in BullMQ's wire format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgpack

from holdfast.contracts.queues import Acknowledgement, Again, Delivery, Failed, Finished, QueueJob, WorkedElsewhere
from holdfast.contracts.times import duration_ms, from_ms

_GIVEN_UP: Final = "job stalled more than"
"""The beginning of BullMQ's ``failedReason`` for a job that stalled too often. In Holdfast the ledger decides that."""

MAX_PRIORITY: Final = 2**21
_MOST_TRACES: Final = 10


@dataclass(frozen=True, slots=True)
class Taken(Delivery):
    """A delivery with its earlier stack traces, as JSON text. BullMQ needs them to settle the job."""

    stacktrace: str = "[]"


@dataclass(frozen=True, slots=True)
class Keep:
    """How many finished jobs stay for people to read. A job's own options come before these numbers."""

    completed: int = 1_000
    failed: int = 10_000


def taken_from(queue: str, token: str, job: Sequence[Any]) -> Taken:
    """A delivery from the reply of a take: the job's hash as a flat list, and its id."""
    flat, job_id = job
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    return Taken(
        queue,
        _text(job_id),
        _text(fields.get(b"data", b"")),
        token,
        _text(fields.get(b"name", b"")),
        _instant(fields.get(b"timestamp", b"")),
        _text(fields.get(b"opts", b"{}")),
        _text(fields.get(b"stacktrace", b"[]")),
    )


def ended_from(answer: Sequence[bytes]) -> WorkedElsewhere | None:
    """A job that another system's worker finished, from a script's answer: id, state, value, milliseconds.

    None when BullMQ's check for stalled jobs failed the job: then no worker has finished it.
    """
    job_id, state, value, at = (_text(each) for each in answer)
    instant = from_ms(int(float(at)))
    if state != "failed":
        return WorkedElsewhere(job_id, instant, value)
    return None if value.startswith(_GIVEN_UP) else WorkedElsewhere(job_id, instant, failure=value)


def _instant(milliseconds: bytes) -> datetime | None:
    try:
        return from_ms(int(milliseconds))
    except (ValueError, OverflowError, OSError):  # a producer may write any text
        return None


def _text(value: bytes) -> str:
    # Bad bytes of an external producer must not stop the whole batch; the contract refuses them later.
    return value.decode(errors="replace")


# --- publishing -----------------------------------------------------------------------------------------------


def publish_arguments(job: QueueJob) -> tuple[str | bytes | int, ...]:
    """The six arguments of ``publish.lua`` for one job."""
    opts: dict[str, Any] = {"jobId": job.job_id, "attempts": 0}
    delay, kind = duration_ms(job.delay), "standard"
    if job.priority > 0:
        opts["priority"] = min(job.priority, MAX_PRIORITY)
        kind = "prioritized"
    if delay > 0:
        opts["delay"] = delay
        kind = "delayed"
    return (job.job_id, job.name, job.data, msgpack.packb(opts), kind, int(job.revive))


# --- settling -------------------------------------------------------------------------------------------------


def settle_arguments(each: Acknowledgement, keep: Keep) -> tuple[str | bytes | int, ...]:
    """The eight arguments of ``settle.lua`` for one delivery."""
    delivery, handling = each.delivery, each.handling
    opts = _options(delivery)
    held = (delivery.job_id, delivery.token)
    match handling:
        case Finished(result=result, data=data):
            packed = _finish_options(delivery.token, opts, "removeOnComplete", keep.completed)
            return ("completed", *held, result, 0, b"", packed, data or "")
        case Failed(reason=reason, data=data, stacktrace=trace):
            packed = _finish_options(delivery.token, opts, "removeOnFail", keep.failed)
            fields = _failure_fields(delivery, opts, reason, trace)
            return ("failed", *held, reason, 0, fields, packed, data or "")
        case Again(after=after, data=data, reason=reason, stacktrace=trace):
            delay = duration_ms(after)
            fields = b"" if reason is None else _failure_fields(delivery, opts, reason, trace)
            if delay > 0:
                kind = "later" if reason is None else "delayed"
                return (kind, *held, "", delay, fields, b"", data or "")
            if reason is None:
                return ("wait", *held, "", 0, b"", b"", data or "")
            push = "RPUSH" if opts.get("lifo") else "LPUSH"
            return ("retry", *held, push, 0, fields, b"", data or "")


def _options(delivery: Delivery) -> Mapping[str, Any]:
    if not isinstance(delivery, Taken):
        return {}
    try:
        opts = json.loads(delivery.opts)
    except ValueError:
        return {}
    return opts if isinstance(opts, dict) else {}


def _finish_options(token: str, opts: Mapping[str, Any], remove: str, keep: int) -> bytes:
    packed: bytes = msgpack.packb(
        {
            "token": token,
            "keepJobs": _keep_jobs(opts.get(remove), keep),
            "attempts": _number(opts.get("attempts")),
            "maxMetricsSize": "",
            **{name: bool(opts.get(name)) for name in ("fpof", "cpof", "idof", "rdof")},
        }
    )
    return packed


def _keep_jobs(wanted: Any, default: int) -> dict[str, Any]:  # noqa: ANN401 - a producer may write any value
    match wanted:
        case bool():
            return {"count": 0 if wanted else -1}
        case int():
            return {"count": wanted}
        case {"count": int()} | {"age": int()}:
            return {name: value for name, value in wanted.items() if name in {"count", "age", "limit"}}
        case _:
            return {"count": default}


def _number(value: Any) -> int:  # noqa: ANN401 - a producer may write any value
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _failure_fields(delivery: Delivery, opts: Mapping[str, Any], reason: str, trace: str | None) -> bytes:
    """``failedReason`` and ``stacktrace`` as Node's worker writes them: one item for each failed attempt, newest last.

    An attempt without a traceback has its reason there. Node keeps every item. So do we, but our tracebacks are long:
    with one more of them, the last few items stay.
    """
    try:
        traces = json.loads(delivery.stacktrace) if isinstance(delivery, Taken) else []
    except ValueError:
        traces = []
    traces = [*(traces if isinstance(traces, list) else []), reason if trace is None else trace]
    if trace is not None:
        traces = traces[-_MOST_TRACES:]
    limit = opts.get("stackTraceLimit")
    if isinstance(limit, int) and not isinstance(limit, bool):
        traces = traces[-limit:] if limit > 0 else []
    packed: bytes = msgpack.packb(["failedReason", reason, "stacktrace", json.dumps(traces, separators=(",", ":"))])
    return packed
