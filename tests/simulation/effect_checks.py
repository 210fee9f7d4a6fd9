"""I3, I4, I10, I16: what handlers wrote, and when they were allowed to."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

from holdfast.contracts.times import duration_ms
from holdfast.contracts.transitions import CANCELLED

from .facts import Facts, Findings
from .workloads import TTL, Order

Mark = tuple[str, str]
"""A workload, and a key with its generation or its end."""


def effects(facts: Facts) -> Findings:
    """I3: one write for each generation that was processed, one for each job that expired, and no others."""
    marks = _marks(facts)
    expected: Counter[Mark] = Counter()
    for (workload, key), steps in facts.moves.items():
        for step in steps:
            if step["new"] == "expired":
                expected[workload, f"{key}|expired"] += 1
            elif step["new"] == "processed":
                expected[workload, f"{key}|{step['new_generation']}"] += 1
    for mark in sorted({*expected, *marks}):
        if len(marks.get(mark, ())) != expected[mark]:
            yield f"I3: {mark} was written {len(marks.get(mark, ()))} times, expected {expected[mark]}"


def authors(facts: Facts) -> Findings:
    """I4: the effects are those of the attempt that the ledger calls successful, not of one that came too late."""
    marks = _marks(facts)
    for (workload, key), steps in facts.moves.items():
        for step in steps:
            if step["new"] != "processed":
                continue
            last = step["attempts"][-1]
            for body in marks.get((workload, f"{key}|{step['new_generation']}"), ()):
                if (body["worker"], body["attempt"]) != (last["worker"], last["attempt"]):
                    yield f"I4: {workload} {key} was written by {body['worker']} and settled by {last['worker']}"


def _marks(facts: Facts) -> dict[Mark, list[dict[str, Any]]]:
    marks: dict[Mark, list[dict[str, Any]]] = defaultdict(list)
    for write in facts.writes:
        if write["collection"].endswith("_applied"):
            marks[write["collection"].removesuffix("_applied"), write["key"]].append(write["body"])
    return dict(marks)


def newest_stands(facts: Facts) -> Findings:
    """I16: on a shared document the newest event stands, at all times; the losers say so."""
    stood: dict[tuple[str, str], list[str]] = defaultdict(list)
    written = set()
    for write in facts.writes:
        if write["collection"].endswith("_subjects") and "at" in write["body"]:
            workload = write["collection"].removesuffix("_subjects")
            stood[workload, write["key"]].append(write["body"]["at"])
            written.add((workload, write["body"]["key"]))
    newest: dict[tuple[str, str], str] = {}
    for (workload, key), entry in facts.entries.items():
        if entry["status"] != "processed" or facts.workloads[workload].schedule is not None:
            continue
        order = Order.model_validate_json(entry["body"])
        subject = (workload, order.subject)
        newest[subject] = max(newest.get(subject, ""), order.at)
        if entry["note"] == "ignored_stale" and (workload, key) in written:
            yield f"I16: {workload} {key} is called stale, and it stood"
    for subject, instants in stood.items():
        if any(later < earlier for earlier, later in pairwise(instants)):
            yield f"I16: {subject} went back in time"
        if instants[-1] != newest.get(subject):
            yield f"I16: {subject} ended at {instants[-1]}, the newest is {newest.get(subject)}"
    yield from (f"I3: {subject} was never written" for subject in newest if subject not in stood)


def deadlines(facts: Facts) -> Findings:
    """I10: a generation has the ttl of its workload, and no attempt begins after it."""
    for (workload, key), steps in facts.moves.items():
        expires = facts.workloads[workload].ttl is not None and not key.startswith(("UNREADABLE", "IDEMPOTENCY"))
        deadline: dict[int, int | None] = {}
        for step in steps:
            if step["new"] == "received" and step["old"] in (None, "dead_lettered"):
                wanted = step["at"] + duration_ms(TTL) if expires else None
                deadline[step["new_generation"]] = step["deadline"]
                if step["deadline"] != wanted:
                    yield f"I10: {workload} {key} has the deadline {step['deadline']}, not {wanted}"
            end = deadline.get(step["new_generation"])
            late = [each["attempt"] for each in step["attempts"] if end is not None and each["startedAt"] >= end]
            if late:
                yield f"I10: {workload} {key}: attempt {late[0]} began after the deadline"
            early = step["new"] == "expired" and (end is None or step["at"] < end)
            cancelled = facts.entries[workload, key]["note"] == CANCELLED
            if early and not cancelled and not _said_expired(facts, workload, key):
                yield f"I10: {workload} {key} expired before its time"


def once(facts: Facts) -> Findings:
    """I11: what cannot be undone is done at most once in a generation; in doubt, a person is asked, and only then."""
    launches: Counter[tuple[str, str, int]] = Counter()
    runs: Counter[tuple[str, str, int]] = Counter()
    for run in facts.runs:
        identity = (run.workload, run.key, run.generation)
        launches[identity] += run.launched is not None
        runs[identity] += 1
    yield from (f"I11: {identity} was launched {count} times" for identity, count in launches.items() if count > 1)
    for letter in facts.letters:
        identity = (letter["workload"], letter["key"], letter["generation"])
        if letter["reason_code"] == "OUTCOME_UNKNOWN" and not (letter["workload"] == "rockets" and runs[identity]):
            yield f"I11: {identity} is in doubt, and nobody ever ran it"
    for (workload, key), entry in facts.entries.items():
        identity = (workload, key, entry["generation"])
        if workload == "rockets" and entry["status"] == "processed" and launches[identity] != 1:
            yield f"I11: {identity} is processed and was launched {launches[identity]} times"


def _said_expired(facts: Facts, workload: str, key: str) -> bool:
    return any((run.workload, run.key, run.behaviour) == (workload, key, "expired") for run in facts.runs)
