"""One SQLite file, shared by the embedded store and the embedded broker."""

from .database import Database, Migration, Outbox

__all__ = ["Database", "Migration", "Outbox"]
