"""The answers of routes: their base class, and those that features share. Public. It loads no web framework.

So the commands of a feature can show what its routes answer.
"""

from __future__ import annotations

from holdfast.api.views import AttemptView, BatchView, EntryView, ErrorView, Instant, JobReceipt, JobView, View
from holdfast.contracts.examples import add_example

__all__ = [
    "AttemptView",
    "BatchView",
    "EntryView",
    "ErrorView",
    "Instant",
    "JobReceipt",
    "JobView",
    "View",
    "add_example",
]
