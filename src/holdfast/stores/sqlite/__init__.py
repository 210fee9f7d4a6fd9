"""The embedded store: ledger, dead letters and documents in one SQLite file."""

from .store import SqliteStore

__all__ = ["SqliteStore"]
