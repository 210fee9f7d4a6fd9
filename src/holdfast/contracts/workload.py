"""The public way to add a kind of work. The shipped workloads use nothing else."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import BaseModel

from .dead_letters import DeadLetter
from .effects import Collection, Effect
from .errors import ConfigurationError
from .outcomes import Outcome
from .queues import Delivery, RateLimit, job_id_for
from .redaction import scrub
from .retry import ExponentialBackoff, RetryPolicy
from .times import isoformat

Data = TypeVar("Data", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Job(Generic[Data]):
    """One job, as its handler sees it. ``attempt`` is 1 on the first try of a generation."""

    key: str
    job_id: str
    data: Data
    attempt: int
    generation: int
    received_at: datetime
    deadline: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


class Context(Protocol):
    """What a handler may ask of the engine while it works."""

    @property
    def worker(self) -> str:
        """The name of the worker process."""
        ...

    async def get(self, collection: str, key: str) -> Mapping[str, Any] | None:
        """Read a document. Writes are returned as effects, never made from here."""
        ...

    async def proceed(self, job: Job[Any], effects: Sequence[Effect] = (), *, repeatable: bool = False) -> None:
        """Pass the point of no return: what comes next cannot be undone, and must not happen twice (I11).

        Returns once the effects and the mark are committed; calls of many handlers share a commit. From here on only
        the outcome that the handler *returns* counts. If the handler raises, times out or is cancelled, or if its
        worker is lost, the job is dead-lettered with :meth:`Workload.interrupted`. It does not run again until a person
        replays it. With ``repeatable``, only the effects are committed.

        Raises :class:`LeaseLost` when the job belongs to another worker by now, and :class:`DeadlinePassed` when it has
        expired (I10). Let both pass: the engine knows what to do.
        """
        ...

    def log(self, message: str, **facts: Any) -> None:  # noqa: ANN401 - a log line has facts of any kind
        """Write one line, at level info. Leave out or mask what is personal: not everything can be told by its form."""
        ...

    def limit(self, name: str, rate: RateLimit) -> AbstractAsyncContextManager[None]:
        """Wait for a turn at something that all workers of all processes share a limit of, and hold it inside.

        No span of ``rate.per`` sees more than ``rate.most`` of what is done inside, wherever it is measured.
        """
        ...

    async def reserve(self, job: Job[Any], name: str, rate: RateLimit) -> timedelta:
        """How long the job has to wait for its place in an even flow: snooze for that long, or go on at zero."""
        ...


@dataclass(frozen=True, slots=True)
class Failure:
    """A classified failure: what happens next (``retry`` or not), and what to call it."""

    code: str
    message: str
    retry: bool
    after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Standing(Generic[Data]):
    """How far a job has come: its data, its generation, and the attempt that was made last (0: none)."""

    data: Data
    generation: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Adopted(Generic[Data]):
    """A job that somebody else put into the queue, as its workload reads it.

    ``warnings`` say in words what was not sound in it, and never repeat a value. ``fingerprint`` is that of the content
    which the producer gave, where the workload had to add to it; None: :meth:`Workload.fingerprint` of the data.
    ``job_id`` is the ledger's name for the job, where that must not be the queue's own.
    """

    data: Data
    warnings: tuple[str, ...] = ()
    fingerprint: str | None = None
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """The names that a job has by its own words, also where it breaks its contract."""

    key: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reason:
    """What a dead letter says the job died of."""

    code: str
    message: str


Adopt = Callable[[Sequence[str]], Awaitable[None]]
"""Takes in jobs (each a JSON text) that came by another way than our API or the queue: see :meth:`Workload.adopt`.

Returns once the ledger has every one of them; a job that breaks its contract becomes a dead letter. To give the same
text twice is to give it once. Raises :class:`StoreUnavailable`; what was given is then to be given again.
"""


class BackgroundTask(Protocol):
    """Something that goes on in a worker process until it stops."""

    @property
    def name(self) -> str:
        """What the log calls it."""
        ...

    async def step(self) -> None:
        """Do a little, or wait for about a second for something to do. Called again and again.

        What it raises is logged, and after a pause it is called again.
        """
        ...


class Workload(Generic[Data]):
    """A kind of work: a contract, two queues, a retry policy, limits, and a handler.

    Subclass it, set the class attributes, and write :meth:`key` and :meth:`handle`. Everything else has a default.
    """

    name: ClassVar[str]
    contract: type[Data]
    queue: str
    dead_letter_queue: str
    job_name: str | None = None
    """The name that the jobs have in BullMQ; None: the workload's name."""

    retry: RetryPolicy = ExponentialBackoff()
    timeout: timedelta = timedelta(seconds=30)
    ttl: timedelta | None = None
    """How long after its arrival a job may still run; None: for ever."""
    rate_limit: RateLimit | None = None
    """How many jobs all workers together may start in a span of time; None: as many as they can."""
    concurrency: int | None = None
    """The most jobs that one worker process has in work at a time; None: the process's own limit."""
    ttl_includes_replays: bool = False
    """Whether ``ttl`` counts from the first arrival for replays too; otherwise a replay gets a new one."""
    retention: timedelta = timedelta(days=30)
    """How long a settled entry is kept, and so how long duplicates are known."""
    letter_retention: timedelta = timedelta(days=90)
    collections: Sequence[Collection] = ()
    indexed_labels: Sequence[str] = ()
    """Labels that entries are looked up by."""
    label_columns: Sequence[str] = ()
    """Labels that people see as columns when they read the store."""
    ledger_name: str | None = None
    """What people call this workload's entries in the store; by default ``<name>_jobs``."""
    letters_name: str | None = None
    """What people call its dead letters; by default ``<name>_dead_letters``."""
    keep_completed: int | None = None
    """How many finished jobs its queue keeps for people to look at, where queues do; None: as many as others."""
    batch_size: int | None = None
    """With :meth:`handle_batch`: the most jobs in one call. None: jobs are handled one by one."""

    # --- the job's identity -------------------------------------------------------------------------------

    def key(self, data: Data) -> str:
        """The identity that decides duplicates. One key: one job, one effect."""
        raise NotImplementedError

    def job_id(self, key: str, data: Data) -> str:
        """The queue's name for the job."""
        del data
        return job_id_for(key)

    def fingerprint(self, data: Data) -> str:
        """A hash of the content that two requests with one key must share; others are conflicts."""
        content = data.model_dump_json(exclude={"attempt"})
        return sha256(content.encode()).hexdigest()

    def labels(self, data: Data) -> dict[str, str]:
        """Small facts to find and show the job by. Nothing secret, nothing personal."""
        del data
        return {}

    def fairness_key(self, data: Data) -> str | None:
        """Whose job it is, where nobody's backlog should hold up the others'. None: first come, first served.

        Jobs of one lane keep their order. Lanes take turns, however long they are.
        """
        del data
        return None

    # --- jobs that somebody else put into the queue -------------------------------------------------------

    def adopt(self, delivery: Delivery) -> Adopted[Data]:
        """Read a job that did not come through our intake. Raises ``ValidationError`` where it breaks the contract.

        Be lenient: what an optional field says is used where it is sound, and is a warning where it is not.
        """
        return Adopted(self.contract.model_validate_json(delivery.data))

    def identify(self, content: Mapping[str, Any]) -> Identity:
        """The names by which people look for a job that breaks the contract, as far as they can be read."""
        del content
        return Identity()

    def background(self, adopt: Adopt) -> Sequence[BackgroundTask]:
        """What else goes on in each worker process, such as taking jobs from somewhere that is no queue of ours."""
        del adopt
        return ()

    def recover(self, letter: Mapping[str, Any], seen_at: datetime) -> str | None:
        """The body of the job that another system's dead letter tells of, so that it can be replayed; None: it cannot.

        ``letter`` is that system's record, with instants as text and our ``id`` for it. ``seen_at`` is when the job was
        first seen, as far as that is known.
        """
        del letter, seen_at
        return None

    # --- the work -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open what the handler needs (clients, pools). Called once in each worker process."""

    async def stop(self) -> None:
        """Close it again."""

    async def handle(self, job: Job[Data], context: Context) -> Outcome:
        """Do the work and say what became of it."""
        raise NotImplementedError

    async def handle_batch(self, jobs: Sequence[Job[Data]], context: Context) -> Sequence[Outcome]:
        """Do many jobs at once and return one outcome for each, in order. Used when ``batch_size`` is set."""
        raise NotImplementedError

    def repeated(self, result: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """What a job returns to its queue that is delivered once more after it was processed; by default nothing.

        ``result`` is what the ledger keeps of the job's own. Called for each such job of a batch: no I/O here.
        """
        del result
        return None

    def classify(self, error: Exception) -> Failure | None:
        """Name a failure that the engine does not know. None: let the engine decide."""
        del error
        return None

    def max_attempts(self, data: Data) -> int:
        """The attempt after which this job becomes a dead letter: at most what the retry policy allows to any job."""
        del data
        return self.retry.max_attempts

    def exhausted(self, failure: Failure, attempts: int) -> Reason:
        """What to write on the dead letter when the last attempt failed."""
        return Reason(f"{failure.code}_EXHAUSTED", f"Retries exhausted after {attempts} attempts: {failure.message}")

    def interrupted(self, attempts: int) -> Reason:
        """What to write on the dead letter of a job that was lost beyond its point of no return."""
        message = f"Attempt {attempts} was lost after its point of no return: whether it took effect is not known."
        return Reason("OUTCOME_UNKNOWN", message)

    # --- what its readers see -----------------------------------------------------------------------------
    #
    # Effects that are committed together with a move of the ledger, for workloads that show their jobs in documents
    # of their own. What these raise is ignored: it must not keep a job from its fate.

    def accepted(self, data: Data, *, queued: bool) -> Sequence[Effect]:
        """The job is recorded, in a transaction that has ``queued`` it as well or leaves that to others."""
        del data, queued
        return ()

    def enqueued(self, data: Data, generation: int) -> Sequence[Effect]:
        """The queue has it, for the first time or for a replay. A worker may have begun: do not undo what it said."""
        del data, generation
        return ()

    def retrying(self, job: Standing[Data], failure: Failure, after: timedelta) -> Sequence[Effect]:
        """The attempt failed; there will be another."""
        del job, failure, after
        return ()

    def released(self, job: Standing[Data]) -> Sequence[Effect]:
        """The attempt was cancelled: nobody's failure, and not counted."""
        del job
        return ()

    def dead_lettered(self, job: Standing[Data], reason: Reason) -> Sequence[Effect]:
        """The job became a dead letter."""
        del job, reason
        return ()

    def worked_elsewhere(self, job: Standing[Data], result: Mapping[str, Any] | None) -> Sequence[Effect]:
        """Somebody else's worker has done the job, and returned this."""
        del job, result
        return ()

    def expired(self, data: Data) -> Sequence[Effect]:
        """The job outlived its deadline."""
        del data
        return ()

    def cancelled(self, data: Data) -> Sequence[Effect]:
        """Its sender cancelled it, which ends it as a deadline does."""
        return self.expired(data)

    # --- the wire -----------------------------------------------------------------------------------------

    def at_attempt(self, data: Data, attempt: int) -> Data:
        """The job's data for this attempt. A contract with a field ``attempt`` gets the number."""
        if "attempt" not in type(data).model_fields:
            return data
        return data.model_copy(update={"attempt": attempt})

    def readable(self, body: str) -> Any:  # noqa: ANN401 - JSON of any kind
        """The job for people: what the console, the API and the command line show of it."""
        return readable_body(body)

    def letter_body(self, body: str) -> str:
        """The job as its dead letter keeps it, where that should hold less than the ledger does."""
        return body

    def dead_letter_payload(self, letter: DeadLetter) -> Mapping[str, Any]:
        """The dead letter as published to ``dead_letter_queue``."""
        return {
            "letterId": letter.id,
            "workload": letter.workload,
            "key": letter.key,
            "generation": letter.generation,
            "attemptCount": letter.attempt_count,
            "terminalReasonCode": letter.reason_code,
            "terminalReasonMessage": letter.reason_message,
            "attemptHistory": [
                {"attempt": each.attempt, "outcome": each.outcome.value, "errorCode": each.error_code}
                for each in letter.attempts
            ],
            "payloadSnapshot": readable_body(letter.body),
            "deadLetteredAt": isoformat(letter.created_at),
        }

    async def copy_letters(self, letters: Mapping[str, str]) -> None:
        """Bring dead letters to other places as well. ``letters`` has the JSON of each, as published, by letter id.

        Called once ``dead_letter_queue`` has them, and again after a crash or with another queue: do nothing for ids
        that are known there. Raise :class:`BrokerUnavailable` where the place is away, and it is called again later.
        """
        del letters

    def replayed(self, letter: DeadLetter) -> Data | None:
        """The data of a *new* job to run in a replay; None (the default) runs the same job as a new generation."""
        del letter
        return None


def readable_body(body: str) -> Any:  # noqa: ANN401 - whatever somebody put into the queue
    """A job body for people: parsed where it is JSON, scrubbed text where it is not."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return scrub(body)


class App:
    """What a process runs: the user's workloads. Named by ``holdfast up --app module:attribute``."""

    def __init__(self, workloads: Sequence[Workload[Any]]) -> None:
        names = [workload.name for workload in workloads]
        queues = [queue for workload in workloads for queue in (workload.queue, workload.dead_letter_queue)]
        for what, values in (("workload name", names), ("queue", queues)):
            twice = sorted({value for value in values if values.count(value) > 1})
            if twice:
                message = f"Each {what} may be used once; {', '.join(twice)} is used twice."
                raise ConfigurationError(message)
        self.workloads = tuple(workloads)
