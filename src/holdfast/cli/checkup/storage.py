"""The data folder: is it writable, has it space, and how long does a durable commit take."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from holdfast.config import Settings
from holdfast.contracts.errors import HoldfastError
from holdfast.contracts.ledger import NewEntry
from holdfast.feature import FAIL, OK, WARN, Finding
from holdfast.wiring import open_system
from holdfast.wiring.data_folder import open_to_others

_COMMITS: Final = 20
_SLOW_MS: Final = 50.0
_MEBIBYTE: Final = 1024 * 1024
_TOO_LITTLE: Final = 100 * _MEBIBYTE
_LITTLE: Final = 1024 * _MEBIBYTE
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "fuse.sshfs"})


async def storage(settings: Settings) -> list[Finding]:
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
