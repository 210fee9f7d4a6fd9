"""Holdfast, the job gateway that never lets go.

This module is the public API for your own workloads. Everything else is an implementation detail.
"""

from .contracts.dead_letters import DeadLetter, ReviewStatus
from .contracts.effects import Collection, Delete, Effect, Enqueue, Upsert
from .contracts.entries import new_entry
from .contracts.errors import (
    BrokerUnavailable,
    ConfigurationError,
    DeadlinePassed,
    HandlingError,
    HoldfastError,
    LeaseLost,
    NotFound,
    PermanentError,
    StoreUnavailable,
    ThrottledError,
    TransientError,
)
from .contracts.ledger import Attempt, LedgerEntry, Status
from .contracts.outcomes import Done, Expired, Halt, Outcome, Reject, Retry, Snooze
from .contracts.queues import RateLimit
from .contracts.retry import ExponentialBackoff, ListedDelays, RetryPolicy
from .contracts.workload import Adopt, App, BackgroundTask, Context, Failure, Job, Reason, Standing, Workload

__version__ = "0.1.0"

__all__ = [
    "Adopt",
    "App",
    "Attempt",
    "BackgroundTask",
    "BrokerUnavailable",
    "Collection",
    "ConfigurationError",
    "Context",
    "DeadLetter",
    "DeadlinePassed",
    "Delete",
    "Done",
    "Effect",
    "Enqueue",
    "Expired",
    "ExponentialBackoff",
    "Failure",
    "Halt",
    "HandlingError",
    "HoldfastError",
    "Job",
    "LeaseLost",
    "LedgerEntry",
    "ListedDelays",
    "NotFound",
    "Outcome",
    "PermanentError",
    "RateLimit",
    "Reason",
    "Reject",
    "Retry",
    "RetryPolicy",
    "ReviewStatus",
    "Snooze",
    "Standing",
    "Status",
    "StoreUnavailable",
    "ThrottledError",
    "TransientError",
    "Upsert",
    "Workload",
    "new_entry",
]
