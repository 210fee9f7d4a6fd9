"""Holdfast, the job gateway that never lets go.

This module is the public API for your own workloads. Features have five modules more: ``holdfast.feature``, ``http``,
``views``, ``network`` and ``terminal``. Everything else is an implementation detail. docs/extending.md lists all names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.contracts.redaction import Kind, find_personal_data, normalise_document

    from .client import AsyncClient, Client, sign, verify_webhook
    from .contracts.admission import Admitted, ErrorCode, FieldProblem, InvalidContent, NotAcceptable
    from .contracts.app import App
    from .contracts.crash_points import crash_point
    from .contracts.dead_letters import DeadLetter, ListedLetter, ReviewStatus, letter_id
    from .contracts.effects import Collection, Delete, Effect, Enqueue, Upsert
    from .contracts.entries import job_id_for, new_entry, usable_job_id
    from .contracts.errors import (
        BrokerUnavailable,
        ConfigurationError,
        DeadlinePassed,
        HandlingError,
        HoldfastError,
        IntakeSaturated,
        InvalidQuery,
        LeaseLost,
        NewerVersion,
        NotFound,
        PermanentError,
        StoreUnavailable,
        ThrottledError,
        TransientError,
    )
    from .contracts.extras import EXTRA_OF, install_command, missing_libraries
    from .contracts.functions import JobFunction, SyncContext
    from .contracts.jobs import Context, Job, JobState
    from .contracts.ledger import Attempt, Cancelled, LedgerEntry, Status
    from .contracts.outcomes import Done, Expired, Failure, Halt, Outcome, Reason, Reject, Retry, Snooze
    from .contracts.queries import EntryQuery, LetterQuery, Page, RecordQuery, Slice
    from .contracts.queues import Delivery, RateLimit
    from .contracts.redaction import scrub
    from .contracts.retry import ExponentialBackoff, ListedDelays, RetryPolicy
    from .contracts.schedules import Schedule, Tick
    from .contracts.submissions import (
        Conflict,
        JobCancelled,
        JobError,
        JobExpired,
        JobFailed,
        NotRunning,
        Submission,
    )
    from .contracts.times import duration_ms, isoformat
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
    from .contracts.validation import HALF_A_CHARACTER, described, sentence_of
    from .contracts.workload import Adopt, Adopted, BackgroundTask, Identity, Workload, readable_body
    from .embedding import Holdfast

__version__ = "0.1.0"

__all__ = [
    "EXTRA_OF",
    "HALF_A_CHARACTER",
    "Accept",
    "Admitted",
    "Adopt",
    "Adopted",
    "App",
    "AskToStop",
    "AsyncClient",
    "Attempt",
    "BackgroundTask",
    "BrokerUnavailable",
    "Cancelled",
    "Client",
    "Collection",
    "Complete",
    "ConfigurationError",
    "Conflict",
    "Context",
    "DeadLetter",
    "DeadlinePassed",
    "Delete",
    "Delivery",
    "Done",
    "Effect",
    "Enqueue",
    "EntryQuery",
    "ErrorCode",
    "Expire",
    "Expired",
    "ExponentialBackoff",
    "Failure",
    "FieldProblem",
    "Halt",
    "HandlingError",
    "Holdfast",
    "HoldfastError",
    "Identity",
    "IntakeSaturated",
    "InvalidContent",
    "InvalidQuery",
    "Job",
    "JobCancelled",
    "JobError",
    "JobExpired",
    "JobFailed",
    "JobFunction",
    "JobState",
    "Kind",
    "LeaseLost",
    "LedgerEntry",
    "LetterQuery",
    "ListedDelays",
    "ListedLetter",
    "MoveToDeadLetters",
    "NewerVersion",
    "NotAcceptable",
    "NotFound",
    "NotRunning",
    "Outcome",
    "Page",
    "PermanentError",
    "Publish",
    "RateLimit",
    "Reason",
    "RecordQuery",
    "Reject",
    "Release",
    "Retry",
    "RetryLater",
    "RetryPolicy",
    "ReviewStatus",
    "Schedule",
    "Slice",
    "Snooze",
    "Status",
    "StoreUnavailable",
    "Submission",
    "SyncContext",
    "ThrottledError",
    "Tick",
    "TransientError",
    "Transition",
    "Upsert",
    "Workload",
    "crash_point",
    "described",
    "duration_ms",
    "find_personal_data",
    "install_command",
    "isoformat",
    "job_id_for",
    "letter_id",
    "missing_libraries",
    "new_entry",
    "normalise_document",
    "readable_body",
    "scrub",
    "sentence_of",
    "sign",
    "usable_job_id",
    "verify_webhook",
]

_PLACES: Final = (
    "admission",
    "app",
    "crash_points",
    "dead_letters",
    "effects",
    "entries",
    "errors",
    "extras",
    "functions",
    "jobs",
    "ledger",
    "outcomes",
    "queries",
    "queues",
    "redaction",
    "retry",
    "schedules",
    "submissions",
    "times",
    "transitions",
    "validation",
    "workload",
)
"""The modules of ``holdfast.contracts`` that have these names."""
_ELSEWHERE: Final = {
    "AsyncClient": "client",
    "Client": "client",
    "Holdfast": "embedding",
    "sign": "client",
    "verify_webhook": "client",
}
"""Names of other packages. The client needs httpx, and nothing of the contracts."""


if not TYPE_CHECKING:  # a type checker would believe that every name exists

    def __getattr__(name: str) -> object:
        """A public name, when it is first used: ``holdfast --version`` does without pydantic and asyncio."""
        if name in __all__:
            places = (_ELSEWHERE[name],) if name in _ELSEWHERE else (f"contracts.{each}" for each in _PLACES)
            for place in places:
                module = import_module(f"{__name__}.{place}")
                if hasattr(module, name):
                    globals()[name] = getattr(module, name)
                    return globals()[name]
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
