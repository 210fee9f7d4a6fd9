"""I1, I2, I4, I5, I6, I7, I17: receipts, attempts and moves."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any, Final

from holdfast.contracts.ledger import RecordedAs, Status
from holdfast.contracts.times import duration_ms, to_ms
from holdfast.contracts.transitions import EDGES

from .facts import Facts, Findings, Identity, content_of
from .workloads import BASE, MAX_ATTEMPTS, THROTTLE, Order

_WHO: Final = re.compile(r"(worker\d+)#(\d+)")
_TERMINAL: Final = frozenset(status.value for status in Status if status.terminal)


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
        if receipt.recorded_as is RecordedAs.CONFLICT:
            if same:
                yield f"I2: {identity} was called a conflict with itself"
            continue
        if not same:
            yield f"I2: {identity} was acknowledged with content that does not stand"
        if (receipt.job_id, to_ms(receipt.received_at)) != (entry["job_id"], entry["first_seen_at"]):
            yield f"I2: {identity} got a receipt that is not the first one's"
        news[identity] += receipt.recorded_as is RecordedAs.NEW
    yield from (f"I2: {identity} was new {count} times" for identity, count in news.items() if count > 1)
    for identity, entry in facts.entries.items():
        if entry["status"] not in _TERMINAL:
            yield f"I1: {identity} ended as {entry['status']}"


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
        content = content_of(foreign.data)
        reasons = {letter["reason_code"] for letter in facts.letters if content_of(letter["body"]) == content}
        # The worker that was to dead-letter the job may have been killed three times.
        if not reasons or not reasons <= {reason, "WORKER_LOST"}:
            yield f"I1: the foreign job {foreign.workload} {foreign.job_id} is neither done nor a letter: {reasons}"


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
        if run.ended is None and run.worker not in workers.get(identity, ()):
            yield f"I5: {identity}: the attempt of the killed {run.worker} is missing"


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
    sound = {each.name for each in facts.simulation.servers if each.alive and not each.disturbed}
    for identity, attempts in facts.generations():
        for each in attempts:
            if each["outcome"] == "lost" and each["worker"] in sound:
                yield f"I17: {identity}: {each['worker']} lost attempt {each['attempt']} without a reason"


def poison(facts: Facts) -> Findings:
    """I6: a job that kills its worker does so a limited number of times, and then it is dead-lettered as that."""
    kills = Counter(
        (run.workload, run.key, run.generation) for run in facts.runs if run.behaviour == "poison" and run.ended is None
    )
    yield from (f"I6: {identity} killed {count} workers" for identity, count in kills.items() if count > MAX_ATTEMPTS)
    for letter in facts.letters:
        runs = {run.behaviour for run in facts.runs if _identity(run) == _identity_of(letter)}
        if runs == {"poison"} and letter["reason_code"] not in ("WORKER_LOST", "OUTCOME_UNKNOWN"):
            yield f"I6: {_identity_of(letter)} is poison and failed with {letter['reason_code']}"
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
    """The reason of a dead letter is what the job did itself, not what another job of its batch did."""
    did: dict[tuple[str, str, int], set[str]] = defaultdict(set)
    for run in facts.runs:
        did[_identity(run)].add(run.behaviour)
    for letter in facts.letters:
        code = letter["reason_code"]
        if code in ("WORKER_LOST", "VALIDATION_FAILED", "IDEMPOTENCY_CONFLICT", "OUTCOME_UNKNOWN"):
            continue  # these have checks of their own
        if not _CAUSES.get(code, set()) & did[_identity_of(letter)]:
            yield f"reason: {_identity_of(letter)} has the reason {code} and did {sorted(did[_identity_of(letter)])}"


def _identity(run: Any) -> tuple[str, str, int]:
    return run.workload, run.key, run.generation


def _identity_of(letter: dict[str, Any]) -> tuple[str, str, int]:
    return letter["workload"], letter["key"], letter["generation"]
