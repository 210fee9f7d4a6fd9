"""The documents workload: files become text, in a process of their own, a page at a time (seed 003).

An attempt gets the file to hand, asks whether the same was read before, and starts a child process that reads what
earlier attempts have not. Each page, or stretch of sound, is committed as it is read. A failure is named by the one
table in :mod:`.failures`, and a dead letter is replayed as a new job, by a person, never by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any, ClassVar, Final

from pydantic import ValidationError

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.effects import Collection, Effect
from holdfast.contracts.errors import HoldfastError, PermanentError, StoreUnavailable
from holdfast.contracts.files import FilesUnavailable
from holdfast.contracts.outcomes import Done, Expired, Outcome
from holdfast.contracts.queues import Delivery, job_id_for, usable_job_id
from holdfast.contracts.workload import (
    Adopt,
    Adopted,
    BackgroundTask,
    Context,
    Failure,
    Identity,
    Job,
    Reason,
    Standing,
    Workload,
)

from .adopting import adopt, identify, read_job
from .callbacks import DocumentCallbacks
from .contract import FLAT_ONLY, DocumentJob, JobType
from .dead_letter import dead_letter_payload
from .failures import Code, DocumentFailure
from .files.port import Files
from .finding import cached_result
from .job_records import JobRecords
from .lists import ListReader, Lists
from .options import DocumentOptions
from .reading import Reading
from .records import COLLECTIONS, JOBS, work_id
from .sources import Sources

QUEUE: Final = "doc_jobs"
DEAD_LETTER_QUEUE: Final = "doc_jobs_dead"

_SLACK: Final = timedelta(minutes=5)
"""Beyond the child's own time: fetching the file, and writing the outputs."""
_SWEEP_EVERY: Final = timedelta(hours=1)
_LOOK_EVERY: Final = timedelta(milliseconds=500)


class Documents(Workload[DocumentJob]):
    """Documents. The job's id is the ledger's key: one job id, one result."""

    name: ClassVar[str] = "documents"
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
    ) -> None:
        """Without ``callbacks``, nobody is called back; without ``lists``, jobs come from the queue alone."""
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
        self._spent: dict[str, float] = {}
        self._sweeping: asyncio.Task[None] | None = None

    # --- the job's identity -----------------------------------------------------------------------------------

    def key(self, data: DocumentJob) -> str:
        """The job id."""
        return data.job_id

    def job_id(self, key: str, data: DocumentJob) -> str:
        """The job id, unless queues keep such words for themselves, as they do numbers."""
        del data
        return key if usable_job_id(key) else job_id_for(key)

    def fingerprint(self, data: DocumentJob) -> str:
        """Covers what is to be read and how; what the file was called, and when it was sent, does not matter."""
        upload = data.payload.upload
        nameless = None if upload is None else upload.model_copy(update={"filename": None})
        same = data.model_copy(update={"payload": data.payload.model_copy(update={"upload": nameless})})
        content = same.model_dump_json(exclude={"payload": set(FLAT_ONLY)})
        return sha256(content.encode()).hexdigest()

    def labels(self, data: DocumentJob) -> dict[str, str]:
        """Whose job it is, and its kind."""
        told = {"job_type": data.job_type.value, "input_type": data.input_type.value}
        return told if data.company_id is None else {**told, "company_id": data.company_id}

    def fairness_key(self, data: DocumentJob) -> str | None:
        """Tenants take turns."""
        return data.company_id

    # --- jobs that somebody else put into the queue -----------------------------------------------------------

    def adopt(self, delivery: Delivery) -> Adopted[DocumentJob]:
        """In our own form, or flat as the specification's producers write it."""
        return adopt(delivery.data)

    def identify(self, content: Mapping[str, Any]) -> Identity:
        """By its own job_id."""
        return identify(content)

    def background(self, adopt: Adopt) -> Sequence[BackgroundTask]:
        """Jobs from the plain list, where there is one."""
        return () if self._lists is None else [ListReader(self._lists, adopt, self.options.left_after)]

    # --- the work ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open what fetches; forget, from time to time, files that nobody needs any more."""
        await self._sources.fetcher.open()
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep())

    async def stop(self) -> None:
        """Close it again."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await self._sources.fetcher.close()

    async def handle(self, job: Job[DocumentJob], context: Context) -> Outcome:
        """Read the file, unless it was read before or nobody wants it any more."""
        began = time.monotonic()
        try:
            return await self._unless_cancelled(job, context, began)
        except DocumentFailure as failure:
            self._spent[job.data.job_id] = time.monotonic() - began
            return failure.outcome

    async def _unless_cancelled(self, job: Job[DocumentJob], context: Context, began: float) -> Outcome:
        """Work until done or told to stop."""
        if await _cancel_requested(context, job.data.job_id):
            return Expired(self.records.cancelled(job.data))
        working = asyncio.ensure_future(self._work(job, context, began))
        watching = asyncio.ensure_future(_until_cancelled(context, job.data.job_id, working))
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            # Only a look that found the wish is one: a look that failed says nothing.
            if not working.done() and watching.exception() is None:
                return Expired(self.records.cancelled(job.data))
            return await working
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)

    async def _work(self, job: Job[DocumentJob], context: Context, began: float) -> Outcome:
        data = job.data
        if data.payload.upload is not None:  # named by its content: it need not be fetched to be known
            known = await self._known(job, context, data.payload.upload.sha256)
            if known is not None:
                return known
        await context.proceed(job, [self.records.began(data, job.attempt)], repeatable=True)
        async with self._sources.local_copy(data) as source:
            if data.payload.upload is None:
                known = await self._known(job, context, source.sha256)
                if known is not None:
                    return known
            work = work_id(source.sha256, *self.options.reading_method(data))
            reading = Reading(job, context, self.options, work)
            units, plan = await reading.run(source.path)
        result, outputs = reading.result(units, plan, time.monotonic() - began)
        await reading.writing()
        result["output_path"] = await self._write(job, outputs)
        return Done(self.records.completed(data, result, attempts=job.attempt, work=work), _told(result))

    async def _known(self, job: Job[DocumentJob], context: Context, content: str) -> Outcome | None:
        """Done at once, where the same file was read in the same way before."""
        if not self.options.caches(job.data):
            return None
        found = await cached_result(context.get, self._files, job.data, content, self.options)
        if found is None:
            return None
        return Done(self.records.completed(job.data, found, attempts=job.attempt), _told(found))

    async def _write(self, job: Job[DocumentJob], outputs: Mapping[str, bytes]) -> str:
        try:
            return await self._files.write(f"{job.data.job_id}/{job.attempt}", outputs)
        except FilesUnavailable as error:
            raise DocumentFailure(Code.STORAGE_UNAVAILABLE) from error

    async def _sweep(self) -> None:
        """Files outlive what may still ask for them: a dead letter's upload, a result."""
        keep = max(self.retention, self.letter_retention) + timedelta(days=1)
        while True:
            with contextlib.suppress(FilesUnavailable, OSError):
                await self._sources.sweep(self.timeout)
                await self._files.sweep(keep)
            await asyncio.sleep(_SWEEP_EVERY.total_seconds())

    def classify(self, error: Exception) -> Failure | None:
        """A surprise of our own cannot pass by itself: it is for a person to see (seed 003, section 1)."""
        match error:
            case HoldfastError() | TimeoutError() | ValidationError():
                return None
            case OSError():
                words = f"The worker's own files failed: {error.strerror or type(error).__name__}"
                return Failure(Code.STORAGE_UNAVAILABLE, words, retry=True)
            case _:
                return Failure(Code.UNEXPECTED, f"An unexpected error: {type(error).__name__}", retry=False)

    def max_attempts(self, data: DocumentJob) -> int:
        """The limit of its job type."""
        return self.options.attempts_of(data.job_type)

    def exhausted(self, failure: Failure, attempts: int) -> Reason:
        """The last failure is the reason; the number of attempts is told beside it."""
        del attempts
        return Reason(failure.code, failure.message)

    # --- what its readers see ---------------------------------------------------------------------------------

    def accepted(self, data: DocumentJob, *, queued: bool) -> Sequence[Effect]:
        """PENDING."""
        del queued
        return self.records.accepted(data, self.options.engine_of(data))

    def retrying(self, job: Standing[DocumentJob], failure: Failure, after: timedelta) -> Sequence[Effect]:
        """RETRYING."""
        del after
        self._spent.pop(job.data.job_id, None)
        return self.records.retrying(job, Reason(failure.code, failure.message))

    def released(self, job: Standing[DocumentJob]) -> Sequence[Effect]:
        """As before the attempt."""
        return self.records.released(job)

    def dead_lettered(self, job: Standing[DocumentJob], reason: Reason) -> Sequence[Effect]:
        """FAILED."""
        return self.records.failed(job, reason, self._spent.pop(job.data.job_id, None))

    def worked_elsewhere(self, job: Standing[DocumentJob], result: Mapping[str, Any] | None) -> Sequence[Effect]:
        """COMPLETED, by somebody else's worker."""
        return self.records.completed_elsewhere(job, result or {})

    def expired(self, data: DocumentJob) -> Sequence[Effect]:
        """CANCELLED: a job of this kind has no deadline, and ends early only when its sender wants it."""
        return self.records.cancelled(data)

    # --- the wire ---------------------------------------------------------------------------------------------

    def dead_letter_payload(self, letter: DeadLetter) -> Mapping[str, Any]:
        """Seed 003's schema v1."""
        job = self.readable(letter.body)
        return dead_letter_payload(letter, job, self.options.attempts_of(_job_type(job)))

    async def copy_letters(self, letters: Mapping[str, str]) -> None:
        """Onto the plain list too, each once."""
        if self._lists is None:
            return
        # A letter that is deleted by its age is published no more, and need not be known.
        if not await self._lists.send(letters, self.letter_retention + timedelta(days=1)):
            message = f"In Redis, {DEAD_LETTER_QUEUE} is not a list: dead letters are not copied to it."
            raise PermanentError(Code.UNEXPECTED, message)
        crash_point("lists.letters_sent")

    def replayed(self, letter: DeadLetter) -> DocumentJob:
        """A new job with a new id, that knows what it replays (seed 003, section 6)."""
        data = read_job(letter.body)
        # One that was refused because its id was taken: the job of that id is another's, and is not replayed.
        replay_of = data.job_id if letter.key == data.job_id else None
        return data.model_copy(update={"job_id": new_job_id(), "replay_of": replay_of})


def new_job_id() -> str:
    """An id for a job whose sender gave none."""
    return f"doc-{uuid.uuid4()}"


def _job_type(job: object) -> JobType | None:
    """The type that a job names; None where it names none, or one that is not known."""
    given = job.get("job_type") if isinstance(job, dict) else None
    return JobType(given) if given in list(JobType) else None


def _told(result: Mapping[str, Any]) -> dict[str, Any]:
    """What the ledger keeps of a result."""
    told = {name: result[name] for name in ("job_id", "status", "duration_sec", "output_path", "pages")}
    return told | {"warnings": result["warnings"]} if result.get("warnings") else told


async def _cancel_requested(context: Context, job_id: str) -> bool:
    return bool((await context.get(JOBS, job_id) or {}).get("cancel_requested"))


async def _until_cancelled(context: Context, job_id: str, working: asyncio.Future[Outcome]) -> None:
    """Return when the job's sender asks for its end, or the work is over.

    A driver may swallow our cancellation (``asyncio.wait_for`` does, before Python 3.12): this ends without it too.
    """
    while not working.done():
        await asyncio.sleep(_LOOK_EVERY.total_seconds())
        with contextlib.suppress(StoreUnavailable):
            if await _cancel_requested(context, job_id):
                return
