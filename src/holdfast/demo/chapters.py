"""The chapters of the tour. Each sends one event and returns its fate: a short text that the tour compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from .clients import CourierNote, Reply
from .downstream import Behaviour
from .server import MAX_ATTEMPTS
from .stage import Stage, Unexpected

ACTOR: Final = "ana"

GOOD: Final = CourierNote("evt_1", "shp_100", "out_for_delivery", minutes_ago=5)
CONFLICTING: Final = CourierNote("evt_1", "shp_100", "returned_to_sender", minutes_ago=5)
LATE: Final = CourierNote("evt_2", "shp_100", "at_the_depot", minutes_ago=90)
FORGED: Final = CourierNote("evt_3", "shp_100", "delivered", minutes_ago=1)
SLOW: Final = CourierNote("evt_4", "shp_200", "delivered", minutes_ago=1)
UNLUCKY: Final = CourierNote("evt_5", "shp_300", "delivered", minutes_ago=1)
INTERRUPTED: Final = CourierNote("evt_6", "shp_400", "delivered", minutes_ago=1)


@dataclass(frozen=True, slots=True)
class Chapter:
    """One chapter: its title, the event's name in the table of fates, the expected fate, and the function to run."""

    title: str
    event: str
    expected: str
    play: Callable[[Stage], str]


# --- intake -------------------------------------------------------------------------------------------------------


def _good(stage: Stage) -> str:
    stage.narrator.say(
        "A courier reports that a parcel is out for delivery. It signs the request with a secret. Only the courier and "
        "Holdfast know the secret."
    )
    reply = stage.accepted(GOOD, "duplicate", "receivedAt")
    stage.narrator.say(
        "202 is a promise: the event is on disk and will not be lost. The work comes after the answer. Holdfast "
        "forwards the event to the next system, the downstream, and updates the shipment."
    )
    entry = stage.settled(GOOD.key)
    stage.shipment(GOOD.shipment_id)
    return f"{reply.status}, {entry['status']}, {forwarded(stage, GOOD)}"


def _duplicate(stage: Stage) -> str:
    stage.narrator.say("Networks fail, and couriers send an event twice. The same event arrives again.")
    reply = stage.accepted(GOOD, "duplicate", "receivedAt")
    first = {**stage.receipts[GOOD.key], "duplicate": True}
    attempts = stage.entry(GOOD.key)["attemptCount"]
    stage.narrator.facts(
        {"attempts for the event": attempts, "requests that the downstream got": stage.downstream.seen(GOOD.key)}
    )
    stage.narrator.say(
        "The courier gets its first receipt again, with the time of the first arrival. Nothing was done a second time."
    )
    receipt = "first receipt" if reply.body == first else "another receipt"
    return f"{reply.status}, {receipt}, {forwarded(stage, GOOD)}"


def _conflict(stage: Stage) -> str:
    stage.narrator.say(
        "Now an event with the same id, but other content: the parcel was returned. Both cannot be true."
    )
    reply = stage.push(CONFLICTING, "errorCode")
    shipment = stage.shipment(GOOD.shipment_id)
    stage.narrator.say("Refused, with an error. A silent choice between the two would hide a mistake of the courier.")
    return f"{reply}, {_unchanged(shipment)}"


def _late(stage: Stage) -> str:
    stage.narrator.say(
        "An older event arrives late: 90 minutes ago, the same parcel was at the depot. The event is genuine, so "
        "Holdfast accepts it."
    )
    reply = stage.accepted(LATE, "duplicate")
    entry = stage.settled(LATE.key)
    stage.narrator.facts({"note in the ledger": entry["note"]})
    shipment = stage.shipment(LATE.shipment_id)
    stage.narrator.say("The late event is recorded, but the shipment keeps the newer state.")
    return f"{reply.status}, {entry['status']}, {entry['note']}, {_unchanged(shipment)}"


def _forged(stage: Stage) -> str:
    stage.narrator.say("Somebody sends an event that the parcel was delivered, but does not know the courier's secret.")
    reply = stage.push(FORGED, "errorCode", secret="a guess of the forger")  # noqa: S106 - the wrong secret is the point
    recorded = stage.clients.event(FORGED.key).status != HTTPStatus.NOT_FOUND
    stage.narrator.say(
        "Refused before the body was parsed. The answer does not show what was wrong with the signature."
    )
    return f"{reply}, {'recorded' if recorded else 'not recorded'}"


# --- when the downstream fails ------------------------------------------------------------------------------------


def _slow(stage: Stage) -> str:
    stage.narrator.say("The downstream hangs: it takes the next event and does not answer. This happens twice.")
    stage.downstream.behave(SLOW.key, [Behaviour.SILENT, Behaviour.SILENT, Behaviour.WORKING])
    stage.accepted(SLOW, "duplicate")
    entry = stage.settled(SLOW.key)
    stage.narrator.say(
        "The courier did not notice. Each failed attempt is recorded, and each wait is longer than the one before."
    )
    return f"{entry['status']} after {_outcomes(entry)}"


def _unlucky(stage: Stage) -> str:
    stage.narrator.say(
        f"The downstream is broken: it answers the next event with 503, every time. After {MAX_ATTEMPTS} attempts "
        "Holdfast stops trying. The event is not lost: it becomes a dead letter, which a person can review."
    )
    stage.downstream.behave(UNLUCKY.key, [Behaviour.BROKEN])
    stage.accepted(UNLUCKY, "duplicate")
    entry = stage.settled(UNLUCKY.key)
    letter = letter_of(stage, UNLUCKY.key)
    stage.narrator.facts(
        {
            "dead letter": letter["id"],
            "reason": f"{letter['terminalReasonCode']}: {letter['terminalReasonMessage']}",
            "attempts": letter["attemptCount"],
            "review": letter["reviewStatus"],
        }
    )
    stage.narrator.command(stage.cli(f"dlq show {letter['id']}"))
    return f"{entry['status']} after {letter['attemptCount']} attempts, {letter['terminalReasonCode']}"


def _replay(stage: Stage) -> str:
    letter_id = letter_of(stage, UNLUCKY.key)["id"]
    stage.narrator.say("Nothing is replayed automatically, and nothing without a review. A replay now is refused:")
    hasty = _decide(stage, letter_id, "replay", "let us hope for the best")
    if hasty.status != HTTPStatus.CONFLICT:
        message = f"a replay without review was answered with {hasty}"
        raise Unexpected(message)
    stage.narrator.say(f"{ACTOR.capitalize()} reads the dead letter and writes down what she found.")
    must_decide(stage, letter_id, "review", "the disk was full")
    stage.downstream.behave(UNLUCKY.key, [Behaviour.WORKING])
    stage.narrator.event("The cause is fixed: the downstream works again.")
    must_decide(stage, letter_id, "replay", "the disk has space")
    stage.narrator.say(
        "The event starts a second generation, with new attempts. The history of the first generation is kept."
    )
    entry = stage.settled(UNLUCKY.key)
    stage.shipment(UNLUCKY.shipment_id)
    must_decide(stage, letter_id, "close", "the shipment is correct")
    letter = stage.clients.letter(letter_id).body
    stage.narrator.facts({each["step"]: f"by {each['actor']}: {each['reason']}" for each in letter["decisions"]})
    return f"{entry['status']} in generation {entry['generation']}, dead letter {letter['reviewStatus']}"


# --- when Holdfast itself fails -----------------------------------------------------------------------------------


def _interrupted(stage: Stage) -> str:
    stage.narrator.say(
        "An event has been accepted, and the downstream is busy with it. At this moment the server is killed: no "
        "warning, no cleanup."
    )
    stage.in_work(INTERRUPTED)
    pid = stage.server.pid
    stage.server.kill()
    stage.narrator.event(f"kill -9 {pid}", alarming=True)
    stage.clients.connect(stage.server.start())
    stage.narrator.event(f"The server is started again: process {stage.server.pid}.")
    stage.narrator.say(
        "The new process finds the event in the ledger. When the lease of the killed process has expired, the new "
        "process takes over."
    )
    return taken_over(stage, INTERRUPTED, by="the new process")


def taken_over(stage: Stage, note: CourierNote, *, by: str) -> str:
    """The fate of an event whose first worker was killed."""
    entry = stage.settled(note.key)
    stage.shipment(note.shipment_id)
    stage.narrator.say(
        "The lost attempt is recorded too. The downstream may get such an event twice, always with the same key, so it "
        "can recognise the duplicate. The shipment was changed once."
    )
    first, last = entry["attemptHistory"][0], entry["attemptHistory"][-1]
    survivor = by if first["worker"] != last["worker"] else "the old process"
    return f"202, {'killed' if first['outcome'] == 'lost' else first['outcome']}, {entry['status']} by {survivor}"


def _count(stage: Stage) -> str:
    stage.narrator.say("Every event that was answered with 202 must be processed, and the downstream must have it.")
    accepted = list(stage.receipts)
    processed = sum(stage.entry(key)["status"] == "processed" for key in accepted)
    taken = {stage.receipts[key]["eventId"]: stage.downstream.taken(key) for key in accepted}
    stage.narrator.facts(
        {
            "accepted": len(accepted),
            "processed": processed,
            "taken by the downstream": ", ".join(f"{event}: {times}" for event, times in taken.items()),
        }
    )
    once = all(times == 1 for times in taken.values())
    return f"{len(accepted)} accepted, {processed} processed, {'each' if once else 'not each'} taken once"


def count_of(accepted: int) -> Chapter:
    """The last chapter of a tour with this number of accepted events."""
    expected = f"{accepted} accepted, {accepted} processed, each taken once"
    return Chapter("The count", "all accepted events", expected, _count)


EVERYWHERE: Final[Sequence[Chapter]] = (
    Chapter("A good event", "a good event", "202, processed, forwarded once", _good),
    Chapter("Its duplicate", "its duplicate", "202, first receipt, forwarded once", _duplicate),
    Chapter(
        "A conflicting duplicate",
        "a conflicting duplicate",
        "409 IDEMPOTENCY_CONFLICT, shipment unchanged",
        _conflict,
    ),
    Chapter(
        "A late event",
        "a late event",
        "202, processed, ignored_stale, shipment unchanged",
        _late,
    ),
    Chapter("A forged signature", "a forged event", "401 INVALID_SIGNATURE, not recorded", _forged),
    Chapter(
        "A downstream that times out twice",
        "a slow downstream",
        "processed after TIMEOUT, TIMEOUT, succeeded",
        _slow,
    ),
    Chapter(
        "A downstream that never works",
        "a broken downstream",
        f"dead_lettered after {MAX_ATTEMPTS} attempts, DOWNSTREAM_HTTP_503_EXHAUSTED",
        _unlucky,
    ),
    Chapter(
        "Reviewed, repaired, replayed, closed",
        "its replay by a person",
        "processed in generation 2, dead letter closed",
        _replay,
    ),
)
"""The chapters of every deployment."""

CHAPTERS: Final[Sequence[Chapter]] = (
    *EVERYWHERE,
    Chapter(
        "The server is killed",
        "kill -9 amid the work",
        "202, killed, processed by the new process",
        _interrupted,
    ),
    count_of(5),
)
"""The tour of the embedded default: one process, one file."""


# --- the parts of fates -------------------------------------------------------------------------------------------


def forwarded(stage: Stage, note: CourierNote) -> str:
    """How often the event was sent to the downstream."""
    times = stage.downstream.seen(note.key)
    return "forwarded once" if times == 1 else f"forwarded {times} times"


def _unchanged(shipment: Mapping[str, Any]) -> str:
    same = (shipment["currentState"], shipment["lastEventId"]) == (GOOD.status, GOOD.event_id)
    return "shipment unchanged" if same else f"shipment is {shipment['currentState']}"


def _outcomes(entry: Mapping[str, Any]) -> str:
    return ", ".join(each["errorCode"] or each["outcome"] for each in entry["attemptHistory"])


# --- dead letters -------------------------------------------------------------------------------------------------


def letter_of(stage: Stage, key: str) -> Mapping[str, Any]:
    """The one dead letter of a job."""
    letters = stage.clients.letters_of(key)
    if len(letters) != 1:
        message = f"{len(letters)} dead letters instead of one"
        raise Unexpected(message)
    return letters[0]


def _decide(stage: Stage, letter_id: str, step: str, reason: str) -> Reply:
    stage.narrator.request(f"POST /v1/dead-letters/{letter_id}/{step}  {ACTOR}: {reason}")
    reply = stage.clients.decide(letter_id, step, actor=ACTOR, reason=reason)
    stage.narrator.reply(reply, "errorCode" if "errorCode" in reply.body else "reviewStatus")
    return reply


def must_decide(stage: Stage, letter_id: str, step: str, reason: str) -> None:
    """Take a step with a dead letter, as the operator. Raises if the step fails."""
    reply = _decide(stage, letter_id, step, reason)
    stage.narrator.command(stage.cli(f"dlq {step} {letter_id} --reason '{reason}'"))
    if reply.status != HTTPStatus.OK:
        message = f"{step} was answered with {reply}"
        raise Unexpected(message)
