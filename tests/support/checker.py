"""Compares what clients were told with what the store holds, and names everything that must never be.

It checks what ``truth`` says was committed and knows the rules from the contracts alone. An empty list of violations
means: nothing lost, nothing doubled, nothing invented, every move legal (I1-I9, I16).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from holdfast.contracts.dead_letters import ReviewStatus
from holdfast.contracts.ledger import Status
from holdfast.contracts.transitions import REVIEW_STEPS
from holdfast.features.courier.workload import ACTIVE_SHIPMENTS

from .counted_work import EFFECTS, MAX_ATTEMPTS, effect_id, mode_of
from .load import Outcome, Sent
from .truth import Edges, Identity, Truth

_QUEUES: Final = {"courier": ("courier-events-main", "courier-events-dlq"), "counted": ("counted-main", "counted-dlq")}
_TERMINAL: Final = frozenset(status.value for status in Status if status.terminal)
_IN_REVIEW: Final = frozenset({ReviewStatus.PENDING.value, ReviewStatus.REVIEWED.value})


@dataclass(frozen=True, slots=True)
class Witnessed:
    """Everything that the outside world knows about a run."""

    history: Sequence[Sent]
    asked_replays: frozenset[str] = frozenset()
    acknowledged_replays: frozenset[str] = frozenset()
    runs: Sequence[tuple[str, int, int, str]] = ()
    """Handler runs of the counted workload: key, generation, attempt, worker."""
    max_attempts: int = MAX_ATTEMPTS
    taken_downstream: Mapping[str, int] | None = None
    """How often the downstream took each courier event; None where there was no downstream."""


@dataclass(slots=True)
class Report:
    """What was found. ``violations`` is empty when every promise was kept."""

    violations: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)


def check(truth: Truth, witnessed: Witnessed) -> Report:
    """Everything, on a store that has been drained."""
    return _Check(truth, witnessed).report()


class _Check:
    def __init__(self, truth: Truth, witnessed: Witnessed) -> None:
        self._witnessed = witnessed
        self._damage = truth.damage
        self._edges = truth.edges
        self._entries = truth.entries
        self._letters = truth.letters
        self._moves = truth.moves
        self._writes = truth.writes
        self._queued = truth.queued
        self._effects = truth.effects
        self._shipments = truth.shipments

    def report(self) -> Report:
        violations = [] if self._damage is None else [f"the storage is damaged: {self._damage}"]
        for rule in (
            self._acknowledged_means_settled,
            self._nothing_is_invented,
            self._answers_agree,
            self._moves_are_legal,
            self._attempts_add_up,
            self._fates_are_as_meant,
            self._effects_happen_once,
            self._letters_match_failures,
            self._replays_were_asked_for,
            self._queues_mirror_the_store,
            self._shipments_show_the_newest,
            self._downstream_saw_what_was_applied,
        ):
            violations += [f"{rule.__name__.strip('_')}: {each}" for each in rule()]
        return Report(violations, self._figures())

    # --- what clients were told ---------------------------------------------------------------------------

    def _by_key(self) -> dict[Identity, list[Sent]]:
        grouped: dict[Identity, list[Sent]] = defaultdict(list)
        for sent in self._witnessed.history:
            grouped[sent.message.workload, sent.message.key].append(sent)
        return grouped

    def _acknowledged_means_settled(self) -> Iterator[str]:
        """I1. A 202 means one entry, and in the end a terminal one; so does an entry of unknown origin."""
        for identity, sends in self._by_key().items():
            if identity not in self._entries and any(sent.outcome is Outcome.OK for sent in sends):
                yield f"{identity} was acknowledged and is gone"
        for identity, entry in self._entries.items():
            if entry["status"] not in _TERMINAL:
                yield f"{identity} is still {entry['status']}"

    def _nothing_is_invented(self) -> Iterator[str]:
        """No entry without a request that reached a gateway; no effect and no letter without an entry."""
        reached = {identity for identity, sends in self._by_key().items() if any(sent.reached for sent in sends)}
        for identity in self._entries.keys() - reached:
            yield f"{identity} is recorded, and nobody sent it"
        for document in self._effects.values():
            if ("counted", document["key"]) not in self._entries:
                yield f"an effect of {document['key']}, which has no entry"
        for letter in self._letters:
            if (letter["workload"], letter["key"]) not in self._entries:
                yield f"a dead letter of {letter['key']}, which has no entry"

    def _answers_agree(self) -> Iterator[str]:
        """I2. One answer is new, the others are duplicates with the first receipt; conflicts are real conflicts."""
        for identity, sends in self._by_key().items():
            entry = self._entries.get(identity)
            stands = entry and (entry["body"]["payload"] if identity[0] == "courier" else entry["body"])["text"]
            accepted = [sent for sent in sends if sent.outcome is Outcome.OK]
            fresh = [sent for sent in accepted if sent.fresh]
            if len(fresh) > 1:
                yield f"{identity} was new {len(fresh)} times"
            if accepted and not fresh and not any(sent.doubtful for sent in sends):
                yield f"{identity} was never new, and no answer is missing"
            if len({_receipt(sent) for sent in accepted}) > 1:
                yield f"{identity} has several receipts"
            for sent in sends:
                if sent.outcome is Outcome.OK and sent.message.text != stands:
                    yield f"{identity} stands as {stands!r}, and {sent.message.text!r} was accepted"
                if sent.answer is not None and sent.outcome is Outcome.FAILED:
                    yield from _unjust_refusal(identity, sent, stands)

    # --- what the ledger went through ---------------------------------------------------------------------

    def _moves_are_legal(self) -> Iterator[str]:
        """I4 and I7. Every single step is an edge; a claim raises the fence by one and nothing else touches it."""
        ends: Counter[tuple[str, str, int]] = Counter()
        for move in self._moves:
            what = f"{move['key']}: {move['start']} -> {move['end']}"
            if move["end"] is None:
                yield f"{what}: an entry was deleted"
            elif move["start"] is None:
                if (move["end"], move["generation"], move["fence"]) != (Status.RECEIVED, 1, 0):
                    yield f"{what}: an entry did not begin as received"
            else:
                yield from _illegal(move, what, self._edges)
                if move["end"] in _TERMINAL:
                    ends[move["workload"], move["key"], move["generation"]] += 1
        for end, times in ends.items():
            if times > 1:
                yield f"{end} ended {times} times"

    def _attempts_add_up(self) -> Iterator[str]:
        """I5, for the entries and for the history that each dead letter tells."""
        for record in [*self._entries.values(), *self._letters]:
            attempts = record["attempts"]
            numbers = [attempt["attempt"] for attempt in attempts]
            what = f"{record['key']} (generation {record['generation']})"
            if record["attempt_count"] != len(attempts) or numbers != list(range(1, len(attempts) + 1)):
                yield f"{what} counts {record['attempt_count']} attempts and tells of {numbers}"
            if any(attempt["outcome"] == "running" for attempt in attempts):
                yield f"{what} is settled, and an attempt of it is still running"
        for identity, entry in self._entries.items():
            won = [attempt["attempt"] for attempt in entry["attempts"] if attempt["outcome"] == "succeeded"]
            if won != ([entry["attempt_count"]] if entry["status"] == Status.PROCESSED else []):
                yield f"{identity} is {entry['status']}, and the attempts {won} succeeded"

    def _fates_are_as_meant(self) -> Iterator[str]:
        """A job ends as its mode says, unless a dead worker was under it for every one of its attempts."""
        for (workload, key), entry in self._entries.items():
            mode, mended = mode_of(key), entry["generation"] > 1
            fails = mode in {"doomed", "poison"} or (mode == "mended" and not mended)
            meant = Status.DEAD_LETTERED if fails else Status.PROCESSED
            exhausted = (
                entry["last_error_code"] == "WORKER_LOST" and entry["attempt_count"] >= self._witnessed.max_attempts
            )
            if entry["status"] in _TERMINAL and entry["status"] != meant and not exhausted:
                yield f"{workload} {key} is {entry['status']} ({entry['last_error_code']}), meant to be {meant}"

    # --- effects ------------------------------------------------------------------------------------------

    def _effects_happen_once(self) -> Iterator[str]:
        """I3. One write for each processed generation, made by the very attempt that the ledger says succeeded."""
        written = Counter(write["id"] for write in self._writes if write["collection"] == EFFECTS)
        expected = {
            effect_id(key, entry["generation"]): entry
            for (workload, key), entry in self._entries.items()
            if workload == "counted" and entry["status"] == Status.PROCESSED
        }
        for name in sorted(written.keys() | expected.keys() | self._effects.keys()):
            if written[name] != (1 if name in expected else 0):
                yield f"{name} was written {written[name]} times"
        ran = set(self._witnessed.runs)
        for name, entry in expected.items():
            document, last = self._effects.get(name), entry["attempts"][-1] if entry["attempts"] else {}
            winner = (last.get("attempt"), last.get("worker"))
            if document is None or (document["attempt"], document["worker"]) != winner:
                yield f"{name} was not written by the attempt that succeeded: {document}"
            if (entry["key"], entry["generation"], *winner) not in ran:
                yield f"{name} succeeded, and its handler never ran"

    def _shipments_show_the_newest(self) -> Iterator[str]:
        """I16. Each shipment shows its newest processed event, and never showed an older one after a newer one."""
        newest: dict[str, Mapping[str, Any]] = {}
        for (workload, _), entry in self._entries.items():
            if workload == "courier" and entry["status"] == Status.PROCESSED:
                event = entry["body"]
                shipment = event["payload"]["shipmentId"]
                newest[shipment] = max(newest.get(shipment, event), event, key=lambda each: each["occurredAt"])
        for shipment in newest.keys() | self._shipments.keys():
            shown, event = self._shipments.get(shipment), newest.get(shipment)
            if shown is None or event is None or shown["lastEventId"] != event["eventId"]:
                yield f"{shipment} shows {shown and shown['lastEventId']}, the newest is {event and event['eventId']}"
            elif shown["currentState"] != event["payload"]["status"]:
                yield f"{shipment} has the state of another event"
        seen: dict[str, str] = {}
        for write in self._writes:
            if write["collection"] == ACTIVE_SHIPMENTS:
                at = write["document"]["lastEventAt"]
                if at < seen.get(write["id"], ""):
                    yield f"{write['id']} went back in time"
                seen[write["id"]] = at

    def _downstream_saw_what_was_applied(self) -> Iterator[str]:
        """At least once for what is processed, and nothing that was not recorded first."""
        taken = self._witnessed.taken_downstream
        if taken is None:
            return
        for (workload, key), entry in self._entries.items():
            if workload == "courier" and entry["status"] == Status.PROCESSED and not taken.get(key):
                yield f"{key} is processed, and the downstream never took it"
        for key in taken.keys() - {key for workload, key in self._entries if workload == "courier"}:
            yield f"{key} went downstream without an entry"

    # --- dead letters -------------------------------------------------------------------------------------

    def _letters_match_failures(self) -> Iterator[str]:
        """I8. One letter for each time that a job was dead-lettered, with the attempts that the entry had."""
        dead_lettered = Counter(
            (move["workload"], move["key"], move["generation"])
            for move in self._moves
            if move["end"] == Status.DEAD_LETTERED
        )
        told = Counter((letter["workload"], letter["key"], letter["generation"]) for letter in self._letters)
        for identity in sorted(dead_lettered.keys() | told.keys()):
            if (dead_lettered[identity], told[identity]) != (1, 1):
                yield f"{identity} was dead-lettered {dead_lettered[identity]} times and has {told[identity]} letters"
        for letter in self._letters:
            entry = self._entries.get((letter["workload"], letter["key"]))
            if entry and entry["generation"] == letter["generation"] and entry["attempts"] != letter["attempts"]:
                yield f"the letter of {letter['key']} tells of other attempts than its entry"

    def _replays_were_asked_for(self) -> Iterator[str]:
        """I9. Nothing is replayed by itself, nor twice; what was acknowledged stays; each replay is one generation."""
        replays: Counter[Identity] = Counter()
        for letter in self._letters:
            steps = [ReviewStatus.PENDING, *(ReviewStatus(each["step"]) for each in letter["decisions"])]
            if any(end not in REVIEW_STEPS[start] for start, end in pairwise(steps)):
                yield f"{letter['id']} took the steps {steps}"
            if steps[-1] != letter["review_status"]:
                yield f"{letter['id']} is {letter['review_status']} after {steps}"
            if ReviewStatus.REPLAYED in steps:
                replays[letter["workload"], letter["key"]] += 1
                if letter["id"] not in self._witnessed.asked_replays:
                    yield f"{letter['id']} was replayed, and nobody asked for it"
            elif letter["id"] in self._witnessed.acknowledged_replays:
                yield f"the replay of {letter['id']} was acknowledged and is gone"
        for identity, entry in self._entries.items():
            if entry["generation"] != 1 + replays[identity]:
                yield f"{identity} has generation {entry['generation']} after {replays[identity]} replays"

    def _queues_mirror_the_store(self) -> Iterator[str]:
        """I8. Once drained, main queues are empty; dead-letter queues hold all that is pending, nothing dealt with."""
        held: dict[str, set[str]] = defaultdict(set)
        for queue, job_id in self._queued:
            held[queue].add(job_id)
        for workload, (main, dead) in _QUEUES.items():
            letters = {
                letter["id"]: letter["review_status"] for letter in self._letters if letter["workload"] == workload
            }
            dealt_with = {each for each in held[dead] if letters.get(each) not in _IN_REVIEW}
            lacking = {each for each, status in letters.items() if status == ReviewStatus.PENDING} - held[dead]
            if held[main]:
                yield f"{main} still holds {_some(held[main])}"
            if dealt_with:
                yield f"{dead} holds letters that are dealt with: {_some(dealt_with)}"
            if lacking:
                yield f"{dead} lacks {_some(lacking)}"

    # --- figures ------------------------------------------------------------------------------------------

    def _figures(self) -> dict[str, int]:
        history = self._witnessed.history
        outcomes = Counter(sent.outcome for sent in history)
        answers = [sent.answer for sent in history if sent.answer is not None]
        attempts = [attempt for entry in self._entries.values() for attempt in entry["attempts"]]
        return {
            "requests": len(history),
            "acknowledged": outcomes[Outcome.OK],
            "duplicates": sum(each.status == 202 and each.document["duplicate"] for each in answers),
            "conflicts": sum(each.status == 409 for each in answers),
            "unknown": outcomes[Outcome.UNKNOWN],
            "entries": len(self._entries),
            "effects": len(self._effects),
            "dead letters": len(self._letters),
            "replayed": sum(entry["generation"] > 1 for entry in self._entries.values()),
            "lost attempts": sum(attempt["outcome"] == "lost" for attempt in attempts),
            "moves": len(self._moves),
        }


def _receipt(sent: Sent) -> tuple[Any, ...]:
    """What every answer to one key must repeat."""
    document = sent.answer.document if sent.answer else {}
    return tuple(sorted((name, value) for name, value in document.items() if name not in {"duplicate", "queued"}))


def _unjust_refusal(identity: Identity, sent: Sent, stands: str | None) -> Iterator[str]:
    assert sent.answer is not None
    if sent.answer.status == 409:
        if stands in {None, sent.message.text}:
            yield f"{identity} stands as {stands!r}, and {sent.message.text!r} was called a conflict"
    elif sent.answer.status not in {429, 503}:
        yield f"{identity} was answered {sent.answer.status}: {sent.answer.document}"


def _illegal(move: Mapping[str, Any], what: str, edges: Edges) -> Iterator[str]:
    if (move["start"], move["end"]) not in edges:
        yield f"{what}: not a legal move"
    if move["fence"] - move["old_fence"] != (1 if move["end"] == Status.PROCESSING else 0):
        yield f"{what}: the fence went from {move['old_fence']} to {move['fence']}"
    replayed = (move["start"], move["end"]) == (Status.DEAD_LETTERED, Status.RECEIVED)
    if move["generation"] - move["old_generation"] != (1 if replayed else 0):
        yield f"{what}: the generation went from {move['old_generation']} to {move['generation']}"


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
