"""The steps of the calls: find the workload, check the data, accept the job, and read how it ended."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ValidationError

from holdfast.contracts.admission import FieldProblem, InvalidContent
from holdfast.contracts.dead_letters import letter_id
from holdfast.contracts.errors import InvalidQuery, NewerVersion, NotFound
from holdfast.contracts.functions import JobFunction
from holdfast.contracts.ledger import LedgerEntry, RecordedAs, Status
from holdfast.contracts.submissions import (
    Conflict,
    JobCancelled,
    JobError,
    JobExpired,
    JobFailed,
    Submission,
)
from holdfast.contracts.times import Duration, duration
from holdfast.contracts.tracing import labels_of, request_labels
from holdfast.contracts.transitions import CANCELLED
from holdfast.contracts.validation import BODY, sentence_of
from holdfast.contracts.workload import VERSION_FIELD, Workload
from holdfast.wiring import System

AnyJob = JobFunction[Any, Any] | Workload[Any] | str
"""A job function, a workload, or the name of one of them."""

_LONGEST_DELAY: Final = timedelta(days=365)
_LAST_PRIORITY: Final = 2**21  # BullMQ's own limit
_REQUEST_ID: Final = re.compile(r"[!-~]{1,200}")


# --- submitting -------------------------------------------------------------------------------------------------------


def workload_of(system: System, job: AnyJob) -> Workload[Any]:
    """The workload of this job in this system. Raises :class:`InvalidQuery`."""
    name = job if isinstance(job, str) else job.name
    found = system.workloads.get(name)
    if found is None:
        known = ", ".join(sorted(system.workloads)) or "none"
        message = f"There is no workload {name!r} in this app. Known: {known}."
        raise InvalidQuery(message)
    own = job.workload if isinstance(job, JobFunction) else job
    if not isinstance(own, str) and own is not found:
        message = f"The workload {name!r} of this app is another one than the one that was given."
        raise InvalidQuery(message)
    return found


def for_submitting(system: System, job: AnyJob) -> Workload[Any]:
    """The workload of this job, if jobs of it may be submitted directly. Features have an intake of their own."""
    workload = workload_of(system, job)
    for each in system.features.values():
        if (sentence := each.feature.intakes.get(workload.name)) is not None:
            message = f"Jobs of {workload.name} cannot be submitted directly. {sentence}"
            raise InvalidQuery(message)
    return workload


def data_of(workload: Workload[Any], given: object) -> BaseModel:
    """The data of a job: an instance of the contract, or a mapping that fulfils it.

    Raises ``TypeError``, or :class:`InvalidContent` with the fields that are wrong, and not with their values (I14).
    """
    contract: type[BaseModel] = workload.contract
    if isinstance(given, contract):
        return given
    if not isinstance(given, Mapping):
        message = f"A job of {workload.name} takes {contract.__name__}, not {type(given).__name__}."
        raise TypeError(message)
    try:
        if VERSION_FIELD not in given:
            return contract.model_validate(given)
        data: BaseModel = workload.read(json.dumps(given, default=str))  # an older version is brought to this version
    except NewerVersion as error:
        problem = FieldProblem(VERSION_FIELD, f"must be at most {workload.version}")
        raise InvalidContent([problem], error.message) from None
    except ValidationError as error:
        problems = [
            FieldProblem(".".join(map(str, each["loc"])) or BODY, sentence_of(each))
            for each in error.errors(include_url=False, include_input=False)
        ]
    else:
        return data
    listed = "; ".join(f"{each.field} {each.problem}" for each in problems)
    raise InvalidContent(problems, f"The data of a job of {workload.name} breaks its contract: {listed}.")


class Wishes(NamedTuple):
    """How a job is queued."""

    delay: timedelta
    priority: int


def wishes_of(delay: Duration | None, priority: int) -> Wishes:
    """How a job is queued. Raises ``ValueError`` with the rule."""
    wait = duration(delay or 0)
    if wait > _LONGEST_DELAY:
        message = f"A delay can be {_LONGEST_DELAY.days} days at most."
        raise ValueError(message)
    if not 0 <= priority <= _LAST_PRIORITY:
        message = f"A priority is a whole number from 0 to {_LAST_PRIORITY}."
        raise ValueError(message)
    return Wishes(wait, priority)


@contextlib.contextmanager
def tracing(request_id: str | None, traceparent: str | None) -> Iterator[None]:
    """Jobs that are accepted in the body get these labels; or those of the request of our API that is being answered.

    Without either, they get a new trace id.
    """
    if request_id is not None and _REQUEST_ID.fullmatch(request_id) is None:
        message = "A request id has 1 to 200 visible ASCII characters."
        raise ValueError(message)
    given = request_id is not None or traceparent is not None
    labels = request_labels.get()
    token = request_labels.set(labels_of(request_id, traceparent) if given or not labels else labels)
    try:
        yield
    finally:
        request_labels.reset(token)


async def accept(system: System, job: AnyJob, data: BaseModel, wishes: Wishes) -> Submission[Any]:
    """Record one job. Raises :class:`Conflict`, and what :meth:`Intake.accept` raises."""
    workload = workload_of(system, job)
    receipt = await system.intake.accept(workload, data, priority=wishes.priority, delay=wishes.delay)
    if receipt.recorded_as is RecordedAs.CONFLICT:
        raise Conflict(workload.name, receipt.key)
    return Submission(
        workload=workload.name,
        key=receipt.key,
        job_id=receipt.job_id,
        duplicate=receipt.duplicate,
        received_at=receipt.received_at,
        due_at=receipt.due_at,
        job=job if isinstance(job, JobFunction) else None,
    )


# --- following --------------------------------------------------------------------------------------------------------


def named(system: System, job: Submission[Any] | tuple[AnyJob, str]) -> tuple[Workload[Any], str]:
    """The workload and the key of a job."""
    if isinstance(job, Submission):
        return workload_of(system, job.workload), job.key
    which, key = job
    return workload_of(system, which), key


def status_of(given: Status | str | None) -> Status | None:
    """The status of this name. Raises :class:`InvalidQuery`."""
    try:
        return None if given is None else Status(given)
    except ValueError:
        message = f"There is no status {given!r}. Known: {', '.join(Status)}."
        raise InvalidQuery(message) from None


async def entry_of(system: System, workload: str, key: str) -> LedgerEntry:
    """The entry of this job. Raises :class:`NotFound`."""
    entry = await system.store.entry(workload, key)
    if entry is None:
        message = f"{workload} has no job with the key {key!r}."
        raise NotFound(message)
    return entry


def typed_result(job: Submission[Any] | tuple[AnyJob, str], entry: LedgerEntry) -> Any:  # noqa: ANN401 - the function's own type
    """The result of a processed job, in the type of its function; of a workload, as the ledger has it."""
    function = job.job if isinstance(job, Submission) else job[0]
    return function.result_of(entry.result) if isinstance(function, JobFunction) else entry.result


async def error_of(system: System, entry: LedgerEntry) -> JobError:
    """Why a job that has ended has no result."""
    names = {"workload": entry.workload, "key": entry.key}
    if entry.status is Status.EXPIRED:
        if entry.note == CANCELLED:
            return JobCancelled(**names)
        return JobExpired(**names)
    identity = letter_id(entry.workload, entry.key, entry.generation)
    letter = await system.store.letter(identity)
    if letter is not None:
        return JobFailed(letter.reason_code, letter.reason_message, identity, **names)
    message = entry.last_error_message or "The job failed for good."
    return JobFailed(entry.last_error_code or "UNKNOWN", message, identity, **names)
