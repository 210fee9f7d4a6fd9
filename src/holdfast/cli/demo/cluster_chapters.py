"""The chapters for a cluster only: a lost worker among others, a lost queue, a job from an external producer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.cli.servers import ServerPair

from . import external_producer
from .chapters import EVERYWHERE, INTERRUPTED, Chapter, count_of, forwarded, taken_over
from .clients import CourierNote
from .stage import Stage, Surprise

IN_WORK: Final = CourierNote("evt_7", "shp_500", "delivered", minutes_ago=1)
WITHOUT_QUEUE: Final = (
    CourierNote("evt_8", "shp_600", "out_for_delivery", minutes_ago=2),
    CourierNote("evt_9", "shp_700", "delivered", minutes_ago=1),
)
FOREIGN: Final = CourierNote("evt_10", "shp_800", "delivered", minutes_ago=1)


def _worker_killed(stage: Stage) -> str:
    stage.narrator.say(
        "The promise in the name. An event has been accepted, and one of the three workers is forwarding it. At this "
        "very moment that worker is killed: no warning, no cleanup."
    )
    stage.in_work(INTERRUPTED)
    worker = stage.entry(INTERRUPTED.key)["attemptHistory"][-1]["worker"]
    stage.narrator.event(f"kill -9 {stage.server.kill_worker(worker)}", alarming=True)
    stage.narrator.say(
        "Its parent starts a new worker in its place, but the event does not depend on that. Once the dead worker's "
        "lease on it has run out, whichever worker is free takes over."
    )
    return taken_over(stage, INTERRUPTED, by="another worker")


def _queue_lost(stage: Stage) -> str:
    servers = _servers(stage)
    stage.narrator.say(
        "The queue is in Valkey, which speaks the language of Redis. While a worker is busy with an event, Valkey is "
        "lost, and everything that it held."
    )
    stage.in_work(IN_WORK)
    pid = servers.valkey.pid
    servers.valkey.kill()
    servers.forget_queue()
    stage.narrator.event(f"kill -9 {pid}, and its files are deleted", alarming=True)
    stage.narrator.say("Couriers know nothing of it, and go on.")
    replies = [stage.accepted(note, "duplicate", "queued") for note in WITHOUT_QUEUE]
    stage.narrator.say(
        "202, all the same: the ledger is in MongoDB, and has them. Only, nobody could be told that there is work: "
        "queued is false."
    )
    servers.valkey.start()
    stage.narrator.event(f"Valkey is back: process {servers.valkey.pid}. It is empty.")
    stage.narrator.say(
        "The workers notice that this is not the queue that they knew, and publish everything that waits in the "
        "ledger, also what the old queue held."
    )
    entries = [stage.settled(note.key) for note in (IN_WORK, *WITHOUT_QUEUE)]
    for note in (IN_WORK, *WITHOUT_QUEUE):
        stage.shipment(note.shipment_id)
    queued = sum(reply.body["queued"] for reply in replies)
    unqueued = "202 unqueued" if not queued else f"{queued} queued"
    ends = {entry["status"] for entry in entries}
    return f"{unqueued}, {'all' if len(ends) == 1 else 'some'} {', '.join(sorted(ends))}"


def _adopted(stage: Stage) -> str:
    servers = _servers(stage)
    stage.narrator.say(
        "The queues are BullMQ's. A program that uses BullMQ, in Node or elsewhere, may put a job straight into one. "
        "This one knows nothing of Holdfast; and, to be on the safe side, it adds the job twice."
    )
    data = FOREIGN.job(stage.clients.began)
    call = f'queue.add("{external_producer.JOB_NAME}", {{eventId: "{FOREIGN.event_id}", ...}})'
    stage.narrator.request(f"{external_producer.QUEUE}: {call}  twice")
    job_ids = external_producer.add(servers.redis_url, data, times=2)
    stage.recorded(FOREIGN.key)
    stage.narrator.say(
        "The first worker that meets such a job checks it, and records it in the ledger before anything else. From "
        "then on it is an event like any other."
    )
    entry = stage.settled(FOREIGN.key)
    stage.shipment(FOREIGN.shipment_id)
    states: list[str] = []

    def finished() -> bool:
        states[:] = external_producer.states(servers.redis_url, job_ids)
        return set(states) <= {"completed", "failed"}

    stage.wait_for(finished, "BullMQ still has work")
    stage.narrator.facts({"what BullMQ says of its two jobs": ", ".join(states)})
    return f"{' and '.join(states)}, {entry['status']}, {forwarded(stage, FOREIGN)}"


def _servers(stage: Stage) -> ServerPair:
    if stage.servers is None or not stage.servers.valkey.running:
        message = "Valkey is not running"
        raise Surprise(message)
    return stage.servers


CLUSTER_CHAPTERS: Final[Sequence[Chapter]] = (
    *EVERYWHERE,
    Chapter(
        "A worker is killed",
        "kill -9 amid the work",
        "202, killed, processed by another worker",
        _worker_killed,
    ),
    Chapter("The queue is lost", "events without a queue", "202 unqueued, all processed", _queue_lost),
    Chapter(
        "A job from a stranger",
        "a BullMQ job, added twice",
        "completed and completed, processed, forwarded once",
        _adopted,
    ),
    count_of(8),
)
"""The tour of a cluster."""
