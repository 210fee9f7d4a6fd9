"""Jobs that an external producer put into the queue or onto the list ``doc_jobs``. They are read leniently.

Such a job has one of two forms. In our own form the file's address and all else are in ``payload``. In the flat form
there is no ``payload``: ``local_path`` or ``url``, ``created_at``, ``metadata`` and the rest are beside ``job_id``,
``job_type`` and ``input_type``. The payload of a flat job is everything but these three. So the ``payload`` of its dead
letter is what the producer sent. A person adds three fields and can send it again.

Fields that the contract does not know are kept and not used, with a warning.

The list is a plain Redis list, for producers that have no BullMQ (D22). A worker moves a job, in one step of Redis, to
a second list, where the job stays until the ledger has it. All workers share the second list, and no worker owns a job
on it. A job that stays there for a while was left by a worker that crashed, and any worker records it. Recording a job
twice makes one entry, because the job's text decides its identity. So no job is lost between the list and the ledger,
and no job runs twice.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

from holdfast import Adopt, Adopted, Identity, crash_point, scrub

from .contract import FLAT_ONLY, DocumentJob, DocumentPayload

NAMES: Final = ("job_id", "job_type", "input_type")
"""The fields of a flat job that are not part of its payload."""

_LABELS: Final = ("job_type", "input_type", "company_id")
_LONGEST_NAME: Final = 200
_MOST_WARNINGS: Final = 10
_READABLE: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")


def adopt(data: str) -> Adopted[DocumentJob]:
    """The job, in either form. Raises ``ValidationError`` when it breaks the contract."""
    job = read_job(data)
    return Adopted(job, tuple(_warnings(job)))


def read_job(data: str) -> DocumentJob:
    """The job in this JSON text, in either form."""
    content = _object(data)
    if content is None or "payload" in content:  # text that is no object fails the contract's validation
        return DocumentJob.model_validate_json(data)
    own = {name: content[name] for name in NAMES if name in content}
    rest = {name: value for name, value in content.items() if name not in NAMES}
    return DocumentJob.model_validate_json(json.dumps(own | {"payload": rest}))


def identify(content: Mapping[str, Any]) -> Identity:
    """The id and the labels of a job that breaks the contract, as far as they can be read."""
    labels = {name: value for name in _LABELS if (value := readable_name(content.get(name))) is not None}
    return Identity(readable_name(content.get("job_id")), labels)


def readable_name(value: object) -> str | None:
    """A name that may be shown to people. None: it is no name, too long, or it must be masked."""
    name = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME:
        return None
    return name if _READABLE.fullmatch(name) and scrub(name) == name else None


def payload_of(job: object, shown: Mapping[str, Any]) -> Any:  # noqa: ANN401 - whatever came
    """The payload that was sent. The job may have broken its contract.

    ``shown`` holds the fields of the dead letter. Of a flat job, a field is left out only if the letter has the same
    value.
    """
    if not isinstance(job, Mapping):
        return job
    if "payload" in job:
        return job["payload"]
    return {name: value for name, value in job.items() if name not in NAMES or shown.get(name) != value}


def _object(data: str) -> dict[str, Any] | None:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _warnings(job: DocumentJob) -> Iterator[str]:
    unknown = [*(job.model_extra or {}), *(f"payload.{name}" for name in job.payload.model_extra or {})]
    known = {f"payload.{name}" for name in (*FLAT_ONLY, *DocumentPayload.model_fields)}
    unused = [name for name in unknown if name not in known]
    for name in unused[:_MOST_WARNINGS]:
        shown = name if readable_name(name) is not None else "A field"
        yield f"{shown} is not known here: it was kept, and is not used."


_MOST: Final = 50
_WAIT: Final = timedelta(seconds=1)


class Lists(Protocol):
    """The two lists: jobs come from ``doc_jobs``, dead letters go to ``doc_jobs_dead``."""

    async def take(self, most: int, wait: timedelta) -> list[bytes]:
        """Take up to ``most`` jobs, oldest first, and wait for the first. They stay in Redis until :meth:`remove`."""
        ...

    async def taken(self, most: int) -> list[bytes]:
        """Up to ``most`` jobs that were taken and not removed, by any process, oldest first."""
        ...

    async def remove(self, values: Sequence[bytes]) -> None:
        """Remove jobs that the ledger has."""
        ...

    async def send(self, letters: Mapping[str, str], keep: timedelta) -> bool:
        """Push each letter once; its id is remembered for ``keep``. False if the Redis key is not a list."""
        ...


class ListReader:
    """Records jobs from the list in the ledger. A job that was taken ``left_after`` ago was left by a crash."""

    name = "doc_jobs list"

    def __init__(self, lists: Lists, adopt: Adopt, left_after: timedelta) -> None:
        self._lists = lists
        self._adopt = adopt
        self._left_after = left_after.total_seconds()
        self._held: list[bytes] = []
        self._seen: set[bytes] = set()
        self._checked = float("-inf")

    async def step(self) -> None:
        """Record the jobs of the list. Jobs that could not be recorded are held, and come first the next time."""
        self._held = self._held or await self._left_behind() or await self._lists.take(_MOST, _WAIT)
        if not self._held:
            return
        crash_point("lists.taken")
        await self._adopt([each.decode(errors="replace") for each in self._held])
        crash_point("lists.recorded")
        await self._lists.remove(self._held)
        self._held = []

    async def _left_behind(self) -> list[bytes]:
        """Taken jobs that were there at the last check too."""
        now = time.monotonic()
        if now - self._checked < self._left_after:
            return []
        there = await self._lists.taken(_MOST)
        left = [each for each in there if each in self._seen]
        self._seen, self._checked = set(there), now
        return left
