"""Documents: applying effects to them, and reading them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.contracts.effects import IGNORED_STALE, Collection, Effect
from holdfast.contracts.errors import EffectRefused, InvalidQuery
from holdfast.contracts.queries import DocumentQuery, Page, Slice
from holdfast.contracts.times import from_ms, isoformat
from holdfast.sqlite.database import one
from holdfast.stores.cursors import position_of, to_cursor
from holdfast.stores.folding import Fold, check_effect

from .rows import to_json
from .schema import quoted


class Shelf:
    """One collection's table and its statements, made once from checked names."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        table, key = quoted(collection.name), quoted(collection.key)
        # S608: the only parts are identifiers that `quoted` let through.
        self.load = (
            f"SELECT json_group_object(k.value, json(d.body)) FROM json_each(?) AS k "  # noqa: S608
            f"CROSS JOIN {table} AS d ON d.{key} = k.value"
        )
        self.save = (
            f"INSERT INTO {table} ({key}, body) SELECT value ->> 0, value -> 1 FROM json_each(?) WHERE true "  # noqa: S608
            f"ON CONFLICT DO UPDATE SET body = excluded.body"
        )
        self.delete = f"DELETE FROM {table} WHERE {key} IN (SELECT value FROM json_each(?))"  # noqa: S608
        self.read = f"SELECT body FROM {table} WHERE {key} = ?"  # noqa: S608
        self.list = f"SELECT {key}, body FROM {table} WHERE {key} > ?{{where}} ORDER BY {key} LIMIT ?"  # noqa: S608

    def matching(self, fields: Sequence[str]) -> str:
        """The listing statement, narrowed to values of these fields."""
        known = {name for index in self.collection.indexes for name in index} | {self.collection.key}
        for name in fields:
            if name not in known:
                message = f"Documents of {self.collection.name} cannot be found by {name!r}: no index has it."
                raise InvalidQuery(message)
        return self.list.format(where="".join(f" AND {quoted(name)} = ?" for name in fields))


class Shelves:
    """All collections of the workloads in this process."""

    def __init__(self, collections: Sequence[Collection]) -> None:
        self._shelves = {collection.name: Shelf(collection) for collection in collections}

    def shelf(self, name: str) -> Shelf:
        """The shelf of a collection."""
        try:
            return self._shelves[name]
        except KeyError:
            message = f"No workload in this process declares the collection {name!r}."
            raise InvalidQuery(message) from None

    def apply(
        self,
        connection: sqlite3.Connection,
        now: int,
        effects: Sequence[tuple[str, Sequence[Effect]]],
    ) -> dict[str, str]:
        """Fold the jobs' effects into the documents, in order, and write each document once.

        Returns a note for each job that had an effect skipped as stale. Nothing is written when an effect is refused.
        """
        fold = Fold(isoformat(from_ms(now)))
        wanted: dict[str, list[str]] = {}
        for job_id, batch in effects:
            for effect in batch:
                self._check(job_id, effect)
                wanted.setdefault(effect.collection, []).append(effect.key)
        for name, keys in wanted.items():
            fold.documents[name] = json.loads(one(connection, self.shelf(name).load, (to_json(keys),)))
        notes = {
            job_id: IGNORED_STALE
            for job_id, batch in effects
            if [each for each in batch if not fold.apply(job_id, each, self.shelf(each.collection).collection.key)]
        }
        for name, keys in wanted.items():
            self._write(connection, self.shelf(name), fold.documents[name], keys)
        return notes

    def _check(self, job_id: str, effect: Effect) -> None:
        if effect.collection not in self._shelves:
            raise EffectRefused(job_id, f"No workload declares the collection {effect.collection!r}.")
        check_effect(job_id, effect)

    @staticmethod
    def _write(
        connection: sqlite3.Connection,
        shelf: Shelf,
        documents: Mapping[str, Mapping[str, Any]],
        keys: Sequence[str],
    ) -> None:
        if documents:
            connection.execute(shelf.save, (to_json(list(documents.items())),))
        gone = [key for key in keys if key not in documents]
        if gone:
            connection.execute(shelf.delete, (to_json(gone),))

    def get(self, connection: sqlite3.Connection, collection: str, key: str) -> Mapping[str, Any] | None:
        """One document."""
        body = one(connection, self.shelf(collection).read, (key,))
        return None if body is None else json.loads(body)

    def find(self, connection: sqlite3.Connection, query: DocumentQuery, page: Page) -> Slice[Mapping[str, Any]]:
        """Documents by the values of indexed fields, in the order of their keys."""
        statement = self.shelf(query.collection).matching(list(query.where))
        start = position_of(page.cursor) if page.cursor else ""
        rows = connection.execute(statement, (start, *query.where.values(), page.limit + 1)).fetchall()
        more = to_cursor(rows[page.limit - 1][0]) if len(rows) > page.limit else None
        return Slice([json.loads(row[1]) for row in rows[: page.limit]], more)
