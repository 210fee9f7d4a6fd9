"""Jobs that an external producer put into the queue or onto the list ``doc_jobs``. They are read leniently.

Such a job has one of two forms. In our own form the file's address and all else are in ``payload``. In the flat form
there is no ``payload``: ``local_path`` or ``url``, ``created_at``, ``metadata`` and the rest are beside ``job_id``,
``job_type`` and ``input_type``. The payload of a flat job is everything but these three. So the ``payload`` of its
dead letter is what the producer sent. A person adds three fields and can send it again.

Fields that the contract does not know are kept and not used, with a warning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast import Adopted, Identity, scrub

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
