"""A job's records in ``document_jobs`` and ``document_results``: the effects of each step, and finished results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast import Delete, Effect, Enqueue, JobState, Reason, Upsert, isoformat, new_entry
from holdfast.feature import FilesUnavailable

from .callbacks import CallbackJob, DocumentCallbacks, callback_id
from .contract import DocumentJob, InputType, JobType
from .failures import kind_of, message_and_detail
from .files import Files
from .options import DocumentOptions
from .records import CACHE, JOBS, RESULTS, UNITS, DocumentStatus, Stage, cache_id, given_id, unit_id, work_id

_ALL: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The progress of the reading: how many units are read, of how many."""

    stage: Stage
    unit: str | None = None
    done: int = 0
    units: int | None = None

    @property
    def percent(self) -> int:
        """Rounded down, so that it is 100 only when all is done."""
        return self.done * _ALL // self.units if self.units else 0


class JobRecords:
    """Makes the effects of each step. ``callbacks`` is the workload that sends results to senders, if there is one."""

    def __init__(
        self, *, max_attempts: Callable[[JobType], int], retention: timedelta, callbacks: DocumentCallbacks | None
    ) -> None:
        self._max_attempts = max_attempts
        self._retention = retention
        self._callbacks = callbacks

    # --- before the end ---------------------------------------------------------------------------------------

    def accepted(self, data: DocumentJob, engine: str) -> Sequence[Effect]:
        """PENDING. A replay is also written into the record of the job that it replays."""
        now = datetime.now(UTC)
        facts = self._facts(data, engine) | {
            "status": DocumentStatus.PENDING,
            "stage": Stage.QUEUED,
            "progress": 0,
            "unit": None,
            "units_done": 0,
            "units": None,
            "attempts": 0,
            "error": None,
            "cached": False,
            "accepted_at": isoformat(now),
        }
        effects: list[Effect] = [Upsert(JOBS, data.key, {}, set_on_insert=facts)]
        if data.replay_of is not None:
            effects.append(self._replayed(data, facts, now))
        return effects

    def began(self, data: DocumentJob, attempt: int) -> Upsert:
        """PROCESSING: an attempt has begun."""
        fields = {
            "status": DocumentStatus.PROCESSING,
            "stage": Stage.FETCHING,
            "attempts": attempt,
            "started_at": isoformat(datetime.now(UTC)),
        }
        return Upsert(JOBS, data.key, fields)

    @staticmethod
    def reached(data: DocumentJob, so_far: Reached) -> Upsert:
        """Still PROCESSING, with new progress."""
        fields = {
            "stage": so_far.stage,
            "progress": so_far.percent,
            "unit": so_far.unit,
            "units_done": so_far.done,
            "units": so_far.units,
        }
        return Upsert(JOBS, data.key, fields)

    @staticmethod
    def asked_to_stop(data: DocumentJob) -> Upsert:
        """Still PROCESSING, but not for long: its sender cancelled it."""
        return Upsert(JOBS, data.key, {"cancel_requested": True})

    def retrying(self, job: JobState[DocumentJob], reason: Reason) -> Sequence[Effect]:
        """RETRYING: the attempt failed, and there will be another."""
        fields = {
            "status": DocumentStatus.RETRYING,
            "stage": Stage.QUEUED,
            "attempts": job.attempt,
            "error": _error(reason),
        }
        return [Upsert(JOBS, job.data.key, fields)]

    def released(self, job: JobState[DocumentJob]) -> Sequence[Effect]:
        """Waiting again, as before the attempt."""
        attempts = max(job.attempt - 1, 0)
        status = DocumentStatus.RETRYING if attempts else DocumentStatus.PENDING
        fields = {"status": status, "stage": Stage.QUEUED, "attempts": attempts}
        return [Upsert(JOBS, job.data.key, fields)]

    # --- the end ----------------------------------------------------------------------------------------------

    def completed(
        self,
        data: DocumentJob,
        result: Mapping[str, Any],
        *,
        attempts: int,
        work: str | None = None,
    ) -> Sequence[Effect]:
        """COMPLETED. The checkpoints of ``work`` are deleted and its result is cached. None: the result was cached."""
        now = datetime.now(UTC)
        fields = _finished(result) | {"attempts": attempts, "error": None}
        effects = self._end(data, fields, {**result, "status": DocumentStatus.COMPLETED}, now)
        if work is not None:
            kept = {"job_id": data.key, "expires_at": isoformat(now + self._retention)}
            effects.append(Upsert(CACHE, cache_id(data, work), kept))
            effects += [Delete(UNITS, unit_id(work, index)) for index in range(result["units"])]
        return effects

    def completed_elsewhere(self, job: JobState[DocumentJob], result: Mapping[str, Any]) -> Sequence[Effect]:
        """COMPLETED by the worker of another system. Only the value that it returned is known of the result."""
        duration, path, pages = (result.get(name) for name in ("duration_sec", "output_path", "pages"))
        known = _no_result(job.data, DocumentStatus.COMPLETED, duration if isinstance(duration, int | float) else None)
        known["output_path"] = path if isinstance(path, str) else None
        known["pages"] = pages if isinstance(pages, int) else None
        fields = {
            "status": DocumentStatus.COMPLETED,
            "stage": Stage.FINISHED,
            "progress": _ALL,
            "attempts": job.attempt,
            "error": None,
        }
        return self._end(job.data, fields, known, datetime.now(UTC))

    def from_cache(self, data: DocumentJob, engine: str, result: Mapping[str, Any]) -> Sequence[Effect]:
        """COMPLETED on arrival. The callback is sent when the worker settles the job, as for any other job."""
        fields = self._facts(data, engine) | _finished(result)
        return self._end(data, fields, result, datetime.now(UTC), callback=False)

    def failed(self, job: JobState[DocumentJob], reason: Reason, duration: float | None) -> Sequence[Effect]:
        """FAILED, with the error of the dead letter."""
        error = _error(reason)
        fields = {"status": DocumentStatus.FAILED, "stage": Stage.FINISHED, "attempts": job.attempt, "error": error}
        result = _no_result(job.data, DocumentStatus.FAILED, duration) | {"error": error}
        return self._end(job.data, fields, result, datetime.now(UTC))

    def cancelled(self, data: DocumentJob) -> Sequence[Effect]:
        """CANCELLED by its sender."""
        fields = {"status": DocumentStatus.CANCELLED, "stage": Stage.FINISHED}
        return self._end(data, fields, _no_result(data, DocumentStatus.CANCELLED, None), datetime.now(UTC))

    # --- parts ------------------------------------------------------------------------------------------------

    def _replayed(self, data: DocumentJob, facts: Mapping[str, Any], now: datetime) -> Upsert:
        """Link the record of the replayed job to its replay. It may have expired: dead letters are kept longer."""
        ended = {"status": DocumentStatus.FAILED, "stage": Stage.FINISHED, "replay_of": None}
        end = {"finished_at": isoformat(now), "expires_at": isoformat(now + self._retention)}
        named = {} if data.replay_of == data.replayed_key else {"given_id": data.replay_of}
        inserted = {**facts, **ended, **end, **named}
        return Upsert(JOBS, str(data.replayed_key), {"replayed_as": data.job_id}, set_on_insert=inserted)

    def _facts(self, data: DocumentJob, engine: str) -> dict[str, Any]:
        payload = data.payload
        return {
            "company_id": data.company_id,
            "job_type": data.job_type.value,
            "input_type": data.input_type.value,
            "max_attempts": self._max_attempts(data.job_type),
            "engine": engine,
            "language": payload.language,
            "metadata": payload.metadata,
            "filename": None if payload.upload is None else payload.upload.filename,
            "replay_of": data.replay_of,
            **_given_id(data),
        }

    def _end(
        self,
        data: DocumentJob,
        fields: Mapping[str, Any],
        result: Mapping[str, Any],
        now: datetime,
        *,
        callback: bool = True,
    ) -> list[Effect]:
        end = {"finished_at": isoformat(now), "expires_at": isoformat(now + self._retention)}
        effects: list[Effect] = [
            Upsert(JOBS, data.key, {**fields, **end}),
            Upsert(
                RESULTS,
                data.key,
                {**result, **end, **_given_id(data), "job_id": data.key, "company_id": data.company_id},
            ),
        ]
        if callback and self._callbacks is not None and data.payload.callback_url is not None:
            effects.append(Enqueue(new_entry(self._callbacks, _callback(data, result, now))))
        return effects


def result_object(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result as its sender sees it, without internal fields."""
    return {name: value for name, value in result.items() if name not in _INTERNAL} | {"job_id": given_id(result)}


_INTERNAL: Final = frozenset({"company_id", "given_id", "expires_at", "createdAt", "updatedAt", "unit", "output_bytes"})


def _given_id(data: DocumentJob) -> dict[str, str]:
    """The id that the tenant chose, if the key is another."""
    return {} if data.key == data.job_id else {"given_id": data.job_id}


def _finished(result: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a completed job."""
    return {
        "status": DocumentStatus.COMPLETED,
        "stage": Stage.FINISHED,
        "progress": _ALL,
        "unit": result["unit"],
        "units_done": result["units"],
        "units": result["units"],
        "cached": result["cached"],
        "warnings": result.get("warnings") or [],
    }


def _no_result(data: DocumentJob, status: DocumentStatus, duration: float | None) -> dict[str, Any]:
    """The result record of a job that produced nothing."""
    return {
        "job_id": data.job_id,
        "status": status,
        "duration_sec": None if duration is None else round(duration, 3),
        "output_path": None,
        "pages": 0 if data.input_type is InputType.PDF else None,
        "cached": False,
    }


def _error(reason: Reason) -> dict[str, Any]:
    message, detail = message_and_detail(reason.message)
    return {
        "error_type": kind_of(reason.code).error_type.value,
        "code": reason.code,
        "message": message,
        "detail": detail,
    }


def _callback(data: DocumentJob, result: Mapping[str, Any], now: datetime) -> CallbackJob:
    """The callback's body is that of Standard Webhooks: a type, a time, and the data."""
    content = result_object(result) | {"finished_at": isoformat(now), "metadata": data.payload.metadata}
    status: DocumentStatus = content["status"]
    return CallbackJob(
        callback_id=callback_id(data.key),
        url=data.payload.callback_url or "",
        job_id=data.job_id,
        company_id=data.company_id,
        body={"type": f"document.{status.value.lower()}", "timestamp": isoformat(now), "data": content},
    )


async def cached_result(
    get: Callable[[str, str], Awaitable[Mapping[str, Any] | None]],
    files: Files,
    data: DocumentJob,
    content: str,
    options: DocumentOptions,
) -> dict[str, Any] | None:
    """A finished result for the same file, the same way of reading and the same tenant, with the id of this job.

    None if there is none, or if its files are gone. ``get`` reads a record.
    """
    work = work_id(content, *options.reading_method(data))
    known = await get(CACHE, cache_id(data, work))
    result = None if known is None else await get(RESULTS, known["job_id"])
    if result is None or result.get("status") != DocumentStatus.COMPLETED:
        return None
    if data.payload.strict and result.get("warnings"):
        return None
    try:
        if not await files.touch(output_path=result["output_path"]):
            return None
    except FilesUnavailable:
        return None
    kept = {"unit": result["unit"], "output_bytes": result.get("output_bytes", 0)}
    return result_object(result) | kept | {"job_id": data.job_id, "cached": True}
