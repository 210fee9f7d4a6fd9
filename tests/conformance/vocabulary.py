"""The jobs and helper functions of the store suite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from holdfast import Collection, Workload
from holdfast.contracts.dead_letters import DeadLetter, letter_id
from holdfast.contracts.effects import Effect
from holdfast.contracts.ledger import (
    Claimed,
    ClaimResult,
    Exhausted,
    Interrupted,
    Lease,
    LedgerEntry,
    NewEntry,
    Overdue,
    Status,
)
from holdfast.contracts.ports import Store
from holdfast.contracts.queries import LetterQuery, Page
from holdfast.contracts.transitions import Complete, MoveToDeadLetters, RetryLater, Settled, Settlement, Transition
from tests.conformance.harness import StoreHarness

THINGS = "things"
OTHERS = "others"

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

AWKWARD = "naïve 🦑 ' \" \\ % _ ; -- $gt {} [] \t\n\u2028 ﷽ ẞß"
"""Text that a careless adapter would break, cut, or run as a command."""


class Anything(BaseModel):
    """Any body. The store never reads bodies, so no contract matters here."""


class Things(Workload[Anything]):
    name = THINGS
    contract = Anything
    queue = "things-main"
    dead_letter_queue = "things-dead"
    collections: Sequence[Collection] = (
        Collection("box", key="thingId", indexes=(("colour",), ("colour", "size"))),
        Collection("cellar", key="name"),
        Collection(
            "drawer",
            key="slipId",
            indexes=(("at",), ("owner", "at"), ("owner", "state", "at")),
            instants=("at", "until"),
            expires="until",
        ),
    )
    indexed_labels: Sequence[str] = ("colour",)

    def fairness_key(self, data: Anything) -> str | None:
        """Tests give entries their keys themselves; a store must know that there may be some."""
        del data
        return None


class Others(Workload[Anything]):
    name = OTHERS
    contract = Anything
    queue = "others-main"
    dead_letter_queue = "others-dead"

    def fairness_key(self, data: Anything) -> str | None:
        """Tests give entries their keys themselves; a store must know that there may be some."""
        del data
        return None


def workloads() -> list[Workload[Any]]:
    return [Things(), Others()]


def collections() -> list[Collection]:
    """Collections that belong to no workload."""
    return [Collection("atlas", key="place", indexes=(("kind",),), instants=("until",), expires="until")]


MEGABYTE = f'{{"of": "{"x" * 2**20}"}}'
"""A body that is much larger than all the rest of a job."""


# --- jobs -----------------------------------------------------------------------------------------------------


def a_job(key: str = "k", **changes: Any) -> NewEntry:
    facts: dict[str, Any] = {
        "workload": THINGS,
        "key": key,
        "job_id": f"id-{key}",
        "body": f'{{"of": "{key}"}}',
        "fingerprint": f"content of {key}",
        "labels": {"colour": "red"},
    }
    return NewEntry(**(facts | changes))


async def recorded(store: Store, key: str = "k", **changes: Any) -> NewEntry:
    """Record a new job."""
    job = a_job(key, **changes)
    (answer,) = await store.record([job])
    assert answer.recorded_as == "new"
    return job


async def entry_of(store: Store, key: str = "k", workload: str = THINGS) -> LedgerEntry:
    """The entry. Its number of attempts is checked (I5)."""
    entry = await store.entry(workload, key)
    assert entry is not None
    assert_counts_its_attempts(entry)
    return entry


def assert_counts_its_attempts(record: LedgerEntry | DeadLetter) -> None:
    numbers = [attempt.attempt for attempt in record.attempts]
    assert numbers == list(range(1, record.attempt_count + 1))


# --- work -----------------------------------------------------------------------------------------------------


async def lapsed(harness: StoreHarness, store: Store, key: str = "k") -> Claimed:
    """A claim whose worker has vanished: its lease has expired, and no other worker has claimed the job."""
    claim = await claimed(store, key, lease=harness.moment)
    await harness.pass_time(harness.moment)
    return claim


async def try_claim(
    store: Store,
    *job_ids: str,
    worker: str = "worker-1",
    lease: timedelta = HOUR,
    max_attempts: int = 5,
    workload: str = THINGS,
) -> list[ClaimResult]:
    return await store.claim(workload, job_ids, worker=worker, lease=lease, max_attempts=max_attempts)


async def claimed(store: Store, key: str = "k", **options: Any) -> Claimed:
    (claim,) = await try_claim(store, f"id-{key}", **options)
    assert isinstance(claim, Claimed), claim
    return claim


async def recorded_and_claimed(store: Store, *keys: str) -> list[Claimed]:
    await store.record([a_job(key) for key in keys])
    return [await claimed(store, key) for key in keys]


Ours = Claimed | Exhausted | Interrupted | Overdue


def settlement(claim: Ours, transition: Transition, workload: str = THINGS) -> Settlement:
    return Settlement(workload, Lease(claim.job_id, claim.fence), transition)


async def settled(store: Store, claim: Ours, transition: Transition) -> Settled:
    """Settle a job that we have claimed."""
    (answer,) = await store.settle([settlement(claim, transition)])
    assert answer.job_id == claim.job_id
    assert not answer.stale
    return answer


def completed(*effects: Any, **changes: Any) -> Complete:
    return Complete(**({"retention": DAY, "effects": effects} | changes))


def retried(
    after: timedelta = timedelta(0),
    code: str = "TIMEOUT",
    message: str = "too slow",
    effects: Sequence[Effect] = (),
) -> RetryLater:
    return RetryLater(after, code, message, effects)


def dead_lettered(key: str = "k", generation: int = 1, workload: str = THINGS, **changes: Any) -> MoveToDeadLetters:
    facts: dict[str, Any] = {
        "letter_id": letter_id(workload, key, generation),
        "code": "HTTP_404",
        "message": "not there",
        "reason_code": "REFUSED",
        "reason_message": "The other side refused it.",
        "retention": DAY,
        "letter_retention": DAY,
    }
    return MoveToDeadLetters(**(facts | changes))


# --- dead letters ---------------------------------------------------------------------------------------------


async def dead(store: Store, key: str = "k", *, dead_letter: dict[str, Any] | None = None, **changes: Any) -> str:
    """Record a job, try it once and dead-letter it; return its letter's id."""
    job = await recorded(store, key, **changes)
    (claim,) = await try_claim(store, job.job_id, workload=job.workload)
    assert isinstance(claim, Claimed)
    transition = dead_lettered(key, workload=job.workload, **(dead_letter or {}))
    (answer,) = await store.settle([settlement(claim, transition, job.workload)])
    assert answer.status is Status.DEAD_LETTERED
    return transition.letter_id


async def dead_and_reviewed(store: Store, key: str = "k", **options: Any) -> str:
    letter = await dead(store, key, **options)
    assert await store.review([letter], actor="ana", reason="seen") == [letter]
    return letter


async def letter_of(store: Store, letter: str) -> DeadLetter:
    """The letter. Its number of attempts is checked (I5)."""
    found = await store.letter(letter)
    assert found is not None
    assert_counts_its_attempts(found)
    return found


async def keys_of_letters(store: Store, **query: Any) -> list[str]:
    found = await store.letters(LetterQuery(**query), Page(1000))
    assert found.next is None
    assert await store.count_letters(LetterQuery(**query)) == len(found.items)
    return [letter.key for letter in found.items]
