"""The chapters on courier events. Each returns a fate: a short text that the tour compares with the expected one."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from .servers import BROKEN, SILENT, WORKING
from .stage import Body, Event, Part, Stage, chapter, times

GOOD: Final = Event("evt_1", "shp_100", "out_for_delivery", minutes_ago=5)
LATE: Final = Event("evt_2", "shp_100", "at_the_depot", minutes_ago=90)
FORGED: Final = Event("evt_3", "shp_100", "delivered")
SLOW: Final = Event("evt_4", "shp_200", "delivered")
UNLUCKY: Final = Event("evt_5", "shp_300", "delivered")
INTERRUPTED: Final = Event("evt_6", "shp_400", "delivered")


@chapter("a good event", "202, processed, forwarded once")
def good(stage: Stage) -> str:
    """A courier reports that a parcel is out for delivery, and signs the request with a secret that both know."""
    reply = stage.accepted(GOOD, "receivedAt")
    stage.say("""202 is a promise: the event is on disk and will not be lost. The work comes after the answer. Holdfast
        forwards the event to the next system, the downstream, and updates the shipment.""")
    entry = stage.settled(GOOD)
    stage.shipment(GOOD)
    return f"{reply}, {entry['status']}, {forwarded(stage, GOOD)}"


@chapter("its duplicate", "202, first receipt, forwarded once")
def duplicate(stage: Stage) -> str:
    """Networks fail, and couriers send an event twice. The same event arrives again."""
    reply = stage.accepted(GOOD, "receivedAt")
    attempts, seen = stage.entry(GOOD)["attemptCount"], stage.downstream.seen[GOOD.key]
    stage.facts({"attempts for the event": attempts, "requests that the downstream got": seen})
    stage.say("The courier gets its first receipt again. Nothing was done a second time.")
    first = reply.body == {**stage.receipts[GOOD], "duplicate": True}
    return f"{reply}, {'first' if first else 'another'} receipt, {forwarded(stage, GOOD)}"


@chapter("a conflicting duplicate", "409 IDEMPOTENCY_CONFLICT, shipment unchanged")
def conflict(stage: Stage) -> str:
    """Now an event with the same id, but other content: the parcel was returned. Both cannot be true."""
    reply = stage.push(GOOD._replace(status="returned_to_sender"))
    shipment = stage.shipment(GOOD)
    stage.say("Refused, with an error. A silent choice would hide a mistake of the courier.")
    return f"{reply}, {_unchanged(shipment)}"


@chapter("a late event", "202, processed, ignored_stale, shipment unchanged")
def late(stage: Stage) -> str:
    """An older event arrives late: 90 minutes ago, the parcel was at the depot. It is genuine, so it is accepted."""
    reply = stage.accepted(LATE)
    entry = stage.settled(LATE)
    stage.facts({"note in the ledger": entry["note"]})
    shipment = stage.shipment(LATE)
    stage.say("The late event is recorded, but the shipment keeps the newer state.")
    return f"{reply}, {entry['status']}, {entry['note']}, {_unchanged(shipment)}"


@chapter("a forged event", "401 INVALID_SIGNATURE, not recorded")
def forged(stage: Stage) -> str:
    """Somebody sends an event that the parcel was delivered, but does not know the courier's secret."""
    reply = stage.push(FORGED, secret="a guess of the forger")  # noqa: S106 - the wrong secret is the point
    recorded = stage.ask(stage.operator, FORGED.path).status != HTTPStatus.NOT_FOUND
    stage.say("Refused before the body was parsed. The answer does not show what was wrong.")
    return f"{reply}, {'recorded' if recorded else 'not recorded'}"


@chapter("a slow downstream", "processed after TIMEOUT, TIMEOUT, succeeded")
def slow(stage: Stage) -> str:
    """The downstream hangs: it takes the next event and does not answer. This happens twice."""
    stage.accepted(SLOW, answers=(SILENT, SILENT, WORKING))
    entry = stage.settled(SLOW)
    stage.say("The courier did not notice. Each attempt is recorded, and each wait is longer.")
    outcomes = ", ".join(each["errorCode"] or each["outcome"] for each in entry["attemptHistory"])
    return f"{entry['status']} after {outcomes}"


@chapter("a broken downstream", "dead_lettered after 5 attempts, DOWNSTREAM_HTTP_503_EXHAUSTED")
def unlucky(stage: Stage) -> str:
    """The downstream is broken: it answers the next event with 503. After 5 attempts Holdfast stops trying."""
    stage.accepted(UNLUCKY, answers=[BROKEN])
    entry = stage.settled(UNLUCKY)
    stage.say("The event is not lost: it is a dead letter, which a person can review.")
    letter = stage.letter_of("courier", show=True)
    return f"{entry['status']} after {letter['attemptCount']} attempts, {letter['terminalReasonCode']}"


@chapter("its replay by a person", "processed in generation 2, dead letter closed")
def replay(stage: Stage) -> str:
    """Nothing is replayed automatically, and nothing without a review. A replay now is refused."""
    letter_id = stage.letter_of("courier")["id"]
    stage.decide(letter_id, "replay", "let us hope for the best", HTTPStatus.CONFLICT)
    stage.say("Ana reads the dead letter and writes down what she found.")
    stage.decide(letter_id, "review", "the disk was full")
    stage.downstream.answers[UNLUCKY.key] = [WORKING]
    stage.line("**", "The cause is fixed: the downstream works again.")
    stage.decide(letter_id, "replay", "the disk has space")
    stage.say("The event starts a second generation, with new attempts. The first one's history is kept.")
    entry = stage.settled(UNLUCKY)
    stage.shipment(UNLUCKY)
    letter = stage.decide(letter_id, "close", "the shipment is correct")
    stage.facts({each["step"]: f"by {each['actor']}: {each['reason']}" for each in letter["decisions"]})
    return f"{entry['status']} in generation {entry['generation']}, dead letter {letter['reviewStatus']}"


@chapter("kill -9 amid the work", "202, killed, processed by another process")
def interrupted(stage: Stage) -> str:
    """The downstream is busy with an accepted event. Now the process that sent it is killed: no warning, no cleanup."""
    stage.in_work(INTERRUPTED)
    stage.kill(stage.entry(INTERRUPTED)["attemptHistory"][-1]["worker"])
    entry = stage.settled(INTERRUPTED)
    stage.shipment(INTERRUPTED)
    stage.say("""The lost attempt is recorded too. The downstream may get such an event twice, always with the same key,
        so it can recognise the duplicate. The shipment was changed once.""")
    first, last = entry["attemptHistory"][0], entry["attemptHistory"][-1]
    survivor = "another process" if first["worker"] != last["worker"] else "the same process"
    return f"202, {'killed' if first['outcome'] == 'lost' else first['outcome']}, {entry['status']} by {survivor}"


@chapter("all accepted events", "all processed, each taken once")
def counted(stage: Stage) -> str:
    """Every event that was answered with 202 must be processed, and the downstream must have it."""
    processed = sum(stage.entry(event)["status"] == "processed" for event in stage.receipts)
    taken = {event.event_id: stage.downstream.taken[event.key] for event in stage.receipts}
    each = ", ".join(f"{event}: {number}" for event, number in taken.items())
    stage.facts({"accepted": len(taken), "processed": processed, "taken by the downstream": each})
    all_or_some = "all" if processed == len(taken) else f"{processed} of {len(taken)}"
    return f"{all_or_some} processed, {'each' if set(taken.values()) == {1} else 'not each'} taken once"


def forwarded(stage: Stage, event: Event) -> str:
    """How often the event was sent to the downstream."""
    return f"forwarded {times(stage.downstream.seen[event.key])}"


def _unchanged(shipment: Body) -> str:
    same = (shipment["currentState"], shipment["lastEventId"]) == (GOOD.status, GOOD.event_id)
    return "shipment unchanged" if same else f"shipment is {shipment['currentState']}"


EVENTS: Final = Part(
    "events",
    (good, duplicate, conflict, late, forged, slow, unlucky, replay, interrupted, counted),
    shortened={
        "RETRY_BACKOFF_BASE_MS": 300,
        "COURIER_DOWNSTREAM_TIMEOUT_MS": 1_000,
        "WORKER_LEASE_SECONDS": 3,
        "UPKEEP_INTERVAL_MS": 250,
    },
    look=("dlq list", "jobs list", f"jobs show {SLOW.key}"),
)
