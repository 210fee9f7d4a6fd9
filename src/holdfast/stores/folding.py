"""Folding effects into documents: the same in every store, so that one event means the same everywhere (I16)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.contracts.effects import Delete, Effect, Enqueue, Upsert
from holdfast.contracts.errors import EffectRefused
from holdfast.contracts.ledger import NewEntry

CREATED: Final = "createdAt"
UPDATED: Final = "updatedAt"

_to_json = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode


Write = Upsert | Delete
"""An effect on a document."""


def told_apart(effects: Sequence[Effect]) -> tuple[list[Write], list[NewEntry]]:
    """Effects on documents, and the jobs that follow."""
    writes = [each for each in effects if not isinstance(each, Enqueue)]
    return writes, [each.entry for each in effects if isinstance(each, Enqueue)]


def writes_of(job_id: str, effects: Sequence[Effect]) -> list[Write]:
    """Effects on documents; refuses any other."""
    writes, entries = told_apart(effects)
    if entries:
        raise EffectRefused(job_id, "Only the settlement of a job may enqueue another.")
    return writes


def check_effect(job_id: str, effect: Write) -> None:
    """Refuse an effect that no store could apply."""
    if not effect.key or "\0" in effect.key:  # NUL: SQLite's JSON functions would cut the key there
        raise EffectRefused(job_id, f"A record's key of {effect.collection} must be text, not empty, without NUL.")
    if isinstance(effect, Upsert) and effect.only_if_newer is not None and effect.only_if_newer not in effect.set:
        raise EffectRefused(job_id, f"only_if_newer names {effect.only_if_newer!r}, which the effect does not set.")


class Fold:
    """The documents of one batch while its effects are applied to them.

    ``now`` is the store's clock, as text. The store puts what it has into ``documents``, by collection and key, and
    finds there what shall stand.
    """

    def __init__(self, now: str) -> None:
        self._now = now
        self.records: dict[str, dict[str, dict[str, Any]]] = {}

    def apply(self, job_id: str, effect: Write, key_field: str) -> bool:
        """Apply one effect; False when it lost to a newer document (I16)."""
        records = self.records[effect.collection]
        if isinstance(effect, Delete):
            records.pop(effect.key, None)
            return True
        record = records.get(effect.key)
        if record is None:
            record = {key_field: effect.key, **effect.set_on_insert, CREATED: self._now}
        elif effect.only_if_newer is not None and self._older(job_id, effect, record):
            return False
        changed = {**record, **effect.set, UPDATED: self._now}
        self.check(job_id, effect, changed)
        records[effect.key] = changed
        return True

    def check(self, job_id: str, effect: Upsert, changed: Mapping[str, Any]) -> str:
        """Refuse what is not JSON; return it as JSON. A store that can hold less refuses more."""
        try:
            text = _to_json(changed)
            text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise EffectRefused(job_id, f"A record of {effect.collection} is not JSON: {error}") from error
        return text

    def comparable(self, stored: Any, mine: Any) -> Any:  # noqa: ANN401 - any value of a document
        """What is stored, in the form of the new value that it is compared with."""
        del mine
        return stored

    def _older(self, job_id: str, effect: Upsert, record: Mapping[str, Any]) -> bool:
        assert effect.only_if_newer is not None  # noqa: S101 - narrows for the type checker; the caller looked
        mine = effect.set[effect.only_if_newer]
        stored = self.comparable(record.get(effect.only_if_newer), mine)
        try:
            return stored is not None and bool(mine < stored)
        except TypeError as error:
            raise EffectRefused(job_id, f"{effect.only_if_newer!r} cannot be compared with the stored one.") from error
