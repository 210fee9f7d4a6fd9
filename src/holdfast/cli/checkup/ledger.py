"""The ledger's own health: what waits, what died, what hangs."""

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
from holdfast.wiring import DATABASE_FILE, System, open_system

from .findings import FAIL, OK, WARN, Finding

_CLOCK_SLACK: Final = timedelta(seconds=5)
_PATIENCE: Final = timedelta(seconds=30)
"""How long past its lease a job may be before it counts as stuck: time for maintenance to notice."""
_MOST_LOOKED_AT: Final = 2000
_PAGE: Final = 200


async def ledger(settings: Settings, app: App | None) -> list[Finding]:
    """Everything about the ledger, if there is one yet."""
    if not (settings.holdfast_data / DATABASE_FILE).is_file():
        return [Finding("ledger", OK, "There is none yet; `holdfast up` makes it.")]
    try:
        async with open_system(settings, app) as system:
            return [finding async for finding in look(system)]
    except HoldfastError as error:
        advice = "Is the disk full, or the file in use by something that is not Holdfast?"
        return [Finding("ledger", FAIL, error.message, advice)]


async def look(system: System) -> AsyncIterator[Finding]:
    """What an open ledger tells about each workload."""
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
        advice = "`holdfast dlq list --status pending` lists them; only a person can move them on."
        yield Finding("dead letters", WARN, f"{pending} wait for a review.", advice)
    else:
        yield Finding("dead letters", OK, "None waits for a review.")


async def _time(store: Store, workload: Workload[Any], now: datetime) -> Finding:
    check = f"clock, {workload.name}"
    newest = (await store.find(EntryQuery(workload=workload.name), Page(1))).items
    if newest and newest[0].first_seen_at > now + _CLOCK_SLACK:
        ahead = (newest[0].first_seen_at - now).total_seconds()
        advice = "Set the clock right and keep it so (NTP); until it catches up, leases and retries wait too long."
        return Finding(check, FAIL, f"The newest entry is {ahead:.0f} s in the future: the clock was set back.", advice)
    return Finding(check, OK, "No entry is from the future.")


async def _stuck(store: Store, workload: Workload[Any], now: datetime) -> Finding:
    check = f"leases, {workload.name}"
    seen, stuck, cursor = 0, 0, None
    while seen < _MOST_LOOKED_AT:
        page = await store.find(EntryQuery(workload=workload.name, status=Status.PROCESSING), Page(_PAGE, cursor))
        seen += len(page.items)
        stuck += sum(1 for each in page.items if each.lease_until and each.lease_until + _PATIENCE < now)
        cursor = page.next
        if cursor is None:
            break
    if stuck:
        advice = "Start a worker (`holdfast up` or `holdfast worker`): it takes them over."
        return Finding(check, WARN, f"{stuck} jobs are in work by workers that have vanished.", advice)
    return Finding(check, OK, "No job is held past its lease.")


async def _queue(system: System, workload: Workload[Any]) -> Finding:
    check = f"queue, {workload.queue}"
    try:
        depth = await system.broker.depth(workload.queue)
    except BrokerUnavailable as error:
        return Finding(check, WARN, f"It cannot be asked: {error.message}", "What waits is in the ledger, and safe.")
    shown = f"{depth.ready} ready, {depth.delayed} delayed, {depth.active} active"
    if depth.paused:
        return Finding(check, WARN, f"Paused; {shown}.", f"`holdfast queue resume {workload.queue}` lets it go on.")
    return Finding(check, OK, shown)
