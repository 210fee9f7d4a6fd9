"""The documents workload: files become text, page by page, in a child process.

An attempt gets the file, looks for a finished result of the same file, and starts a child process that reads the units
that earlier attempts have not read. Each page or chunk of sound is committed as soon as it is read. The table in
:mod:`.failures` names every failure. A person replays a dead letter as a new job; nothing is replayed automatically.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from holdfast import (
    Accept,
    Adopt,
    Adopted,
    AskToStop,
    BackgroundTask,
    Collection,
    Complete,
    Context,
    DeadLetter,
    Delete,
    Delivery,
    Done,
    Effect,
    Expire,
    Expired,
    Failure,
    HoldfastError,
    Identity,
    Job,
    JobState,
    MoveToDeadLetters,
    Outcome,
    PermanentError,
    Publish,
    Reason,
    Release,
    RetryLater,
    Transition,
    Workload,
    crash_point,
    job_id_for,
    usable_job_id,
)
from holdfast.feature import FilesUnavailable

from .adopting import ListReader, Lists, adopt, identify, read_job
from .callbacks import DocumentCallbacks
from .contract import FLAT_ONLY, DocumentJob, JobType
from .dead_letter import dead_letter_payload
from .failures import Code, DocumentFailure
from .files import Files, Sources
from .job_records import JobRecords, cached_result
from .options import DocumentOptions
from .reading import Reading
from .records import COLLECTIONS, UNITS, unit_id, work_id
from .usage import Usage

QUEUE: Final = "doc_jobs"
DEAD_LETTER_QUEUE: Final = "doc_jobs_dead"

_SLACK: Final = timedelta(minutes=5)
"""Added to the child's time: fetching the file, and writing the outputs."""
_SWEEP_EVERY: Final = timedelta(hours=1)


class Documents(Workload[DocumentJob]):
    """The documents workload. One job id of one tenant: one result."""

    name = "documents"
    stoppable = True
    contract = DocumentJob
    queue = QUEUE
    dead_letter_queue = DEAD_LETTER_QUEUE
    collections: Sequence[Collection] = COLLECTIONS
    indexed_labels: Sequence[str] = ("company_id", "job_type")
    label_columns: Sequence[str] = ("company_id", "job_type", "input_type")
    ledger_name = "document_ledger"
    letters_name = "doc_jobs_dead"

    def __init__(
        self,
        options: DocumentOptions,
        sources: Sources,
        callbacks: DocumentCallbacks | None = None,
        lists: Lists | None = None,
        usage: Usage | None = None,
    ) -> None:
        """Without ``callbacks``, no callback is sent; without ``lists``, jobs come from the queue only.

        ``usage`` counts the files of tenants. Without it, there is no quota.
        """
        self.retry = options.retry
        self.timeout = options.timeout + _SLACK
        self.retention = options.retention
        self.letter_retention = options.letter_retention
        self.concurrency = options.concurrency
        self.options = options
        self.records = JobRecords(max_attempts=options.attempts_of, retention=options.retention, callbacks=callbacks)
        self._sources = sources
        self._files: Files = sources.files
        self._lists = lists
        self._usage = usage
        self._spent: dict[str, float] = {}
        self._left: dict[str, _LeftUnits] = {}
        self._sweeping: asyncio.Task[None] | None = None

    # --- the job's identity -----------------------------------------------------------------------------------

    def key(self, data: DocumentJob) -> str:
        """The job id; with the mark of the tenant if the tenant chose the id."""
        return data.key

    def job_id(self, key: str, data: DocumentJob) -> str:
        """The key, unless queues reserve such ids for themselves: numbers, for example."""
        del data
        return key if usable_job_id(key) else job_id_for(key)

    def fingerprint(self, data: DocumentJob) -> str:
        """A hash of the file and the way to read it. The file's name and the time of sending are left out."""
        upload = data.payload.upload
        unnamed = None if upload is None else upload.model_copy(update={"filename": None, "upload_id": None})
        compared = data.model_copy(update={"payload": data.payload.model_copy(update={"upload": unnamed})})
        content = compared.model_dump_json(exclude={"payload": set(FLAT_ONLY), "scoped": True})
        return sha256(content.encode()).hexdigest()

    def labels(self, data: DocumentJob) -> dict[str, str]:
        """The tenant of the job, and its types."""
        labels = {"job_type": data.job_type.value, "input_type": data.input_type.value}
        return labels if data.company_id is None else {**labels, "company_id": data.company_id}

    def fairness_key(self, data: DocumentJob) -> str | None:
        """Tenants take turns."""
        return data.company_id

    # --- jobs of external producers ---------------------------------------------------------------------------

    def adopt(self, delivery: Delivery) -> Adopted[DocumentJob]:
        """Adopt a job in our own form or in the flat form."""
        return adopt(delivery.data)

    def identify(self, content: Mapping[str, Any]) -> Identity:
        """Identify a job by its own job_id."""
        return identify(content)

    def background(self, adopt: Adopt) -> Sequence[BackgroundTask]:
        """The task that reads jobs from the plain list, if there is one."""
        return () if self._lists is None else [ListReader(self._lists, adopt, self.options.left_after)]

    # --- the work ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the fetcher, and start the task that removes old files."""
        await self._sources.fetcher.open()
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep())

    async def stop(self) -> None:
        """Stop the task and close the fetcher."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await self._sources.fetcher.close()

    async def handle(self, job: Job[DocumentJob], context: Context) -> Outcome:
        """Read the file, unless it was read before or the job is cancelled."""
        began = time.monotonic()
        try:
            return await self._unless_cancelled(job, context, began)
        except DocumentFailure as failure:
            self._spent[job.data.key] = time.monotonic() - began
            return failure.outcome

    async def _unless_cancelled(self, job: Job[DocumentJob], context: Context, began: float) -> Outcome:
        """Work until done, or until the job is cancelled."""
        working = asyncio.ensure_future(self._work(job, context, began))
        watching = asyncio.ensure_future(context.until_cancelled())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            return await working if working.done() else Expired()
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)

    async def _work(self, job: Job[DocumentJob], context: Context, began: float) -> Outcome:
        data = job.data
        if data.payload.upload is not None:  # its hash is known without fetching it
            known = await self._from_cache(job, context, data.payload.upload.sha256)
            if known is not None:
                return known
        await context.proceed([self.records.began(data, job.attempt)], repeatable=True)
        async with self._sources.temporary_folder() as folder:
            async with self._sources.local_copy(data) as source:
                if data.payload.upload is None:
                    known = await self._from_cache(job, context, source.sha256)
                    if known is not None:
                        return known
                work = work_id(source.sha256, *self.options.reading_method(data))
                reading = Reading(job, context, self.options, work, folder)
                with self._remembering_units(reading, data):
                    plan = await reading.run(source.path)
            await reading.writing()
            with self._remembering_units(reading, data):
                result, outputs = await reading.result(plan, time.monotonic() - began)
                if self._usage is not None:
                    await self._usage.require_room_for_output(data.company_id, result["output_bytes"])
            result["output_path"] = await self._write(job, outputs)
        return self._done(job, result, work)

    @contextlib.contextmanager
    def _remembering_units(self, reading: Reading, data: DocumentJob) -> Iterator[None]:
        """After a failure, remember the checkpoints that are there: a dead letter counts or deletes them."""
        try:
            yield
        except DocumentFailure:
            self._left[data.key] = _LeftUnits(reading.work, reading.units, reading.size)
            raise

    def _done(self, job: Job[DocumentJob], result: Mapping[str, Any], work: str | None = None) -> Done:
        effects = self.records.completed(job.data, result, attempts=job.attempt, work=work)
        counted = self._counted(job.data, result.get("output_bytes", 0))
        return Done([*effects, *counted], _summary(result))

    def _counted(self, data: DocumentJob, size: int) -> Sequence[Effect]:
        return () if self._usage is None else self._usage.counted(data.company_id, size)

    def _clean(self, data: DocumentJob, code: str) -> Sequence[Effect]:
        """What becomes of the checkpoints of a dead letter's job.

        A replay goes on from them, so they stay for a while, and count. A job with too much output would fail again, so
        its checkpoints are deleted.
        """
        left = self._left.pop(data.key, None)
        if left is None:
            return ()
        if code == Code.OUTPUT_TOO_LARGE:
            return [Delete(UNITS, unit_id(left.work, index)) for index in range(left.units)]
        return self._counted(data, left.size)

    async def _from_cache(self, job: Job[DocumentJob], context: Context, content: str) -> Outcome | None:
        """Done at once, if the same file was read in the same way before."""
        if job.data.payload.cache is False:
            return None
        found = await cached_result(context.get, self._files, job.data, content, self.options)
        if found is None:
            return None
        return self._done(job, found)

    async def _write(self, job: Job[DocumentJob], outputs: Mapping[str, Path]) -> str:
        try:
            return await self._files.write(f"{job.data.key}/{job.attempt}", outputs)
        except FilesUnavailable as error:
            raise DocumentFailure(Code.STORAGE_UNAVAILABLE) from error

    async def _sweep(self) -> None:
        """Remove old files. A file is kept longer than the dead letter or the result that needs it."""
        while True:
            with contextlib.suppress(FilesUnavailable, OSError):
                await self._sources.sweep(self.timeout)
                await self._files.sweep(self.options.files_kept)
            await asyncio.sleep(_SWEEP_EVERY.total_seconds())

    def classify(self, error: Exception) -> Failure | None:
        """An unexpected error of our own code does not pass by itself: it becomes a dead letter for a person (D7)."""
        match error:
            case HoldfastError() | TimeoutError() | ValidationError():
                return None
            case OSError():
                message = f"The worker's own files failed: {error.strerror or type(error).__name__}"
                return Failure(Code.STORAGE_UNAVAILABLE, message, retry=True)
            case _:
                return Failure(Code.UNEXPECTED, f"An unexpected error: {type(error).__name__}", retry=False)

    def max_attempts(self, data: DocumentJob) -> int:
        """The limit of its job type."""
        return self.options.attempts_of(data.job_type)

    def exhausted(self, failure: Failure, attempts: int) -> Reason:
        """The last failure is the reason. The letter has the number of attempts in its own field."""
        del attempts
        return failure

    # --- the job's records ------------------------------------------------------------------------------------

    def on_transition(self, transition: Transition, job: JobState[DocumentJob]) -> Sequence[Effect]:  # noqa: PLR0911
        """The job's record, after each transition. Jobs have no deadline: they expire only if they are cancelled."""
        records, data = self.records, job.data
        match transition:
            case Accept():
                return records.accepted(data, self.options.engine_of(data))
            case RetryLater():
                self._spent.pop(data.key, None)
                self._left.pop(data.key, None)
                return records.retrying(job, Reason(transition.code, transition.message))
            case Release():
                return records.released(job)
            case MoveToDeadLetters():
                reason = Reason(transition.reason_code, transition.reason_message)
                failed = records.failed(job, reason, self._spent.pop(data.key, None))
                return [*failed, *self._clean(data, transition.reason_code)]
            case Expire():
                return records.cancelled(data)
            case Complete(elsewhere=True, result=result):
                return records.completed_elsewhere(job, result or {})
            case AskToStop():
                return [records.asked_to_stop(data)]
            case Publish() | Complete():
                return ()

    # --- the wire ---------------------------------------------------------------------------------------------

    def dead_letter_payload(self, letter: DeadLetter) -> Mapping[str, Any]:
        """Schema v1 of the specification (D26)."""
        job = self.readable(letter.body)
        return dead_letter_payload(letter, job, self.options.attempts_of(_job_type(job)))

    async def copy_letters(self, letters: Mapping[str, str]) -> None:
        """Copy dead letters to the plain list too, each letter once."""
        if self._lists is None:
            return
        # A letter that has expired is not published again, so its id need not be remembered longer.
        if not await self._lists.send(letters, self.letter_retention + timedelta(days=1)):
            message = f"In Redis, {DEAD_LETTER_QUEUE} is not a list: dead letters are not copied to it."
            raise PermanentError(Code.UNEXPECTED, message)
        crash_point("lists.letters_sent")

    def replayed(self, letter: DeadLetter) -> DocumentJob:
        """A new job with a new id, which names the job that it replays (D23, D24)."""
        data = read_job(letter.body)
        # If the job was refused because its id was taken, the id belongs to another job, which is not replayed.
        replay_of = data.job_id if letter.key == data.key else None
        return data.model_copy(update={"job_id": new_job_id(), "replay_of": replay_of})


@dataclass(frozen=True, slots=True)
class _LeftUnits:
    """The checkpoints of a job that failed: the id of the work, how many units, and their bytes."""

    work: str
    units: int
    size: int


def new_job_id() -> str:
    """An id for a job whose sender gave none."""
    return f"doc-{uuid.uuid4()}"


def _job_type(job: object) -> JobType | None:
    """The type of a job; None if it has none, or an unknown one."""
    given = job.get("job_type") if isinstance(job, dict) else None
    return JobType(given) if given in list(JobType) else None


def _summary(result: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a result that the ledger keeps."""
    summary = {name: result[name] for name in ("job_id", "status", "duration_sec", "output_path", "pages")}
    return summary | {"warnings": result["warnings"]} if result.get("warnings") else summary
