"""When an event is too old or too new to be believed.

Too old: the ledger forgets settled entries after the retention, so an older event could be a duplicate that nobody
recognises any more (I12). Too new: the newest event of a shipment wins, so one from the far future would make the
shipment deaf to all that follow (I16).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from holdfast.contracts.outcomes import Reject

MARGIN: Final = timedelta(hours=1)
"""How far the clocks of couriers, gateways and stores may be apart without an event falling between two rules."""

FUTURE: Final = timedelta(minutes=5)
"""How far a courier's clock may be ahead of ours at the door."""


def problem_at_intake(occurred_at: datetime, received_at: datetime, retention: timedelta) -> str | None:
    """Why an event is refused when it comes in, by the clock of the process that receives it."""
    if occurred_at > received_at + FUTURE:
        return "must not be in the future"
    if occurred_at < received_at - (retention - MARGIN):
        return f"must not be older than {retention.days} days: whether it is a duplicate is no longer known"
    return None


def rejection(occurred_at: datetime, first_seen_at: datetime, retention: timedelta, *, replayed: bool) -> Reject | None:
    """The same rules for jobs that a producer put straight into the queue, by the clock of the ledger.

    More generous by the margin, so that what passed the door never fails here. A replay is a person's decision about
    one job that the ledger still holds: its age is no reason to refuse it.
    """
    if occurred_at > first_seen_at + FUTURE + MARGIN:
        return Reject("EVENT_IN_THE_FUTURE", "occurredAt is in the future.")
    if occurred_at < first_seen_at - retention and not replayed:
        return Reject("EVENT_TOO_OLD", "occurredAt is older than the time for which duplicates are known.")
    return None
