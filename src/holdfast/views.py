"""The answers of routes: their base class, and those that features share. Public. It loads no web framework.

So the commands of a feature can show what its routes answer.
"""

from __future__ import annotations

from holdfast.api.views import AttemptView, ErrorView, Instant, JobReceipt, JobView, View

__all__ = ["AttemptView", "ErrorView", "Instant", "JobReceipt", "JobView", "View"]
