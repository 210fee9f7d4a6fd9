"""The cluster's store: ledger, dead letters and documents in MongoDB."""

from .store import MongoStore

__all__ = ["MongoStore"]
