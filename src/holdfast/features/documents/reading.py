"""One attempt to read a file: the child reads units, the units are committed, and a result is made of all units."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from holdfast import Context, Effect, Job

from .child.protocol import Plan, Spec, Stage, Unit
from .contract import DocumentJob, InputType
from .failures import Code, DocumentFailure
from .job_records import JobRecords, Reached
from .options import DocumentOptions
from .records import DocumentStatus
from .records import Stage as Step
from .rendering import pieces_of
from .running import read_in_child
from .tally import Tally
from .units import Checkpoints, Spool, units_of

_LOADING: Final = "loading"
_LONGEST_NAME: Final = 200
"""Characters of the names that the child gives."""


class Reading:
    """Reads one file for one job. ``work`` is the id of the content and the way of reading.

    The units are in a file of ``folder``, which is temporary. The memory holds only a few of them at a time.
    """

    def __init__(
        self, job: Job[DocumentJob], context: Context, options: DocumentOptions, work: str, folder: Path
    ) -> None:
        self._job = job
        self._context = context
        self._options = options
        self._tally = Tally(job.data.job_type)
        self._spool = Spool(folder, options.output_limit(job.data))
        self._reused = 0
        self._plan: Plan | None = None
        self.work = work
        self._checkpoints = Checkpoints(work, self._commit, self._reached, keep=options.retention)

    @property
    def units(self) -> int:
        """How many units are read, those of earlier attempts included."""
        return self._tally.units

    @property
    def size(self) -> int:
        """The bytes of these units."""
        return self._spool.size

    async def run(self, path: Path) -> Plan:
        """Read all units that earlier attempts have not read. Raises :class:`DocumentFailure`."""
        async with aclosing(units_of(self._context, self.work)) as known:
            async for unit in known:
                # A job that was not strict may have left pages with a warning. They are read again, and refused.
                if self._job.data.payload.strict and unit.get("warning"):
                    break
                await asyncio.to_thread(self._take, unit)
        self._reused = self.units
        try:
            try:
                await read_in_child(self._spec(path), self._options.child, self._on_message)
            except DocumentFailure:
                # The next attempt uses the units that were read before the failure.
                await self._checkpoints.flush()
                raise
            await self._checkpoints.flush()
        finally:
            await self._checkpoints.give_up()
        if self._plan is None or self.units != self._plan.units:
            raise self._unplanned()
        return self._plan

    def _take(self, unit: Mapping[str, Any]) -> int:
        """Spool and count a unit. Returns its size."""
        size = self._spool.add(unit)
        self._tally.add(unit)
        return size

    def _unplanned(self) -> DocumentFailure:
        detail = f"{self.units} units are read, of a plan for {self._plan.units if self._plan else 'none'}"
        return DocumentFailure(Code.CHILD_CRASHED, detail=detail)

    def _spec(self, path: Path) -> Spec:
        """The child's instructions. The rest of a recording has the language that was detected at its beginning."""
        spec = self._options.spec(self._job.data, path, self._reused)
        return replace(spec, language=spec.language or self._tally.language)

    async def _on_message(self, message: Plan | Unit | Stage) -> None:
        match message:
            case Plan():
                self._plan = message
                await self._commit([self._reached(self._reused)])
            case Unit():
                if self._plan is None or self.units >= self._plan.units:
                    raise self._unplanned()
                size = await asyncio.to_thread(self._take, message.result)
                await self._checkpoints.add(message.index, message.result, size)
            case Stage():
                step = Step.LOADING if message.stage == _LOADING else Step.READING
                await self._commit([self._reached(self.units, step)])

    async def writing(self) -> None:
        """Record that all units are read and the outputs are being written."""
        await self._commit([self._reached(self.units, Step.WRITING)])

    async def _commit(self, effects: Sequence[Effect]) -> None:
        await self._context.proceed(effects, repeatable=True)

    def _reached(self, done: int, step: Step = Step.READING) -> Effect:
        plan = self._plan
        so_far = Reached(
            stage=step,
            unit=None if plan is None else plan.unit,
            done=done,
            units=None if plan is None else plan.units,
        )
        return JobRecords.reached(self._job.data, so_far)

    async def result(self, plan: Plan, duration: float) -> tuple[dict[str, Any], Mapping[str, Path]]:
        """The result object without its ``output_path``, and the output files. Raises :class:`DocumentFailure`."""
        data, tally = self._job.data, self._tally
        result: dict[str, Any] = {
            "job_id": data.job_id,
            "status": DocumentStatus.COMPLETED,
            "duration_sec": round(duration, 3),
            "output_path": None,
            "pages": plan.units if data.input_type is InputType.PDF else None,
            "unit": plan.unit,
            "units": plan.units,
            "units_reused": self._reused,
            "engine": plan.engine[:_LONGEST_NAME],
            "model": plan.model[:_LONGEST_NAME] if tally.needed_a_model else None,
            "language": self._options.language_of(data) or tally.language,
            "characters": tally.characters,
            "confidence": tally.confidence,
            "media_seconds": plan.duration,
            "warnings": tally.warnings(plan.warnings),
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
        outputs, size = await asyncio.to_thread(self._write, facts)
        return result | {"output_bytes": size}, outputs

    def _write(self, facts: Mapping[str, Any]) -> tuple[dict[str, Path], int]:
        return self._spool.write_outputs(pieces_of(self._job.data.job_type, self._spool, facts))
