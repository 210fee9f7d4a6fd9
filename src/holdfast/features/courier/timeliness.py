"""Refusal of events that are too old or too new.

Too old: the ledger deletes settled entries after the retention. An older event could be a duplicate of a deleted entry
(I12). Too new: the newest event of a shipment wins. After an event from the far future, no later event could change the
shipment (I16).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from holdfast import Reject

MARGIN: Final = timedelta(hours=1)
"""How far the clocks of couriers, gateways and stores may differ without an event being accepted and then rejected."""

FUTURE: Final = timedelta(minutes=5)
"""How far a courier's clock may be ahead of ours at intake."""


def problem_at_intake(occurred_at: datetime, received_at: datetime, retention: timedelta) -> str | None:
    """The reason to refuse an event at intake, by the clock of the process that receives it; None: accepted."""
    if occurred_at > received_at + FUTURE:
        return "must not be in the future"
    if occurred_at < received_at - (retention - MARGIN):
        return f"must not be older than {retention.days} days: whether it is a duplicate is no longer known"
    return None


def rejection(occurred_at: datetime, first_seen_at: datetime, retention: timedelta, *, replayed: bool) -> Reject | None:
    """The same rules for jobs that an external producer put into the queue, by the clock of the ledger.

    The limits are wider by the margin, so that an event that passed the intake is never rejected here. A replay is a
    person's decision about a job that is still in the ledger, so its age does not matter.
    """
    if occurred_at > first_seen_at + FUTURE + MARGIN:
        return Reject("EVENT_IN_THE_FUTURE", "occurredAt is in the future.")
    if occurred_at < first_seen_at - retention and not replayed:
        return Reject("EVENT_TOO_OLD", "occurredAt is older than the time for which duplicates are known.")
    return None
