"""Whether the day kept every promise: the history of the people outside against the store's tables.

Each finding begins with the invariant of DESIGN.md that it breaks.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from holdfast.contracts.dead_letters import ReviewStatus, letter_id
from holdfast.contracts.ledger import RecordVerdict, Status
from holdfast.contracts.lifecycle import EDGES, REVIEW_STEPS
from holdfast.contracts.times import duration_ms, to_ms

from .workloads import BASE, LIFE, MAX_ATTEMPTS, THROTTLE, Order

Findings = Iterator[str]
Identity = tuple[str, str]

_WHO: Final = re.compile(r"(worker\d+)#(\d+)")
_TERMINAL: Final = frozenset(status.value for status in Status if status.terminal)


def check(world: Any) -> list[str]:
    """Everything that is wrong; an empty list is what we want."""
    facts = Facts(world)
    checks = (
        receipts,
        histories,
        attempts_are_remembered,
        moves,
        effects,
        newest_stands,
        letters,
        dead_letter_queue,
        replays,
        deadlines,
        poison,
        reasons,
        waits,
        stops,
        foreign_jobs,
    )
    return [*world.findings, *(finding for each in checks for finding in each(facts))]


class Facts:
    """The tables, read directly, and the history."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.history = world.history
        self.runs = world.runs
        self.connection = world.connection
        self.workloads = {each.name: each for each in world.workloads}
        self.entries: dict[Identity, dict[str, Any]] = {}
        for row in self._rows("SELECT * FROM ledger_entries ORDER BY id"):
            self.entries[row["workload"], row["key"]] = row | {"attempts": json.loads(row["attempts"])}
        self.letters = [
            row | {"attempts": json.loads(row["attempts"]), "decisions": json.loads(row["decisions"])}
            for row in self._rows("SELECT * FROM dead_letters ORDER BY seq")
        ]
        self.moves: dict[Identity, list[dict[str, Any]]] = defaultdict(list)
        for row in self._rows("SELECT * FROM watch_moves ORDER BY seq"):
            self.moves[row["workload"], row["key"]].append(row | {"attempts": json.loads(row["attempts"])})
        self.writes = [row | {"body": json.loads(row["body"])} for row in self._rows("SELECT * FROM watch_writes")]
        self.reviews = self._rows("SELECT * FROM watch_reviews ORDER BY seq")

    def _rows(self, statement: str) -> list[dict[str, Any]]:
        cursor = self.connection.cursor()
        cursor.row_factory = sqlite3.Row
        return [dict(row) for row in cursor.execute(statement)]

    def generations(self) -> Iterator[tuple[tuple[str, str, int], list[dict[str, Any]]]]:
        """Each generation of each job with its attempts: a dead letter's, or the entry's own."""
        told = set()
        for letter in self.letters:
            identity = (letter["workload"], letter["key"], letter["generation"])
            told.add(identity)
            yield identity, letter["attempts"]
        for (workload, key), entry in self.entries.items():
            if (workload, key, entry["generation"]) not in told:
                yield (workload, key, entry["generation"]), entry["attempts"]


def receipts(facts: Facts) -> Findings:
    """I1, I2: what a sender was told holds."""
    news: Counter[Identity] = Counter()
    for request in facts.history.requests:
        receipt, identity = request.receipt, (request.workload, request.order.key)
        if receipt is None:
            continue
        entry = facts.entries.get(identity)
        if entry is None:
            yield f"I1: {identity} was acknowledged and is not in the ledger"
            continue
        same = facts.workloads[request.workload].fingerprint(request.order) == entry["fingerprint"]
        if receipt.verdict is RecordVerdict.CONFLICT:
            if same:
                yield f"I2: {identity} was called a conflict with itself"
            continue
        if not same:
            yield f"I2: {identity} was acknowledged with content that does not stand"
        if (receipt.job_id, to_ms(receipt.received_at)) != (entry["job_id"], entry["first_seen_at"]):
            yield f"I2: {identity} got a receipt that is not the first one's"
        news[identity] += receipt.verdict is RecordVerdict.NEW
    yield from (f"I2: {identity} was new {count} times" for identity, count in news.items() if count > 1)
    for identity, entry in facts.entries.items():
        if entry["status"] not in _TERMINAL:
            yield f"I1: {identity} ended as {entry['status']}"


def histories(facts: Facts) -> Findings:
    """I5, and I4 as far as attempts show it: each failure was recorded on the attempt that it happened in."""
    for kind, records in (("entry", facts.entries.values()), ("letter", facts.letters)):
        for record in records:
            attempts, name = record["attempts"], f"{kind} {record['workload']} {record['key']}"
            numbers = [each["attempt"] for each in attempts]
            if numbers != list(range(1, len(attempts) + 1)) or record["attempt_count"] != len(attempts):
                yield f"I5: {name}: count {record['attempt_count']}, history {numbers}"
            if len(attempts) > MAX_ATTEMPTS:
                yield f"I6: {name} had {len(attempts)} attempts"
            for each in attempts:
                if each["outcome"] == "running" or "finishedAt" not in each:
                    yield f"I5: {name} is settled, and attempt {each['attempt']} is open"
                if each["outcome"] == "succeeded" and (each is not attempts[-1] or record.get("status") != "processed"):
                    yield f"I5: {name}: attempt {each['attempt']} succeeded and the job went on"
                who = _WHO.search(each.get("errorMessage") or "")
                if who and who.groups() != (each["worker"], str(each["attempt"])):
                    yield f"I4: {name}: attempt {each['attempt']} of {each['worker']} was settled by {who[0]}"


def attempts_are_remembered(facts: Facts) -> Findings:
    """I5: a run that its process did not survive is in the history."""
    workers = {identity: {each["worker"] for each in attempts} for identity, attempts in facts.generations()}
    for run in facts.runs:
        identity = (run.workload, run.key, run.generation)
        if not run.ended and run.worker not in workers.get(identity, ()):
            yield f"I5: {identity}: the attempt that died with {run.worker} is forgotten"


def moves(facts: Facts) -> Findings:
    """I7: only legal steps, each from where the one before ended; a claim raises the fence and nothing else does."""
    for identity, steps in facts.moves.items():
        before = None
        for step in steps:
            old, new = step["old"], step["new"]
            if old is None:
                if before is not None or new != "received":
                    yield f"I7: {identity} began as {new}"
            elif (old, new) not in EDGES or before is None or before["new"] != old:
                yield f"I7: {identity} went {old} -> {new}"
            elif step["new_fence"] - step["old_fence"] != (new == "processing"):
                yield f"I4: {identity} {old} -> {new} with fence {step['old_fence']} -> {step['new_fence']}"
            elif (old, new) == ("processing", "processing") and step["lease_until"] > step["at"]:
                yield f"I4: {identity} was taken over before its lease ran out"
            if old is not None and (step["new_generation"] - step["old_generation"]) != (old == "dead_lettered"):
                yield f"I9: {identity} {old} -> {new} changed the generation"
            before = step


def effects(facts: Facts) -> Findings:
    """I3, I4: one write for each generation that was processed, made by the attempt that the ledger calls successful."""
    marks: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for write in facts.writes:
        if write["collection"].endswith("_applied"):
            marks[write["collection"].removesuffix("_applied"), write["key"]].append(write["body"])
    expected: Counter[tuple[str, str]] = Counter()
    for (workload, key), steps in facts.moves.items():
        for step in steps:
            if step["new"] == "expired":
                expected[workload, f"{key}|expired"] += 1
            elif step["new"] == "processed":
                mark = (workload, f"{key}|{step['new_generation']}")
                expected[mark] += 1
                last = step["attempts"][-1]
                for body in marks[mark]:
                    if (body["worker"], body["attempt"]) != (last["worker"], last["attempt"]):
                        yield f"I4: {mark} was written by {body['worker']}, and {last['worker']} is said to have done it"
    for mark in sorted({*expected, *(mark for mark, bodies in marks.items() if bodies)}):
        if len(marks[mark]) != expected[mark]:
            yield f"I3: {mark} was written {len(marks[mark])} times, expected {expected[mark]}"


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
        if entry["status"] != "processed":
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


def letters(facts: Facts) -> Findings:
    """I8: one dead letter for each generation that ended dead, with the attempts that it had."""
    died = {
        (*identity, step["new_generation"]): step["attempts"]
        for identity, steps in facts.moves.items()
        for step in steps
        if step["new"] == "dead_lettered"
    }
    written = Counter((each["workload"], each["key"], each["generation"]) for each in facts.letters)
    for identity in sorted({*died, *written}):
        if (identity in died) != written[identity]:
            yield f"I8: {identity} died {int(identity in died)} times and has {written[identity]} letters"
    for letter in facts.letters:
        identity = (letter["workload"], letter["key"], letter["generation"])
        if letter["id"] != letter_id(*identity) or letter["attempts"] != died.get(identity, letter["attempts"]):
            yield f"I8: the letter of {identity} does not tell what happened"
        if letter["body"] != facts.entries[identity[:2]]["body"]:
            yield f"I8: the letter of {identity} has another body"


def dead_letter_queue(facts: Facts) -> Findings:
    """I8: after healing, the queue shows every pending letter, and none that people have dealt with."""
    statuses = {letter["id"]: letter["review_status"] for letter in facts.letters}
    for workload in facts.workloads.values():
        statement = "SELECT job_id FROM queue_jobs WHERE queue = ?"
        shown = {row[0] for row in facts.connection.execute(statement, (workload.dead_letter_queue,))}
        pending = {
            letter["id"]
            for letter in facts.letters
            if letter["workload"] == workload.name and letter["review_status"] == "pending"
        }
        yield from (f"I8: {missing} is pending and not in the queue" for missing in sorted(pending - shown))
        for extra in sorted(shown - pending):
            if statuses.get(extra) != "reviewed":
                yield f"I8: {extra} is {statuses.get(extra)} and still in the queue"


def replays(facts: Facts) -> Findings:
    """I9: a person asked for every step, each happened once, and whoever was told so did it."""
    asked = {(step.kind, step.letter, step.actor): step for step in facts.history.steps}
    kinds = {"reviewed": "review", "replayed": "replay", "closed": "close"}
    decided = set()
    generations: Counter[Identity] = Counter()
    for letter in facts.letters:
        path = [ReviewStatus.PENDING, *(ReviewStatus(each["step"]) for each in letter["decisions"])]
        if path[-1] != letter["review_status"] or any(end not in REVIEW_STEPS[start] for start, end in pairwise(path)):
            yield f"I9: letter {letter['id']} went {path}"
        for decision in letter["decisions"]:
            step = (kinds[decision["step"]], letter["id"], decision["actor"])
            decided.add(step)
            if step not in asked:
                yield f"I9: nobody asked for {step}"
        if ReviewStatus.REPLAYED in path and letter["replayed_as"] is None:
            generations[letter["workload"], letter["key"]] += 1
        if letter["replayed_as"] is not None:
            new = facts.entries.get((letter["workload"], letter["replayed_as"]))
            if new is None or new["replay_of"] != letter["key"] or ReviewStatus.REPLAYED not in path:
                yield f"I9: letter {letter['id']} was replayed as {letter['replayed_as']}, and that is not so"
    for step, request in asked.items():
        if request.answer is True and step not in decided:
            yield f"I9: {step} was confirmed and did not happen"
        if request.answer is False and step in decided:
            yield f"I9: {step} was refused and happened"
    for identity, entry in facts.entries.items():
        if entry["generation"] != 1 + generations[identity]:
            yield f"I9: {identity} is generation {entry['generation']} after {generations[identity]} replays"
        if entry["replay_of"] is not None:
            origins = [each for each in facts.letters if each["replayed_as"] == entry["key"]]
            if len(origins) != 1:
                yield f"I9: {identity} is the replay of {len(origins)} letters"
    for review in facts.reviews:
        if ReviewStatus(review["new"]) not in REVIEW_STEPS[ReviewStatus(review["old"])]:
            yield f"I9: letter {review['letter']} went {review['old']} -> {review['new']}"


def deadlines(facts: Facts) -> Findings:
    """I10: a generation lives as long as its workload says, and no attempt begins after that."""
    for (workload, key), steps in facts.moves.items():
        lives = facts.workloads[workload].life is not None and not key.startswith(("UNREADABLE", "IDEMPOTENCY"))
        deadline: dict[int, int | None] = {}
        for step in steps:
            if step["new"] == "received" and step["old"] in (None, "dead_lettered"):
                wanted = step["at"] + duration_ms(LIFE) if lives else None
                deadline[step["new_generation"]] = step["deadline"]
                if step["deadline"] != wanted:
                    yield f"I10: {workload} {key} {step['new_generation']} has the deadline {step['deadline']}, not {wanted}"
            end = deadline.get(step["new_generation"])
            late = [each["attempt"] for each in step["attempts"] if end is not None and each["startedAt"] >= end]
            if late:
                yield f"I10: {workload} {key}: attempt {late[0]} began after the deadline"
            if (
                step["new"] == "expired"
                and (end is None or step["at"] < end)
                and not _said_expired(facts, workload, key)
            ):
                yield f"I10: {workload} {key} expired before its time"


def _said_expired(facts: Facts, workload: str, key: str) -> bool:
    return any((run.workload, run.key, run.behaviour) == (workload, key, "expired") for run in facts.runs)


def poison(facts: Facts) -> Findings:
    """I6: a job that kills its worker does so a limited number of times, and then it is buried as that."""
    kills = Counter(
        (run.workload, run.key, run.generation) for run in facts.runs if run.behaviour == "poison" and not run.ended
    )
    yield from (f"I6: {identity} killed {count} workers" for identity, count in kills.items() if count > MAX_ATTEMPTS)
    for letter in facts.letters:
        runs = {run.behaviour for run in facts.runs if _identity(run) == _identity_of(letter)}
        if runs == {"poison"} and letter["reason_code"] != "WORKER_LOST":
            yield f"I6: {_identity_of(letter)} is poison and died of {letter['reason_code']}"
        outcomes = [attempt["outcome"] for attempt in letter["attempts"]]
        if letter["reason_code"] == "WORKER_LOST" and (len(outcomes) != MAX_ATTEMPTS or outcomes[-1] != "lost"):
            yield f"I6: {_identity_of(letter)} is called WORKER_LOST after {outcomes}"


_CAUSES: Final = {
    "NEVER": {"reject"},
    "REFUSED": {"permanent"},
    "EFFECT_REFUSED": {"bad effect", "unwritable"},
    "BAD_OUTCOME": {"malformed"},
    "BAD_OUTCOME_EXHAUSTED": {"none"},
    "NOT_YET_EXHAUSTED": {"retry"},
    "AWAY_EXHAUSTED": {"transient"},
    "THROTTLED_EXHAUSTED": {"throttled"},
    "TIMEOUT_EXHAUSTED": {"hang"},
    "UNCLASSIFIED_EXHAUSTED": {"bug", "cancelled"},
}


def reasons(facts: Facts) -> Findings:
    """A job dies of what it did itself, not of what a neighbour in its batch did."""
    did: dict[tuple[str, str, int], set[str]] = defaultdict(set)
    for run in facts.runs:
        did[_identity(run)].add(run.behaviour)
    for letter in facts.letters:
        code = letter["reason_code"]
        if code in ("WORKER_LOST", "VALIDATION_FAILED", "IDEMPOTENCY_CONFLICT"):
            continue  # these have checks of their own
        if not _CAUSES.get(code, set()) & did[_identity_of(letter)]:
            yield f"reason: {_identity_of(letter)} died of {code} and did {sorted(did[_identity_of(letter)])}"


def _identity(run: Any) -> tuple[str, str, int]:
    return run.workload, run.key, run.generation


def _identity_of(letter: dict[str, Any]) -> tuple[str, str, int]:
    return letter["workload"], letter["key"], letter["generation"]


def waits(facts: Facts) -> Findings:
    """No attempt begins before its time: the sender's delay, the policy's wait, the other side's Retry-After."""
    for identity, attempts in facts.generations():
        for earlier, later in pairwise(attempts):
            if earlier["outcome"] != "failed":
                continue
            wait = duration_ms(BASE) * 2 ** (earlier["attempt"] - 1)
            if earlier["errorCode"] == "THROTTLED":
                wait = max(wait, duration_ms(THROTTLE))
            if later["startedAt"] < earlier["finishedAt"] + wait:
                yield f"retry: {identity} attempt {later['attempt']} began too early"
    foreign = {
        (each.workload, key) for each in facts.history.foreign for key in re.findall(r'"key":"(\w+)"', each.data)
    }
    delays: dict[Identity, int] = {}
    for request in facts.history.requests:
        identity, delay = (request.workload, request.order.key), duration_ms(request.delay)
        delays[identity] = min(delay, delays.get(identity, delay))
    for (workload, key, generation), attempts in facts.generations():
        entry = facts.entries[workload, key]
        delay = 0 if (workload, key) in foreign else delays.get((workload, key), 0)
        if generation == 1 and attempts and attempts[0]["startedAt"] < entry["first_seen_at"] + delay:
            yield f"delay: {workload} {key} began too early"


def stops(facts: Facts) -> Findings:
    """I17: a worker that was not killed, frozen or lied to loses no attempt, stopped or not."""
    sound = {each.name for each in facts.world.servers if each.alive and not each.disturbed}
    for identity, attempts in facts.generations():
        for each in attempts:
            if each["outcome"] == "lost" and each["worker"] in sound:
                yield f"I17: {identity}: {each['worker']} lost attempt {each['attempt']} without a reason"


def foreign_jobs(facts: Facts) -> Findings:
    """A job that came straight through the queue is in the ledger, or a dead letter says why not."""
    last_loss = max(facts.history.queue_losses, default=-1.0)
    for foreign in facts.history.foreign:
        if foreign.at <= last_loss:
            continue
        workload = facts.workloads[foreign.workload]
        try:
            order = Order.model_validate_json(foreign.data)
        except ValueError:
            order = None
        entry = order and facts.entries.get((foreign.workload, order.key))
        if entry and entry["fingerprint"] == workload.fingerprint(order):
            continue
        reason = "IDEMPOTENCY_CONFLICT" if order else "VALIDATION_FAILED"
        told = {letter["reason_code"] for letter in facts.letters if letter["body"] == foreign.data}
        if told != {reason}:
            yield f"I1: the foreign job {foreign.workload} {foreign.job_id} is neither done nor a letter: {told}"
