"""Jobs that somebody else put into the queue or onto the list ``doc_jobs``: read leniently, named by what they say.

Such a job has one of two forms. In our own form the file's address and all else are in ``payload``. In the flat form
there is no ``payload``: ``local_path`` or ``url``, ``created_at``, ``metadata`` and the rest are beside ``job_id``,
``job_type`` and ``input_type``. The payload of a flat job is everything but these three. So its dead letter's
``payload`` is what was sent, and with three new words it can be sent again.

Fields that the contract does not know are kept and not used, with a warning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.contracts.redaction import scrub
from holdfast.contracts.workload import Adopted, Identity

from .contract import FLAT_ONLY, DocumentJob, DocumentPayload

NAMES: Final = ("job_id", "job_type", "input_type")
"""What a flat job says beside its payload."""

_LABELS: Final = ("job_type", "input_type", "company_id")
_LONGEST_NAME: Final = 200
_MOST_WARNINGS: Final = 10
_READABLE: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")


def adopt(data: str) -> Adopted[DocumentJob]:
    """The job, in either form. Raises ``ValidationError`` where it breaks the contract."""
    job = read_job(data)
    return Adopted(job, tuple(_warnings(job)))


def read_job(data: str) -> DocumentJob:
    """The job that this JSON text says, in either form."""
    content = _object(data)
    if content is None or "payload" in content:  # where it is no object, the contract says so
        return DocumentJob.model_validate_json(data)
    own = {name: content[name] for name in NAMES if name in content}
    rest = {name: value for name, value in content.items() if name not in NAMES}
    return DocumentJob.model_validate_json(json.dumps(own | {"payload": rest}))


def identify(content: Mapping[str, Any]) -> Identity:
    """The names of a job that breaks the contract, as far as they can be read."""
    labels = {name: value for name in _LABELS if (value := readable_name(content.get(name))) is not None}
    return Identity(readable_name(content.get("job_id")), labels)


def readable_name(value: object) -> str | None:
    """A name as people may see it; None where it is no name, too long, or something that has to be masked."""
    name = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME:
        return None
    return name if _READABLE.fullmatch(name) and scrub(name) == name else None


def payload_of(job: object, shown: Mapping[str, Any]) -> Any:  # noqa: ANN401 - whatever came
    """What was sent as the payload of a job, which may have broken its contract.

    ``shown`` is what its dead letter says already: of a flat job, only what the letter repeats word for word is left
    out.
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
    told = [name for name in unknown if name not in known]
    for name in told[:_MOST_WARNINGS]:
        words = name if readable_name(name) is not None else "A field"
        yield f"{words} is not known here: it was kept, and is not used."
