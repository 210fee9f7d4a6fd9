"""The state of the ledger: waiting jobs, dead letters, stuck jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.config import Settings
from holdfast.contracts.dead_letters import ReviewStatus
from holdfast.contracts.errors import BrokerUnavailable, HoldfastError
from holdfast.contracts.ledger import Status
from holdfast.contracts.ports import Store
from holdfast.contracts.queries import EntryQuery, LetterQuery, Page
from holdfast.contracts.workload import App, Workload
from holdfast.feature import FAIL, OK, WARN, Finding
from holdfast.wiring import DATABASE_FILE, System, open_system

_CLOCK_SLACK: Final = timedelta(seconds=5)
_SLACK: Final = timedelta(seconds=30)
"""A job is stuck this long after the end of its lease. Until then maintenance has time to take it back."""
_MOST_CHECKED: Final = 2000
_PAGE: Final = 200


async def ledger(settings: Settings, app: App | None) -> list[Finding]:
    """All checks of the ledger, if there is one yet."""
    if not (settings.holdfast_data / DATABASE_FILE).is_file():
        return [Finding("ledger", OK, "There is none yet; `holdfast up` makes it.")]
    try:
        async with open_system(settings, app) as system:
            return [finding async for finding in check_ledger(system)]
    except HoldfastError as error:
        advice = "Is the disk full, or the file in use by something that is not Holdfast?"
        return [Finding("ledger", FAIL, error.message, advice)]


async def check_ledger(system: System) -> AsyncIterator[Finding]:
    """The findings of an open ledger, for each workload."""
    now = await system.store.now()
    for workload in system.workloads.values():
        counts = await system.store.counts(workload.name)
        shown = ", ".join(f"{counts[each]} {each}" for each in Status if counts.get(each)) or "nothing yet"
        yield Finding(f"ledger, {workload.name}", OK, shown)
        yield await _time(system.store, workload, now)
        yield await _stuck(system.store, workload, now)
        yield await _queue(system, workload)
    pending = await system.store.count_letters(LetterQuery(review_status=ReviewStatus.PENDING))
    if pending:
        advice = "`holdfast dlq list --status pending` lists them; only a person can review them."
        yield Finding("dead letters", WARN, f"{pending} wait for a review.", advice)
    else:
        yield Finding("dead letters", OK, "None waits for a review.")


async def _time(store: Store, workload: Workload[Any], now: datetime) -> Finding:
    check = f"clock, {workload.name}"
    newest = (await store.find(EntryQuery(workload=workload.name), Page(1))).items
    if newest and newest[0].first_seen_at > now + _CLOCK_SLACK:
        ahead = (newest[0].first_seen_at - now).total_seconds()
        advice = "Set the clock and keep it set (NTP); until then, leases and retries wait too long."
        return Finding(check, FAIL, f"The newest entry is {ahead:.0f} s in the future: the clock was set back.", advice)
    return Finding(check, OK, "No entry is from the future.")


async def _stuck(store: Store, workload: Workload[Any], now: datetime) -> Finding:
    check = f"leases, {workload.name}"
    seen, stuck, cursor = 0, 0, None
    while seen < _MOST_CHECKED:
        page = await store.find(EntryQuery(workload=workload.name, status=Status.PROCESSING), Page(_PAGE, cursor))
        seen += len(page.items)
        stuck += sum(1 for each in page.items if each.lease_until and each.lease_until + _SLACK < now)
        cursor = page.next
        if cursor is None:
            break
    if stuck:
        advice = "Start a worker (`holdfast up` or `holdfast worker`): it takes them over."
        return Finding(check, WARN, f"{stuck} jobs belong to workers that are gone.", advice)
    return Finding(check, OK, "No job is held after the end of its lease.")


async def _queue(system: System, workload: Workload[Any]) -> Finding:
    check = f"queue, {workload.queue}"
    try:
        depth = await system.broker.depth(workload.queue)
    except BrokerUnavailable as error:
        return Finding(check, WARN, f"It does not answer: {error.message}", "Waiting jobs are safe in the ledger.")
    shown = f"{depth.ready} ready, {depth.delayed} delayed, {depth.active} active"
    if depth.paused:
        return Finding(check, WARN, f"Paused; {shown}.", f"`holdfast queue resume {workload.queue}` starts it again.")
    return Finding(check, OK, shown)
