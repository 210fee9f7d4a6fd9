"""Jobs of one workload or of all of them: the one with a key, and the newest."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.contracts.errors import InvalidQuery
from holdfast.contracts.ledger import LedgerEntry
from holdfast.contracts.queries import EntryQuery, Page, Slice
from holdfast.contracts.workload import Workload
from holdfast.wiring import System

from .failures import REFUSED, Stop
from .opening import OWN_WORKLOADS

_COURIER: Final = "courier"
_KEY_OF_AN_EVENT: Final = "The key of a courier event is <source>:<eventId>, unless its sender gave another key."


async def find_job(system: System, key: str, workload: str | None) -> LedgerEntry:
    """The job with this key: of this workload, or of the only one that has such a job.

    Raises :class:`Stop` if there is none (exit code 1), or if several workloads have a job with this key.
    """
    names = list(system.workloads) if workload is None else [workload]
    found = [entry for name in names if (entry := await system.store.entry(name, key)) is not None]
    if len(found) > 1:
        owners = ", ".join(entry.workload for entry in found)
        message = f"Several workloads have a job with the key {key!r}: {owners}. Choose one with --workload."
        raise Stop(message)
    if found:
        return found[0]
    if workload is not None:
        require_known(system, workload)
    sentences = [f"The ledger has no job of {', '.join(names)} with the key {key!r}."]
    if _COURIER in names:
        sentences.append(_KEY_OF_AN_EVENT)
    raise Stop(*sentences, *missing_app(system), code=REFUSED)


def known_workload(system: System, name: str) -> Workload[Any]:
    """The workload of this name. Raises :class:`Stop` with the names of all workloads if it is not one of them."""
    require_known(system, name)
    return system.workloads[name]


def require_known(system: System, name: str) -> None:
    """Raise :class:`Stop` with the names of all workloads, unless this is the name of one."""
    if name not in system.workloads:
        message = f"There is no workload {name!r} here; there are {', '.join(system.workloads)}."
        raise Stop(message, *missing_app(system))


def missing_app(system: System) -> list[str]:
    """How to name an app, if only features bring workloads here: perhaps somebody forgot it."""
    brought = {each.name for built in system.features.values() if built.parts for each in built.parts.workloads}
    return [] if set(system.workloads) - brought else [OWN_WORKLOADS]


def searched_by(system: System, workload: str | None, labels: Iterable[str]) -> list[str]:
    """The workloads to search: this one, or all whose jobs can be found by these labels.

    Raises :class:`Stop`, with the labels that have an index, if there is none.
    """
    wanted = set(labels)
    if not wanted:
        return list(system.workloads) if workload is None else [workload]
    asked = list(system.workloads.values()) if workload is None else [known_workload(system, workload)]
    found = [each.name for each in asked if wanted <= set(each.indexed_labels)]
    if found:
        return found
    indexed = [f"{each.name}: {', '.join(each.indexed_labels)}" for each in asked if each.indexed_labels]
    missing = sorted(wanted - set(asked[0].indexed_labels) if len(asked) == 1 else wanted)
    label = missing[0]
    sentences = [
        f"Jobs cannot be found by the label {', '.join(missing)}: no index has it.",
        f"Labels with an index: {'; '.join(indexed) or 'none'}.",
        f'To add it: @app.job(labels=("{label}",)), or indexed_labels = ("{label}",) in the class of a workload.',
        "The next start makes the index; in a cluster, `holdfast migrate` does.",
    ]
    raise Stop(*sentences)


# --- the newest jobs ---------------------------------------------------------------------------------------------


async def newest(system: System, names: Sequence[str], query: EntryQuery, page: Page) -> Slice[LedgerEntry]:
    """The newest jobs of these workloads together, each by the same query.

    The cursor has a position for each workload that has more jobs.
    """
    if len(names) == 1:
        return await system.store.find(replace(query, workload=names[0]), page)
    positions: Mapping[str, str | None] = dict.fromkeys(names) if page.cursor is None else _positions(page.cursor)

    async def part(name: str, limit: int) -> Slice[LedgerEntry]:
        return await system.store.find(replace(query, workload=name), Page(limit, positions[name]))

    parts = {name: await part(name, page.limit) for name in names if name in positions}
    together = [entry for each in parts.values() for entry in each.items]
    shown = sorted(together, key=lambda entry: entry.first_seen_at, reverse=True)[: page.limit]
    rest: dict[str, str | None] = {}
    for name, found in parts.items():
        taken = sum(entry.workload == name for entry in shown)
        if taken < len(found.items):
            rest[name] = (await part(name, taken)).next if taken else positions[name]
        elif found.next is not None:
            rest[name] = found.next
    return Slice(shown, _cursor(rest) if rest else None)


def _cursor(positions: Mapping[str, str | None]) -> str:
    return base64.urlsafe_b64encode(json.dumps(positions, separators=(",", ":")).encode()).decode()


def _positions(cursor: str) -> dict[str, str | None]:
    try:
        found = json.loads(base64.b64decode(cursor, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(each is None or isinstance(each, str) for each in found.values()):
        message = "The cursor is not one that a listing of all workloads returned."
        raise InvalidQuery(message)
    return found
