"""Records: applying effects to them, and reading them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.contracts.effects import Collection
from holdfast.contracts.errors import InvalidQuery
from holdfast.contracts.queries import Page, RecordQuery, Slice
from holdfast.contracts.times import from_ms, isoformat
from holdfast.sqlite.database import one, to_json
from holdfast.stores.fields import check_fields, pair_of, position_of, slice_of, to_cursor, to_pair_cursor
from holdfast.stores.folding import Fold, Write, check_effect, keys_by_collection, upserted_keys

from .schema import instants_of, quoted

_AFTER_ALL: Final = ("\U0010ffff", "")
"""A position before the newest record: text that is greater than every instant."""


class RecordTable:
    """The table of one collection, and its statements, which are built once from checked names."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        table, key = quoted(collection.name), quoted(collection.key)
        # S608: the only parts are identifiers that `quoted` has checked.
        self.load = (
            f"SELECT json_group_object(k.value, json(d.body)) FROM json_each(?) AS k "  # noqa: S608
            f"CROSS JOIN {table} AS d ON d.{key} = k.value"
        )
        self.save = (
            f"INSERT INTO {table} ({key}, body) SELECT value ->> 0, value -> 1 FROM json_each(?) WHERE true "  # noqa: S608
            f"ON CONFLICT DO UPDATE SET body = excluded.body"
        )
        self.delete = f"DELETE FROM {table} WHERE {key} IN (SELECT value FROM json_each(?))"  # noqa: S608
        self.read_many = f"SELECT {key}, body FROM {table} WHERE {key} IN (SELECT value FROM json_each(?))"  # noqa: S608
        self.read = f"SELECT body FROM {table} WHERE {key} = ?"  # noqa: S608
        self.list = f"SELECT {key}, body FROM {table} WHERE {key} > ?{{where}} ORDER BY {key} LIMIT ?"  # noqa: S608
        self.newest = (
            f"SELECT {key}, body, {{instant}} FROM {table} WHERE ({{instant}}, {key}) < (?, ?){{where}} "  # noqa: S608
            f"ORDER BY {{instant}} DESC, {key} DESC LIMIT ?"
        )
        self.prune: str | None = None
        if collection.expires is not None:
            expires = quoted(collection.expires)
            self.prune = (
                f"DELETE FROM {table} WHERE {key} IN "  # noqa: S608
                f"(SELECT {key} FROM {table} WHERE {expires} <= ? ORDER BY {expires} LIMIT ?)"
            )

    def listing(self, query: RecordQuery) -> str:
        """The statement that lists the records of a query."""
        check_fields(self.collection, query.where)
        where = "".join(f" AND {quoted(name)} = ?" for name in query.where)
        if query.newest_by is None:
            return self.list.format(where=where)
        if query.newest_by not in instants_of(self.collection):
            message = f"Records of {self.collection.name} cannot be listed by {query.newest_by!r}: it is no instant."
            raise InvalidQuery(message)
        return self.newest.format(where=where, instant=quoted(query.newest_by))


class RecordTables:
    """All collections that this process knows."""

    def __init__(self, collections: Sequence[Collection]) -> None:
        self._tables = {collection.name: RecordTable(collection) for collection in collections}
        self._key_fields = {collection.name: collection.key for collection in collections}

    def table(self, name: str) -> RecordTable:
        """The table of a collection."""
        try:
            return self._tables[name]
        except KeyError:
            message = f"Nothing in this process declares the collection {name!r}."
            raise InvalidQuery(message) from None

    def apply(
        self,
        connection: sqlite3.Connection,
        now: int,
        effects: Sequence[tuple[str, Sequence[Write]]],
    ) -> list[str | None]:
        """Fold the jobs' effects into the records, in order, and write each record once.

        Returns for each job a note, or None: see :meth:`Fold.apply`. Nothing is written when an effect is refused.
        """
        fold = Fold(isoformat(from_ms(now)))
        wanted: dict[str, list[str]] = {}
        for job_id, batch in effects:
            for effect in batch:
                check_effect(job_id, effect, self._tables)
                wanted.setdefault(effect.collection, []).append(effect.key)
        changed = upserted_keys(effects)
        for name in wanted:
            # A record that is only deleted is not read: a long document deletes many large ones at once.
            read = to_json(sorted(changed.get(name, ())))
            fold.records[name] = json.loads(one(connection, self._tables[name].load, (read,)))
        notes = fold.apply(effects, self._key_fields)
        for name, keys in wanted.items():
            table, records = self._tables[name], fold.records[name]
            if records:
                connection.execute(table.save, (to_json(list(records.items())),))
            if gone := [key for key in keys if key not in records]:
                connection.execute(table.delete, (to_json(gone),))
        return notes

    def get(self, connection: sqlite3.Connection, collection: str, key: str) -> Mapping[str, Any] | None:
        """One record."""
        body = one(connection, self.table(collection).read, (key,))
        return None if body is None else json.loads(body)

    def get_many(
        self, connection: sqlite3.Connection, wanted: Sequence[tuple[str, str]]
    ) -> list[Mapping[str, Any] | None]:
        """Records by collection and key, with one statement for each collection."""
        found: dict[tuple[str, str], Mapping[str, Any]] = {}
        for collection, keys in keys_by_collection(wanted).items():
            rows = connection.execute(self.table(collection).read_many, (to_json(keys),))
            found |= {(collection, key): json.loads(body) for key, body in rows.fetchall()}
        return [found.get(each) for each in wanted]

    def find(self, connection: sqlite3.Connection, query: RecordQuery, page: Page) -> Slice[Mapping[str, Any]]:
        """Records by the values of indexed fields, in the order of their keys or newest first."""
        statement = self.table(query.collection).listing(query)
        start: tuple[str, ...]
        if query.newest_by is None:
            start = (position_of(page.cursor) if page.cursor else "",)
        else:
            start = pair_of(page.cursor) if page.cursor else _AFTER_ALL
        rows = connection.execute(statement, (*start, *query.where.values(), page.limit + 1)).fetchall()

        def cursor(row: Sequence[str]) -> str:
            key, _, *instants = row
            return to_pair_cursor(instants[0], key) if instants else to_cursor(key)

        return slice_of(rows, page, lambda row: json.loads(row[1]), cursor)

    def prune(self, connection: sqlite3.Connection, now: int, limit: int) -> int:
        """Delete expired records, no more than ``limit`` in all collections together."""
        instant, deleted = isoformat(from_ms(now)), 0
        for table in self._tables.values():
            if table.prune is not None and deleted < limit:
                deleted += connection.execute(table.prune, (instant, limit - deleted)).rowcount
        return deleted
