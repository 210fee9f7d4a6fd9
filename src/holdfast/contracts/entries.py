"""Making the ledger's entry of a job out of a workload's data, and the names that a job can have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from .admission import FieldProblem, InvalidContent
from .effects import Effect
from .ledger import NewEntry

if TYPE_CHECKING:  # a workload names its jobs with this module
    from .workload import Workload

OWNER: Final = "companyId"
"""The label that names the tenant of a job."""
_MAX_KEY: Final = 400
_MAX_LABELS: Final = 20
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_RESERVED_IDS: Final = frozenset(
    {
        "active",
        "completed",
        "delayed",
        "events",
        "failed",
        "id",
        "limiter",
        "marker",
        "meta",
        "paused",
        "pc",
        "prioritized",
        "priority",
        "repeat",
        "stalled",
        "stalled-check",
        "wait",
        "waiting-children",
    },
)
_MAX_ID: Final = 200


def new_entry(  # noqa: PLR0913 - a job and what its sender wants for it
    workload: Workload[Any],
    data: BaseModel,
    *,
    job_id: str | None = None,
    priority: int = 0,
    delay: timedelta = timedelta(0),
    replay_of: str | None = None,
    fairness_key: str | None = None,
    effects: Sequence[Effect] = (),
    warnings: Sequence[str] = (),
    owner: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> NewEntry:
    """The entry to record for a job. Raises :class:`InvalidContent` when its identity cannot be used.

    ``owner`` is the tenant whose job this is: its key and its job id are the tenant's own, so that no tenant meets
    another's. ``labels`` are more labels; the workload's own win.
    """
    key = workload.key(data)
    if owner is not None and key:
        key = owned_key(owner, key)
    if not key or len(key) > _MAX_KEY or _UNPRINTABLE.search(key):
        problem = f"must have 1 to {_MAX_KEY} characters, none of them a control character"
        raise InvalidContent([FieldProblem("key", problem)])
    if job_id is None:
        # A job id that a workload makes from the data alone would be the same for two tenants.
        job_id = workload.job_id(key, data) if owner is None else job_id_for(key)
    if not usable_job_id(job_id):
        raise InvalidContent([FieldProblem("jobId", "cannot be used as a job id: see holdfast.contracts.entries")])
    own = workload.labels(data)
    if len(own) > _MAX_LABELS or any(len(each) > _MAX_KEY for each in (*own, *own.values())):
        problem = f"must be at most {_MAX_LABELS}, of at most {_MAX_KEY} characters each"
        raise InvalidContent([FieldProblem("labels", problem)])
    return NewEntry(
        workload=workload.name,
        key=key,
        job_id=job_id,
        body=workload.write(data),
        fingerprint=workload.fingerprint(data),
        labels={**(labels or {}), **own, **({} if owner is None else {OWNER: owner})},
        priority=priority,
        delay=delay,
        ttl=workload.ttl,
        ttl_includes_replays=workload.ttl_includes_replays,
        replay_of=replay_of,
        fairness_key=fairness_key,
        effects=effects,
        warnings=warnings,
    )


def owned_key(owner: str, key: str) -> str:
    """The ledger's key of a tenant's job. The tenant sends and sees the key without its own id."""
    return f"{owner}:{key}"


def owner_of(key: str, labels: Mapping[str, str]) -> str | None:
    """The tenant whose job this is; None for a job of the operator, also if its workload gives it the same label."""
    owner = labels.get(OWNER)
    return owner if owner is not None and key.startswith(owned_key(owner, "")) else None


def usable_job_id(candidate: str) -> bool:
    """Whether every broker keeps a job of this id apart from its own bookkeeping.

    BullMQ splits keys at ``:``, uses digits for its own counter, and plain words as names of its sets.
    """
    return (
        0 < len(candidate) <= _MAX_ID
        and ":" not in candidate
        and not candidate.isdigit()
        and candidate not in _RESERVED_IDS
        and re.fullmatch(r"[!-~]+", candidate) is not None
    )


def job_id_for(key: str) -> str:
    """A usable job id for an idempotency key.

    ``:`` is written as ``.``, and a hash is added where that could collide with another key's id.
    """
    plain = key.replace(":", ".")
    # "a:b" and "a.b" must get different ids. So must a plain id and an id that ends in another key's hash.
    ambiguous = "." in key or re.search(r":[0-9a-f]{16}$", key) is not None
    if not ambiguous and usable_job_id(plain):
        return plain
    digest = sha256(key.encode()).hexdigest()[:16]
    readable = re.sub(r"[^!-~]", "_", plain)[: _MAX_ID - 17]
    return f"{readable}.{digest}"
