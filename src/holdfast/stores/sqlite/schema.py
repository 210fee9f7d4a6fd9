"""The tables of the embedded store, and views with the names of the specification.

Times are milliseconds since 1970 on the store's clock. ``attempts``, ``labels``, ``decisions``, ``result``,
``progress`` and ``warnings`` are JSON. The views have the specification's names and fields (``processed_events``,
``dead_letter_events``; rules C33 and C60).

Some stored names are older than our words for them:

- ``ledger_entries.life`` is the ttl in milliseconds
- ``ledger_entries.mortal`` is ``ttl_includes_replays``
- ``ledger_entries.lane`` is the fairness key, and the index ``ledger_lanes`` is by fairness key
- ``ledger_entries.withdrawn`` marks a job that its sender cancelled
- ``store_facts``, name ``queue``, is the epoch of the queue that was seen last

The broker's tables are in the same file (``brokers/sqlite.py``, ``brokers/sqlite_limits.py``):

- ``queue_settings``, name ``incarnation``, is the queue's epoch
- ``queue_turns`` holds the permits of a limit that are not free; its column ``turn`` is the permit's name
- ``queue_flows`` and ``queue_places`` hold the start times that ``reserve`` gave to jobs
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.effects import Collection
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.workload import Workload
from holdfast.sqlite import Migration
from holdfast.sqlite.database import one
from holdfast.stores.fields import entries_name, letters_name, names_of, public_name
from holdfast.stores.folding import CREATED, UPDATED

COMPONENT: Final = "store"

MIGRATIONS: Final[tuple[Migration, ...]] = (
    (
        """
        CREATE TABLE ledger_entries (
            id INTEGER PRIMARY KEY,
            workload TEXT NOT NULL,
            job_id TEXT NOT NULL,
            key TEXT NOT NULL,
            generation INTEGER NOT NULL DEFAULT 1,
            status TEXT NOT NULL,
            body TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            labels TEXT NOT NULL,
            priority INTEGER NOT NULL,
            attempt_count INTEGER NOT NULL DEFAULT 0,
            attempts TEXT NOT NULL DEFAULT '[]',
            fence INTEGER NOT NULL DEFAULT 0,
            lease_until INTEGER,
            not_before INTEGER NOT NULL,
            due_at INTEGER,
            life INTEGER,
            deadline INTEGER,
            last_error_code TEXT,
            last_error_message TEXT,
            note TEXT,
            result TEXT,
            replay_of TEXT,
            first_seen_at INTEGER NOT NULL,
            updated_at INTEGER NOT NULL,
            expires_at INTEGER
        )
        """,
        "CREATE UNIQUE INDEX ledger_key ON ledger_entries (workload, key)",
        "CREATE UNIQUE INDEX ledger_job ON ledger_entries (workload, job_id)",
        "CREATE INDEX ledger_status ON ledger_entries (workload, status, updated_at)",
        "CREATE INDEX ledger_due ON ledger_entries (workload, due_at) WHERE due_at IS NOT NULL",
        "CREATE INDEX ledger_deadline ON ledger_entries (workload, deadline) WHERE deadline IS NOT NULL",
        "CREATE INDEX ledger_expiry ON ledger_entries (expires_at) WHERE expires_at IS NOT NULL",
        """
        CREATE TABLE dead_letters (
            seq INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            workload TEXT NOT NULL,
            key TEXT NOT NULL,
            job_id TEXT NOT NULL,
            generation INTEGER NOT NULL,
            reason_code TEXT NOT NULL,
            reason_message TEXT NOT NULL,
            attempt_count INTEGER NOT NULL,
            attempts TEXT NOT NULL,
            body TEXT NOT NULL,
            labels TEXT NOT NULL,
            review_status TEXT NOT NULL DEFAULT 'pending',
            decisions TEXT NOT NULL DEFAULT '[]',
            replayed_as TEXT,
            published INTEGER NOT NULL DEFAULT 0,
            created_at INTEGER NOT NULL,
            updated_at INTEGER NOT NULL,
            expires_at INTEGER NOT NULL,
            UNIQUE (workload, key, generation)
        )
        """,
        "CREATE INDEX letters_review ON dead_letters (review_status, created_at)",
        "CREATE INDEX letters_created ON dead_letters (created_at)",
        """
        CREATE INDEX letters_unpublished ON dead_letters (workload, seq)
        WHERE published = 0 AND review_status = 'pending'
        """,
        """
        CREATE INDEX letters_outdated ON dead_letters (workload, seq)
        WHERE published = 1 AND review_status IN ('replayed', 'closed')
        """,
        "CREATE INDEX letters_expiry ON dead_letters (expires_at)",
        "CREATE TABLE store_facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    ),
    (
        "ALTER TABLE ledger_entries ADD COLUMN lane TEXT",
        "ALTER TABLE ledger_entries ADD COLUMN mortal INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE ledger_entries ADD COLUMN proceeded INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE ledger_entries ADD COLUMN withdrawn INTEGER NOT NULL DEFAULT 0",
        # Partial: a job without a fairness key, or a settled job, is not in these indexes.
        """
        CREATE INDEX ledger_lanes ON ledger_entries (workload, lane, priority)
        WHERE lane IS NOT NULL AND status IN ('received', 'processing', 'failed')
        """,
        """
        CREATE INDEX ledger_front ON ledger_entries (workload, priority)
        WHERE lane IS NOT NULL AND status = 'processing'
        """,
        """
        CREATE INDEX ledger_next ON ledger_entries (workload, priority)
        WHERE lane IS NOT NULL AND status = 'received'
        """,
    ),
    ("ALTER TABLE ledger_entries ADD COLUMN warnings TEXT NOT NULL DEFAULT '[]'",),
    ("ALTER TABLE ledger_entries ADD COLUMN progress TEXT",),
    (
        "CREATE INDEX ledger_seen ON ledger_entries (workload, first_seen_at)",
        "CREATE INDEX ledger_status_seen ON ledger_entries (workload, status, first_seen_at)",
    ),
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_OURS = frozenset(
    {
        "ledger_entries",
        "dead_letters",
        "schema_versions",
        "store_facts",
        "queue_jobs",
        "queue_settings",
        "queue_turns",
        "queue_flows",
        "queue_places",
    }
)


def check_names(workloads: Sequence[Workload[Any]], collections: Sequence[Collection]) -> None:
    """Refuse names that are taken. SQLite does not tell capital letters from small letters in them."""
    views = [name for workload in workloads for name in (entries_name(workload), letters_name(workload))]
    tables = {each.name for each in (*collections, *(each for workload in workloads for each in workload.collections))}
    indexes = {f"ledger_label_{label}" for workload in workloads for label in workload.indexed_labels}
    taken = set(_OURS)
    for name in (*views, *sorted(tables), *sorted(indexes)):
        if name.lower() in taken or name.lower().startswith("sqlite_"):
            message = f"The name {name!r} is taken in the database, which does not tell capital from small letters."
            raise ConfigurationError(message)
        taken.add(name.lower())


def quoted(name: str) -> str:
    """A name as an SQL identifier. Names come from workload definitions; only plain names are allowed."""
    if not _NAME.fullmatch(name) or name.lower() in _OURS or name.lower().startswith("sqlite_"):
        message = f"{name!r} cannot be the name of a collection or a field: use letters, digits and _."
        raise ConfigurationError(message)
    return f'"{name}"'


def create_collections(connection: sqlite3.Connection, collections: Sequence[Collection]) -> None:
    """Create tables and indexes for the records that effects write.

    An indexed field becomes a generated column. So do an instant and a named column, so that people can use them in
    their own queries. A collection whose records expire gets an index for pruning.
    """
    for collection in collections:
        if collection.expires is not None and collection.expires not in collection.instants:
            message = (
                f"Records of {collection.name} cannot expire by {collection.expires!r}: it is no instant of theirs."
            )
            raise ConfigurationError(message)
        table, key = quoted(collection.name), quoted(collection.key)
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {table} ({key} TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID"
        )
        present = _present(connection, table)
        for name in columns_of(collection):
            if name not in present:
                expression = f"TEXT GENERATED ALWAYS AS (body ->> '$.{name}') VIRTUAL"
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {quoted(name)} {expression}")
        for fields in collection.indexes:
            index = quoted(f"{collection.name}_by_{'_'.join(fields)}")
            connection.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {table} ({', '.join(map(quoted, fields))})")
        if collection.expires is not None:
            index, instant = quoted(f"{collection.name}_expiring"), quoted(collection.expires)
            connection.execute(
                f"CREATE INDEX IF NOT EXISTS {index} ON {table} ({instant}) WHERE {instant} IS NOT NULL",
            )


def _present(connection: sqlite3.Connection, table: str) -> set[str]:
    """The columns that a table has."""
    return {row[1] for row in connection.execute(f"PRAGMA table_xinfo({table})")}


def add_letter_columns(connection: sqlite3.Connection) -> None:
    """Add a column for each new field of the dead letter. Such a field is optional: older letters do not have it."""
    present = _present(connection, "dead_letters")
    for name in names_of(DeadLetter):
        if name not in present:
            connection.execute(f"ALTER TABLE dead_letters ADD COLUMN {quoted(name)}")


def columns_of(collection: Collection) -> list[str]:
    """The fields with a column of their own: indexed fields, instants, and the collection's ``columns``."""
    indexed = (name for fields in collection.indexes for name in fields)
    return list(dict.fromkeys((*indexed, *collection.columns, *instants_of(collection))))


def instants_of(collection: Collection) -> tuple[str, ...]:
    """The fields that hold instants: the declared fields, and the store's own."""
    return (*collection.instants, CREATED, UPDATED)


# Fields in the views, beside the key and the label columns.
_OF_AN_ENTRY: Final = (
    *("status", "generation", "attempt_count", "last_error_code", "last_error_message", "note"),
    *("first_seen_at", "updated_at", "expires_at", "body", "attempts", "labels", "result", "progress", "warnings"),
)
_NOT_OF_A_LETTER: Final = frozenset({"id", "workload", "key", "job_id", "labels", "replayed_as"})
_OF_A_LETTER: Final = tuple(name for name in names_of(DeadLetter) if name not in _NOT_OF_A_LETTER)


def create_views(connection: sqlite3.Connection, workload: Workload[Any]) -> None:
    """Create views of the ledger and of the dead letters under the workload's own names, with readable times.

    A name may have a ``-``: then people must write it in double quotes.
    """
    labels = [f"labels ->> '$.{name}' AS {quoted(name)}" for name in workload.label_columns]
    key = ["key AS idempotencyKey", *labels]
    entry = [*key, *map(_shown, _OF_AN_ENTRY)]
    letter = ["id", *key, *("body AS payloadSnapshot" if name == "body" else _shown(name) for name in _OF_A_LETTER)]
    # A view cannot have parameters.
    name = workload.name.replace("'", "''")
    for view, table, columns in (
        (entries_name(workload), "ledger_entries", entry),
        (letters_name(workload), "dead_letters", letter),
    ):
        connection.execute(f'DROP VIEW IF EXISTS "{view}"')
        # S608: the only parts are checked names, names of the contracts' fields, and a text without a single quote.
        connection.execute(
            f"CREATE VIEW \"{view}\" AS SELECT {', '.join(columns)} FROM {table} WHERE workload = '{name}'"  # noqa: S608
        )


def _shown(field: str) -> str:
    """A column of a view: a field under its public name, and an instant as text."""
    instant = f"strftime('%Y-%m-%dT%H:%M:%fZ', {field} / 1000.0, 'unixepoch')"
    return f"{instant if field.endswith('_at') else field} AS {public_name(field)}"


def label_expression(label: str) -> str:
    """A label of an entry in SQL."""
    return f"labels ->> '$.{quoted(label)[1:-1]}'"


def label_index(label: str) -> str:
    """The index on a label. All workloads share it, so an entry is in it once; without the label it is not in it."""
    return f'"ledger_label_{quoted(label)[1:-1]}"'


def create_label_indexes(connection: sqlite3.Connection, workload: Workload[Any]) -> None:
    """Create indexes on the labels by which a workload's entries are found, newest first."""
    for label in workload.indexed_labels:
        expression = label_expression(label)
        connection.execute(
            f"CREATE INDEX IF NOT EXISTS {label_index(label)} ON ledger_entries "
            f"(workload, {expression}, first_seen_at) WHERE {expression} IS NOT NULL"
        )
        # An earlier version had an index for each workload, in another order.
        if _NAME.fullmatch(workload.name):
            connection.execute(f'DROP INDEX IF EXISTS "ledger_{workload.name}_{label}"')


def prepare(
    connection: sqlite3.Connection,
    workloads: Sequence[Workload[Any]],
    collections: Sequence[Collection],
) -> None:
    """Create the missing columns, tables, views and indexes of the workloads and of the other collections."""
    add_letter_columns(connection)
    for workload in workloads:
        if _changed(connection, f"workload:{workload.name}", _definition(workload)):
            create_collections(connection, workload.collections)
            create_views(connection, workload)
            create_label_indexes(connection, workload)
    for collection in collections:
        if _changed(connection, f"collection:{collection.name}", repr((len(MIGRATIONS), collection))):
            create_collections(connection, [collection])


def _changed(connection: sqlite3.Connection, fact: str, definition: str) -> bool:
    """Whether the tables were made for another definition. The new definition is stored."""
    if one(connection, "SELECT value FROM store_facts WHERE name = ?", (fact,)) == definition:
        return False
    connection.execute(_REMEMBER, (fact, definition))
    return True


_REMEMBER: Final = "INSERT INTO store_facts VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"


def _definition(workload: Workload[Any]) -> str:
    """The parts of a workload that the tables depend on. When the text changes, the tables are updated."""
    names = (len(MIGRATIONS), workload.ledger_name, workload.letters_name)
    labels = (tuple(workload.indexed_labels), tuple(workload.label_columns))
    return repr((names, labels, tuple(workload.collections), _OF_A_LETTER))
