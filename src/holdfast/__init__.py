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
from .contracts.outcomes import Done, Expired, Failure, Halt, Outcome, Reason, Reject, Retry, Snooze
from .contracts.queues import RateLimit
from .contracts.retry import ExponentialBackoff, ListedDelays, RetryPolicy
from .contracts.transitions import (
    Accept,
    AskToStop,
    Complete,
    Expire,
    MoveToDeadLetters,
    Publish,
    Release,
    RetryLater,
    Transition,
)
from .contracts.workload import Adopt, App, BackgroundTask, Context, Job, JobState, Workload

__version__ = "0.1.0"

__all__ = [
    "Accept",
    "Adopt",
    "App",
    "AskToStop",
    "Attempt",
    "BackgroundTask",
    "BrokerUnavailable",
    "Collection",
    "Complete",
    "ConfigurationError",
    "Context",
    "DeadLetter",
    "DeadlinePassed",
    "Delete",
    "Done",
    "Effect",
    "Enqueue",
    "Expire",
    "Expired",
    "ExponentialBackoff",
    "Failure",
    "Halt",
    "HandlingError",
    "HoldfastError",
    "Job",
    "JobState",
    "LeaseLost",
    "LedgerEntry",
    "ListedDelays",
    "MoveToDeadLetters",
    "NotFound",
    "Outcome",
    "PermanentError",
    "Publish",
    "RateLimit",
    "Reason",
    "Reject",
    "Release",
    "Retry",
    "RetryLater",
    "RetryPolicy",
    "ReviewStatus",
    "Snooze",
    "Status",
    "StoreUnavailable",
    "ThrottledError",
    "TransientError",
    "Transition",
    "Upsert",
    "Workload",
    "new_entry",
]
