"""Holdfast, the job gateway that never lets go.

This module is the public API: what a workload of your own needs. Everything else is an implementation detail.
"""

from .contracts.dead_letters import DeadLetter, ReviewStatus
from .contracts.effects import Collection, Delete, Effect, Upsert
from .contracts.errors import HandlingError, HoldfastError, PermanentError, ThrottledError, TransientError
from .contracts.ledger import Attempt, LedgerEntry, Status
from .contracts.outcomes import Done, Expired, Outcome, Reject, Retry, Snooze
from .contracts.retry import ExponentialBackoff, ListedDelays, RetryPolicy
from .contracts.workload import App, Context, Failure, Job, Reason, Workload

__version__ = "0.1.0"

__all__ = [
    "App",
    "Attempt",
    "Collection",
    "Context",
    "DeadLetter",
    "Delete",
    "Done",
    "Effect",
    "Expired",
    "ExponentialBackoff",
    "Failure",
    "HandlingError",
    "HoldfastError",
    "Job",
    "LedgerEntry",
    "ListedDelays",
    "Outcome",
    "PermanentError",
    "Reason",
    "Reject",
    "Retry",
    "RetryPolicy",
    "ReviewStatus",
    "Snooze",
    "Status",
    "ThrottledError",
    "TransientError",
    "Upsert",
    "Workload",
]
