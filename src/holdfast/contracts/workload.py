"""The public interface for adding a kind of work. The shipped workloads use nothing else."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, Generic, Protocol

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from .dead_letters import DeadLetter
from .effects import Collection, Effect
from .entries import job_id_for
from .errors import NewerVersion
from .jobs import Context, Data, Job, JobState
from .outcomes import Failure, Outcome, Reason
from .queues import Delivery, RateLimit
from .redaction import scrub
from .retry import ExponentialBackoff, RetryPolicy
from .schedules import Schedule
from .times import isoformat
from .transitions import Transition

VERSION_FIELD: Final = "$version"
"""The field of a body with the version of its contract, if that is not the first version."""
_VERSION_TEXT: Final = f'"{VERSION_FIELD}"'
_VERSION_BYTES: Final = _VERSION_TEXT.encode()


@dataclass(frozen=True, slots=True)
class Adopted(Generic[Data]):
    """A job of an external producer, as its workload reads it.

    ``warnings`` are sentences about what was wrong in the job, and never repeat a value. ``fingerprint`` is the
    fingerprint of the producer's content, if the workload had to add to that content; None:
    :meth:`Workload.fingerprint` of the data. ``job_id`` is the ledger's name for the job, if it must differ from the
    queue's name.
    """

    data: Data
    warnings: tuple[str, ...] = ()
    fingerprint: str | None = None
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """The names in a job's own content. They can be read even if the job breaks its contract."""

    key: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


Adopt = Callable[[Sequence[str]], Awaitable[None]]
"""Records jobs (each a JSON text) that came neither through our API nor from the queue: see :meth:`Workload.adopt`.

Returns once the ledger has all of them. A job that breaks its contract becomes a dead letter. The same text twice is
one job. Raises :class:`StoreUnavailable`; then call it again with the same jobs.
"""


class BackgroundTask(Protocol):
    """A task that a worker process repeats until the process stops."""

    @property
    def name(self) -> str:
        """The name of the task in the log."""
        ...

    async def step(self) -> None:
        """Do one piece of work, or wait for about a second for work. Called again and again.

        An error is logged, and after a pause the step is called again.
        """
        ...


class Workload(Generic[Data]):
    """A kind of work: a contract, two queues, a retry policy, limits, and a handler.

    Subclass it, set the class attributes, and write :meth:`key` and :meth:`handle`. Everything else has a default.
    """

    name: str
    contract: type[Data]
    version: int = 1
    """The version of the contract. A job carries the version that it was written with."""
    upcasts: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = MappingProxyType({})
    """For each older version, a function that makes the content of the next version out of it."""
    queue: str
    dead_letter_queue: str
    job_name: str | None = None
    """The name of the jobs in BullMQ; None: the workload's name."""

    retry: RetryPolicy = ExponentialBackoff()
    timeout: timedelta = timedelta(seconds=30)
    ttl: timedelta | None = None
    """How long after its arrival a job may still run; None: for ever."""
    rate_limit: RateLimit | None = None
    """How many jobs all workers together may start in a span of time; None: no limit."""
    concurrency: int | None = None
    """The most jobs that one worker process works on at a time; None: the limit of the process."""
    stoppable: bool = False
    """Whether a job in work can be cancelled: the handler looks at ``Context.cancelled``, or calls ``proceed``."""
    ttl_includes_replays: bool = False
    """Whether ``ttl`` counts from the first arrival for replays too. Otherwise a replay gets a new deadline."""
    retention: timedelta = timedelta(days=30)
    """How long a settled entry is kept, and so how long duplicates are known."""
    letter_retention: timedelta = timedelta(days=90)
    collections: Sequence[Collection] = ()
    indexed_labels: Sequence[str] = ()
    """Labels that entries are looked up by."""
    label_columns: Sequence[str] = ()
    """Labels that are columns when people read the store."""
    ledger_name: str | None = None
    """The name of this workload's entries in the store; by default ``<name>_jobs``."""
    letters_name: str | None = None
    """The name of its dead letters in the store; by default ``<name>_dead_letters``."""
    keep_completed: int | None = None
    """How many finished jobs its queue in Redis keeps for people to read; None: as many as other queues."""
    batch_size: int | None = None
    """With :meth:`handle_batch`: the most jobs in one call. None: jobs are handled one by one."""
    schedule: Schedule | None = None
    """When maintenance submits a job of this workload by itself. Its contract is then :class:`Tick`."""

    # --- the job's identity -------------------------------------------------------------------------------

    def key(self, data: Data) -> str:
        """The identity that decides duplicates. One key: one job, one effect."""
        raise NotImplementedError

    def job_id(self, key: str, data: Data) -> str:
        """The queue's name for the job."""
        del data
        return job_id_for(key)

    def fingerprint(self, data: Data) -> str:
        """A hash of the content. Two requests with one key must have the same hash; otherwise they are in conflict."""
        content = data.model_dump_json(exclude={"attempt"})
        return sha256(content.encode()).hexdigest()

    def labels(self, data: Data) -> dict[str, str]:
        """Small facts by which people find the job. Nothing secret, nothing personal."""
        del data
        return {}

    def fairness_key(self, data: Data) -> str | None:
        """The owner of the job, if one owner's many jobs must not delay the others' jobs. None: first in, first out.

        Jobs with one fairness key keep their order. Keys take turns, however many jobs they have.
        """
        del data
        return None

    # --- jobs of external producers -----------------------------------------------------------------------

    def adopt(self, delivery: Delivery) -> Adopted[Data]:
        """Read a job that did not come through our intake. Raises ``ValidationError`` if it breaks the contract.

        Be lenient: use the value of an optional field if it is valid, and otherwise add a warning.
        """
        return Adopted(self.read(delivery.data))

    def identify(self, content: Mapping[str, Any]) -> Identity:
        """The names of a job that breaks the contract, as far as they can be read, so that people find the job."""
        del content
        return Identity()

    def background(self, adopt: Adopt) -> Sequence[BackgroundTask]:
        """Further tasks of each worker process, such as taking jobs from another place than our queue."""
        del adopt
        return ()

    def recover(self, letter: Mapping[str, Any], seen_at: datetime) -> str | None:
        """The body of the job of another system's dead letter, so that the job can be replayed; None: it cannot be.

        ``letter`` is that system's record, with instants as text and our ``id`` for it. ``seen_at`` is the time when
        the job was first seen, as far as it is known.
        """
        del letter, seen_at
        return None

    # --- the work -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the clients and pools of the handler. Called once in each worker process."""

    async def stop(self) -> None:
        """Close what :meth:`start` opened."""

    async def handle(self, job: Job[Data], context: Context) -> Outcome:
        """Do the work and return its outcome."""
        raise NotImplementedError

    async def handle_batch(self, jobs: Sequence[Job[Data]], contexts: Sequence[Context]) -> Sequence[Outcome]:
        """Do many jobs at once and return one outcome for each, in order. Used when ``batch_size`` is set.

        ``contexts`` has the context of each job.
        """
        raise NotImplementedError

    def repeated(self, result: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """What the queue gets for a job that is delivered once more after it was processed; by default nothing.

        ``result`` is the job's result in the ledger. Called for each such job of a batch: no I/O here.
        """
        del result
        return None

    def classify(self, error: Exception) -> Failure | None:
        """Classify an error of the handler. None: the engine classifies it."""
        del error
        return None

    def max_attempts(self, data: Data) -> int:
        """The attempt after which this job becomes a dead letter. The retry policy's limit is the highest possible."""
        del data
        return self.retry.max_attempts

    def exhausted(self, failure: Failure, attempts: int) -> Reason:
        """The reason on the dead letter of a job whose last attempt failed."""
        return Reason(f"{failure.code}_EXHAUSTED", f"Retries exhausted after {attempts} attempts: {failure.message}")

    def interrupted(self, attempts: int) -> Reason:
        """The reason on the dead letter of a job that was lost beyond its point of no return."""
        message = f"Attempt {attempts} was lost after its point of no return: whether it took effect is not known."
        return Reason("OUTCOME_UNKNOWN", message)

    # --- the workload's own records -----------------------------------------------------------------------

    def on_transition(self, transition: Transition, job: JobState[Data]) -> Sequence[Effect]:
        """Effects that are committed with a transition, for workloads that show their jobs in records of their own.

        Match on the type of the transition: ``Accept``, ``Publish``, ``AskToStop``, ``RetryLater``, ``Release``,
        ``MoveToDeadLetters``, ``Expire`` or ``Complete``. The effects that a handler returned are in the transition
        already, and are applied after these. The effects of ``Publish`` and ``AskToStop`` have a commit of their own,
        which may come late: they must not undo effects of a worker. If this raises, the error is logged (I21), and the
        transition is committed without these effects.
        """
        del transition, job
        return ()

    # --- the wire -----------------------------------------------------------------------------------------

    def read(self, body: str | bytes) -> Data:
        """The data of a body. An older version is brought to this version first; without a version it is version 1.

        Raises ``ValidationError`` if the body breaks the contract, and :class:`NewerVersion`.
        """
        marked = _VERSION_BYTES in body if isinstance(body, bytes) else _VERSION_TEXT in body
        if self.version == 1 and not marked:
            return self.contract.model_validate_json(body)
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            return self.contract.model_validate_json(body)  # raises, and says what is wrong
        if not isinstance(content, dict):
            return self.contract.model_validate_json(body)
        version = content.pop(VERSION_FIELD, 1)
        if type(version) is not int or version < 1:
            raise _bad_version(self.contract)
        if version > self.version:
            raise NewerVersion(version, self.version)
        for older in range(version, self.version):
            content = self.upcasts[older](content)
        return self.contract.model_validate_json(json.dumps(content))

    def write(self, data: Data) -> str:
        """The body of a job: its data as JSON, and the version if it is not the first."""
        body = data.model_dump_json()
        if self.version == 1:
            return body
        return f'{{"{VERSION_FIELD}":{self.version}{"," if body != "{}" else ""}{body[1:]}'

    def at_attempt(self, data: Data, attempt: int) -> Data:
        """The job's data for this attempt. A contract with a field ``attempt`` gets the number."""
        if "attempt" not in type(data).model_fields:
            return data
        return data.model_copy(update={"attempt": attempt})

    def readable(self, body: str) -> Any:  # noqa: ANN401 - JSON of any kind
        """The job as the console, the API and the command line show it."""
        return readable_body(body)

    def letter_body(self, body: str) -> str:
        """The body that the dead letter keeps, if it should hold less than the ledger."""
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
            "payloadSnapshot": self.readable(letter.body),
            "deadLetteredAt": isoformat(letter.created_at),
        }

    async def copy_letters(self, letters: Mapping[str, str]) -> None:
        """Copy dead letters to another place as well. ``letters`` has the JSON of each, as published, by letter id.

        Called when ``dead_letter_queue`` has the letters, and again after a crash or with another queue: do nothing for
        ids that are known there. Raise :class:`BrokerUnavailable` if the place is away; the call is repeated later.
        """
        del letters

    def replayed(self, letter: DeadLetter) -> Data | None:
        """The data of a *new* job to run in a replay; None (the default) runs the same job as a new generation."""
        del letter
        return None


def _bad_version(contract: type[BaseModel]) -> ValidationError:
    problem = PydanticCustomError("version", "must be a whole number from 1")
    return ValidationError.from_exception_data(
        contract.__name__, [InitErrorDetails(type=problem, loc=(VERSION_FIELD,), input=None)]
    )


def readable_body(body: str) -> Any:  # noqa: ANN401 - JSON of any kind
    """A job body for people: parsed if it is JSON, otherwise scrubbed text."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return scrub(body)
