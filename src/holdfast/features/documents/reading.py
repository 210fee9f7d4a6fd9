"""One attempt to read a file: the child reads units, the units are committed, and a result is made of all units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from holdfast import Context, Effect, Job

from .checkpoints import Checkpoints, units_of
from .child.protocol import Plan, Spec, Stage, Unit
from .contract import DocumentJob, InputType
from .failures import Code, DocumentFailure
from .job_records import JobRecords, Reached
from .options import DocumentOptions
from .records import DocumentStatus
from .records import Stage as Step
from .rendering import characters_of, confidence_of, outputs_of, warnings_of
from .running import ChildOptions, read_in_child

_LOADING: Final = "loading"
_COPIED: Final = frozenset({"text_layer", "blank", "unreadable"})


class Reading:
    """Reads one file for one job. ``work`` is the id of the content and the way of reading."""

    def __init__(self, job: Job[DocumentJob], context: Context, options: DocumentOptions, work: str) -> None:
        self._job = job
        self._context = context
        self._options = options
        self._units: list[dict[str, Any]] = []
        self._reused = 0
        self._plan: Plan | None = None
        self._work = work
        self._checkpoints = Checkpoints(work, self._commit, self._reached, keep=options.retention)

    async def run(self, path: Path) -> tuple[Sequence[Mapping[str, Any]], Plan]:
        """All units, those of earlier attempts included. Raises :class:`DocumentFailure`."""
        self._units = await units_of(self._context, self._work)
        if self._job.data.payload.strict:
            # A job that was not strict may have left pages with a warning. They are read again, and refused.
            self._units = list(takewhile(lambda unit: not unit.get("warning"), self._units))
        self._reused = len(self._units)
        options = self._options
        child = ChildOptions(
            memory=options.memory,
            unit_timeout=options.unit_timeout,
            total_timeout=options.timeout,
            environment=options.environment,
        )
        try:
            try:
                await read_in_child(self._spec(path), child, self._on_message)
            except DocumentFailure:
                # The next attempt uses the units that were read before the failure.
                await self._checkpoints.flush()
                raise
            await self._checkpoints.flush()
        finally:
            await self._checkpoints.give_up()
        if self._plan is None or len(self._units) != self._plan.units:
            detail = f"{len(self._units)} units are read, of a plan for {self._plan.units if self._plan else 'none'}"
            raise DocumentFailure(Code.CHILD_CRASHED, detail=detail)
        return self._units, self._plan

    def _spec(self, path: Path) -> Spec:
        """The child's instructions. The rest of a recording has the language that was detected at its beginning."""
        spec = self._options.spec(self._job.data, path, self._reused)
        return replace(spec, language=spec.language or _detected_language(self._units))

    async def _on_message(self, message: Plan | Unit | Stage) -> None:
        match message:
            case Plan():
                self._plan = message
                await self._commit([self._reached(self._reused)])
            case Unit():
                self._units.append(message.result)
                self._checkpoints.add(message.index, message.result)
            case Stage():
                step = Step.LOADING if message.stage == _LOADING else Step.READING
                await self._commit([self._reached(len(self._units), step)])

    async def writing(self) -> None:
        """Record that all units are read and the outputs are being written."""
        await self._commit([self._reached(len(self._units), Step.WRITING)])

    async def _commit(self, effects: Sequence[Effect]) -> None:
        await self._context.proceed(self._job, effects, repeatable=True)

    def _reached(self, done: int, step: Step = Step.READING) -> Effect:
        plan = self._plan
        so_far = Reached(
            stage=step,
            unit=None if plan is None else plan.unit,
            done=done,
            units=None if plan is None else plan.units,
        )
        return JobRecords.reached(self._job.data, so_far)

    def result(
        self,
        units: Sequence[Mapping[str, Any]],
        plan: Plan,
        duration: float,
    ) -> tuple[dict[str, Any], dict[str, bytes]]:
        """The result object without its ``output_path``, and the output files."""
        data = self._job.data
        result: dict[str, Any] = {
            "job_id": data.job_id,
            "status": DocumentStatus.COMPLETED,
            "duration_sec": round(duration, 3),
            "output_path": None,
            "pages": plan.units if data.input_type is InputType.PDF else None,
            "unit": plan.unit,
            "units": plan.units,
            "units_reused": self._reused,
            "engine": plan.engine,
            "model": plan.model if _needed_a_model(units) else None,
            "language": self._options.language_of(data) or _detected_language(units),
            "characters": characters_of(data.job_type, units),
            "confidence": confidence_of(data.job_type, units),
            "media_seconds": plan.duration,
            "warnings": warnings_of(plan.warnings, units),
            "cached": False,
            "error": None,
        }
        upload = data.payload.upload
        facts = {
            "job_type": data.job_type.value,
            "input_type": data.input_type.value,
            "filename": (upload and upload.filename) or data.job_id,
            **result,
        }
        return result, outputs_of(data.job_type, units, facts)


def _needed_a_model(units: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an engine read any unit. A text layer is copied without an engine; a recording always needs one."""
    return any(each.get("source") not in _COPIED for each in units)


def _detected_language(units: Sequence[Mapping[str, Any]]) -> str | None:
    """The language that was detected in a recording."""
    return next((each["language"] for each in units if each.get("language")), None)
