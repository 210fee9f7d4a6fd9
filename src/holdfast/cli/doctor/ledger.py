"""The data folder and the ledger.

Is the folder writable, has it space, and how long does a durable commit take? How many jobs wait, are any stuck, are
there dead letters?
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, Final

from holdfast.config import Settings
from holdfast.contracts.app import App
from holdfast.contracts.dead_letters import ReviewStatus
from holdfast.contracts.errors import BrokerUnavailable, HoldfastError
from holdfast.contracts.ledger import NewEntry, Status
from holdfast.contracts.ports import Store
from holdfast.contracts.queries import EntryQuery, LetterQuery, Page
from holdfast.contracts.workload import Workload
from holdfast.feature import FAIL, OK, WARN, Finding
from holdfast.wiring import DATABASE_FILE, System, open_system, open_to_others

_COMMITS: Final = 20
_SLOW_MS: Final = 50.0
_MEBIBYTE: Final = 1024 * 1024
_TOO_LITTLE: Final = 100 * _MEBIBYTE
_LITTLE: Final = 1024 * _MEBIBYTE
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "fuse.sshfs"})

_CLOCK_SLACK: Final = timedelta(seconds=5)
_SLACK: Final = timedelta(seconds=30)
"""A job is stuck this long after the end of its lease. Until then maintenance has time to take it back."""
_MOST_CHECKED: Final = 2000
_PAGE: Final = 200


# --- the data folder -------------------------------------------------------------------------------------------------


async def check_data_folder(settings: Settings) -> list[Finding]:
    """All checks of the folder. They leave nothing behind, and the ledger itself is not touched."""
    folder = settings.holdfast_data.absolute()
    place = next(each for each in (folder, *folder.parents) if each.exists())
    if not place.is_dir():
        return [Finding("data folder", FAIL, f"{place} is not a folder.", "Set HOLDFAST_DATA to a folder.")]
    if not os.access(place, os.W_OK | os.X_OK):
        advice = "Let this user write there, or set HOLDFAST_DATA to another folder."
        return [Finding("data folder", FAIL, f"{place} cannot be written to.", advice)]
    there = f"{folder} can be written to." if place == folder else f"{folder} will be made at the first start."
    disk = [*_file_system(place), _room(place), await _commit(settings, place)]
    return [Finding("data folder", OK, there), *_rights(folder), *disk]


def _rights(folder: Path) -> Iterator[Finding]:
    """Whether others may read the data. A start repairs this, unless the folder has another owner."""
    for each in open_to_others(folder):
        yield Finding("data folder", WARN, f"Other users may read {each}.", f"chmod go= {each}")


def _file_system(place: Path) -> Iterator[Finding]:
    kind = _kind(place)
    if kind in _IN_MEMORY:
        advice = "Set HOLDFAST_DATA to a folder on a disk."
        yield Finding("file system", WARN, f"{place} is in memory ({kind}): a restart of the machine loses it.", advice)
    elif kind in _REMOTE:
        advice = "Set HOLDFAST_DATA to a local disk: SQLite's write-ahead log needs shared memory and working locks."
        yield Finding("file system", WARN, f"{place} is on a network file system ({kind}).", advice)
    elif kind is not None:
        yield Finding("file system", OK, kind)


def _kind(place: Path) -> str | None:
    """The type of the file system, if the kernel shows it (Linux)."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    best: tuple[int, str] | None = None
    resolved = place.resolve()
    for line in lines:
        fields = line.split()
        mount = Path(fields[1].replace("\\040", " "))
        if resolved.is_relative_to(mount) and (best is None or len(mount.parts) >= best[0]):
            best = (len(mount.parts), fields[2])
    return None if best is None else best[1]


def _room(place: Path) -> Finding:
    free = shutil.disk_usage(place).free
    shown = f"{free // _MEBIBYTE:,} MiB free"
    advice = "Make room, or set HOLDFAST_DATA to a larger disk: a full disk refuses new work."
    if free < _TOO_LITTLE:
        return Finding("disk space", FAIL, f"Only {shown}.", advice)
    return Finding("disk space", WARN, f"Only {shown}.", advice) if free < _LITTLE else Finding("disk space", OK, shown)


async def _commit(settings: Settings, place: Path) -> Finding:
    """Time real commits: entries are recorded one by one in a temporary ledger on the same disk."""
    try:
        with tempfile.TemporaryDirectory(prefix=".holdfast-doctor-", dir=place) as scratch:
            took = await _timed(settings.model_copy(update={"holdfast_data": Path(scratch)}))
    except HoldfastError as error:
        return Finding("durable commit", FAIL, error.message, "Set HOLDFAST_DATA to a folder on a local disk.")
    except OSError as error:
        return Finding("durable commit", FAIL, f"{place}: {error.strerror}.", "Set HOLDFAST_DATA to another folder.")
    shown = f"{took:.1f} ms each (median of {_COMMITS})"
    if took > _SLOW_MS:
        advice = "It works, but each request of a single sender waits this long; a faster disk helps."
        return Finding("durable commit", WARN, shown, advice)
    return Finding("durable commit", OK, shown)


async def _timed(settings: Settings) -> float:
    times = []
    async with open_system(settings) as system:
        for number in range(_COMMITS):
            name = f"doctor-{number}"
            entry = NewEntry(workload="courier", key=name, job_id=name, body="{}", fingerprint=name)
            began = time.perf_counter()
            await system.store.record([entry])
            times.append(time.perf_counter() - began)
    return median(times) * 1000


# --- the ledger ------------------------------------------------------------------------------------------------------


async def check_embedded_ledger(settings: Settings, app: App | None) -> list[Finding]:
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
        why = f" ({depth.paused_because})" if depth.paused_because else ""
        return Finding(
            check, WARN, f"Paused{why}; {shown}.", f"`holdfast queue resume {workload.queue}` starts it again."
        )
    return Finding(check, OK, shown)
