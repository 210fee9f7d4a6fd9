"""Folding effects into records. Every store uses this code, so that an effect does the same everywhere (I16)."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from holdfast.contracts.effects import IGNORED_STALE, Delete, Effect, Enqueue, Upsert
from holdfast.contracts.errors import EffectRefused
from holdfast.contracts.ledger import NewEntry
from holdfast.contracts.transitions import Complete, Expire, Proceed, Release, Settlement

Position = TypeVar("Position")

CREATED: Final = "createdAt"
UPDATED: Final = "updatedAt"

_to_json = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode


Write = Upsert | Delete
"""An effect on a record."""


def writes_of(job_id: str, effects: Sequence[Effect]) -> list[Write]:
    """The writes of records; refuse effects that enqueue a job."""
    writes = [each for each in effects if not isinstance(each, Enqueue)]
    if len(writes) < len(effects):
        raise EffectRefused(job_id, "Only the settlement of a job may enqueue another.")
    return writes


def effects_of(
    settlements: Mapping[Position, Settlement],
) -> tuple[dict[Position, tuple[str, list[Write]]], list[NewEntry]]:
    """The writes of each settlement with its job id, for those that have effects, and all jobs that they enqueue."""
    effects: dict[Position, tuple[str, list[Write]]] = {}
    enqueued: list[NewEntry] = []
    for position, each in settlements.items():
        if own := each.transition.effects:
            effects[position] = (each.lease.job_id, [one for one in own if not isinstance(one, Enqueue)])
            enqueued += [one.entry for one in own if isinstance(one, Enqueue)]
    return effects, enqueued


def note_of(settlement: Settlement, from_effects: str | None) -> str | None:
    """The note of the entry: the transition's own note, or the note that the effects gave."""
    transition = settlement.transition
    if isinstance(transition, Proceed):
        return None
    if isinstance(transition, Complete | Expire | Release) and transition.note is not None:
        return transition.note
    return from_effects


def check_effect(job_id: str, effect: Write, declared: Container[str]) -> None:
    """Refuse an effect that no store could apply. ``declared`` has the names of the collections."""
    if effect.collection not in declared:
        raise EffectRefused(job_id, f"Nothing declares the collection {effect.collection!r}.")
    if not effect.key or "\0" in effect.key:  # NUL: SQLite's JSON functions would cut the key there
        raise EffectRefused(job_id, f"A record's key of {effect.collection} must be text, not empty, without NUL.")
    if isinstance(effect, Upsert) and effect.only_if_newer is not None and effect.only_if_newer not in effect.set:
        raise EffectRefused(job_id, f"only_if_newer names {effect.only_if_newer!r}, which the effect does not set.")
    if isinstance(effect, Upsert) and not effect.only_if_same.keys() <= effect.set.keys():
        raise EffectRefused(job_id, "only_if_same names a field that the effect does not set.")


def _refuse_other_owner(job_id: str, effect: Upsert, record: Mapping[str, Any]) -> None:
    for name, code in effect.only_if_same.items():
        if record.get(name) not in {None, effect.set[name]}:
            message = f"The record of {effect.collection} belongs to another {name}."
            raise EffectRefused(job_id, message, code)


def keys_by_collection(wanted: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """The keys of records that are to be read, each key once, by collection."""
    found: dict[str, dict[str, None]] = {}
    for collection, key in wanted:
        found.setdefault(collection, {})[key] = None
    return {collection: list(keys) for collection, keys in found.items()}


def upserted_keys(effects: Sequence[tuple[str, Sequence[Write]]]) -> dict[str, set[str]]:
    """The keys of the records that are not only deleted, by collection."""
    found: dict[str, set[str]] = {}
    for _, batch in effects:
        for effect in batch:
            if isinstance(effect, Upsert):
                found.setdefault(effect.collection, set()).add(effect.key)
    return found


@dataclass(slots=True, eq=False)
class Fold:
    """The records of one batch while effects are applied to them.

    ``now`` is the store's clock, as text. The store puts the stored records into ``records``, by collection and key.
    After ``apply``, ``records`` holds what the store must write.
    """

    now: str
    records: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def apply(self, effects: Sequence[tuple[str, Sequence[Write]]], key_fields: Mapping[str, str]) -> list[str | None]:
        """Apply the effects of the jobs in order; return for each job a note if an effect was skipped as stale (I16).

        ``key_fields`` has the field with the key of each collection's records.
        """
        notes: list[str | None] = []
        for job_id, batch in effects:
            note = None
            for effect in batch:
                records = self.records[effect.collection]
                if isinstance(effect, Delete):
                    records.pop(effect.key, None)
                    continue
                record = records.get(effect.key)
                if record is not None and effect.only_if_same:
                    _refuse_other_owner(job_id, effect, record)
                if record is None:
                    record = {key_fields[effect.collection]: effect.key, **effect.set_on_insert, CREATED: self.now}
                elif effect.only_if_newer is not None and self._older(job_id, effect, record):
                    note = IGNORED_STALE
                    continue
                changed = {**record, **effect.set, UPDATED: self.now}
                for name, amount in effect.add.items():
                    changed[name] = self._sum(job_id, effect, changed.get(name, 0), amount)
                self.check(job_id, effect, changed)
                records[effect.key] = changed
            notes.append(note)
        return notes

    @staticmethod
    def _sum(job_id: str, effect: Upsert, number: Any, amount: int) -> int:  # noqa: ANN401 - any value of a record
        if not isinstance(number, int):
            raise EffectRefused(job_id, f"An effect on {effect.collection} adds to what is no whole number.")
        return number + amount

    def check(self, job_id: str, effect: Upsert, changed: Mapping[str, Any]) -> str:
        """Return the record as JSON; refuse a record that is not JSON. A store may refuse more."""
        try:
            text = _to_json(changed)
            text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise EffectRefused(job_id, f"A record of {effect.collection} is not JSON: {error}") from error
        return text

    def comparable(self, stored: Any, new: Any) -> Any:  # noqa: ANN401 - any value of a record
        """The stored value, in the form of the new value, so that the two can be compared."""
        del new
        return stored

    def _older(self, job_id: str, effect: Upsert, record: Mapping[str, Any]) -> bool:
        assert effect.only_if_newer is not None  # noqa: S101 - for the type checker; the caller checked it
        new = effect.set[effect.only_if_newer]
        stored = self.comparable(record.get(effect.only_if_newer), new)
        try:
            return stored is not None and bool(new < stored)
        except TypeError as error:
            raise EffectRefused(
                job_id, f"{effect.only_if_newer!r} cannot be compared with the stored value."
            ) from error
