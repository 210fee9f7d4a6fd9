"""The operator's settings for documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from holdfast import ExponentialBackoff, RetryPolicy, Workload

from .child.protocol import Spec
from .contract import DocumentJob, InputType, JobType
from .engines import ENGINES, Engine, EngineOptions
from .running import LONGEST_MESSAGE, ChildOptions

_MEGABYTE = 1024 * 1024
_MOST_TRANSCRIPT = 16 * _MEGABYTE
"""Six hours of speech have about one megabyte. The segments of a recording are sorted in memory, so they have a cap of
their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentOptions:
    """The default attempts are those of the specification's examples (D16).

    ``scratch`` is a folder for temporary files. ``unit_timeout`` is how long a page or a chunk of sound may take,
    ``timeout`` is the limit of a whole attempt. ``max_attempts`` is the limit of a job type, if it is below that of
    ``retry``. ``max_page_output`` is the most bytes that one page or chunk of sound may give, ``max_output`` the most
    bytes of all output files of a job. A job from a plain list that is taken and not recorded after ``left_after`` was
    left by a worker that crashed. ``engines`` are the options of the engines. ``environment`` holds extra variables for
    the child process: the keys of engines.
    """

    scratch: Path
    engine: Engine = "local"
    language: str | None = None
    concurrency: int = 1
    retry: RetryPolicy = field(default_factory=lambda: ExponentialBackoff(max_attempts=3, base=timedelta(seconds=5)))
    max_attempts: Mapping[JobType, int] = field(default_factory=lambda: {JobType.TRANSCRIPTION: 2})
    timeout: timedelta = timedelta(hours=2)
    unit_timeout: timedelta = timedelta(minutes=5)
    memory: int | None = 2_048 * _MEGABYTE
    threads: int = 2
    max_bytes: int = 512 * _MEGABYTE
    max_pages: int = 2_000
    max_seconds: int = 6 * 3600
    chunk_seconds: float = 60.0
    max_page_output: int = LONGEST_MESSAGE
    max_output: int = 64 * _MEGABYTE
    retention: timedelta = Workload.retention
    letter_retention: timedelta = Workload.letter_retention
    left_after: timedelta = timedelta(seconds=30)
    engines: Mapping[str, EngineOptions] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def files_kept(self) -> timedelta:
        """How long files are kept after their last use: longer than the dead letter or the result that needs them."""
        return max(self.retention, self.letter_retention) + timedelta(days=1)

    def attempts_of(self, job_type: JobType | None) -> int:
        """Attempts before a job of this type is dead-lettered. None: the type is not known."""
        most = self.retry.max_attempts
        return most if job_type is None else min(self.max_attempts.get(job_type, most), most)

    def missing_key(self, engine: str) -> str | None:
        """The environment variable of the engine's key, if the engine needs a key and there is none."""
        key = ENGINES[engine].key
        return None if key is None or self.environment.get(key) else key

    def engine_of(self, data: DocumentJob) -> Engine:
        """The engine that reads this job's file."""
        return data.payload.engine or self.engine

    def language_of(self, data: DocumentJob) -> str | None:
        """The language of the file, if the sender or the operator gave one."""
        return data.payload.language or self.language

    def reading_method(self, data: DocumentJob) -> tuple[str | float | None, ...]:
        """Everything besides the file's content that decides the result, and the tenant.

        The tenant is part of it, so that no tenant can see from the progress that another tenant has the same file.
        """
        engine, pages = self.engine_of(data), data.input_type is InputType.PDF
        kind = ENGINES[engine]
        decides = kind.pages_by if pages else kind.speech_by
        model = None if decides is None else self.engines.get(engine, {}).get(decides)
        chunk = None if pages else self.chunk_seconds
        return (data.company_id, data.job_type.value, engine, model, self.language_of(data), chunk)

    def output_limit(self, data: DocumentJob) -> int:
        """The most bytes of all output files of this job."""
        return self.max_output if data.input_type is InputType.PDF else min(self.max_output, _MOST_TRANSCRIPT)

    @property
    def child(self) -> ChildOptions:
        """The limits of the child process."""
        return ChildOptions(
            memory=self.memory,
            unit_timeout=self.unit_timeout,
            total_timeout=self.timeout,
            longest_message=self.max_page_output,
            environment=self.environment,
        )

    def spec(self, data: DocumentJob, path: Path, done: int) -> Spec:
        """The child's instructions."""
        engine = self.engine_of(data)
        return Spec(
            path=str(path),
            job_type=data.job_type.value,
            input_type=data.input_type.value,
            engine=engine,
            options=self.engines.get(engine, {}),
            language=self.language_of(data),
            done=done,
            strict=data.payload.strict is True,
            memory=self.memory,
            threads=self.threads,
            max_pages=self.max_pages,
            max_seconds=self.max_seconds,
            chunk_seconds=self.chunk_seconds,
        )
