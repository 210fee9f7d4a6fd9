"""The cluster's store: ledger, dead letters and records in MongoDB."""

from .store import MongoStore

__all__ = ["MongoStore"]
