"""The embedded store: ledger, dead letters and records in one SQLite file."""

from .store import SqliteStore

__all__ = ["SqliteStore"]
