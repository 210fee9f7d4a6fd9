"""The chapters for a cluster only: a killed worker, a lost queue, a job of an external producer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.cli.servers import ServerPair

from . import external_producer
from .chapters import EVERYWHERE, INTERRUPTED, Chapter, count_of, forwarded, taken_over
from .clients import CourierNote
from .stage import Stage, Unexpected

IN_WORK: Final = CourierNote("evt_7", "shp_500", "delivered", minutes_ago=1)
WITHOUT_QUEUE: Final = (
    CourierNote("evt_8", "shp_600", "out_for_delivery", minutes_ago=2),
    CourierNote("evt_9", "shp_700", "delivered", minutes_ago=1),
)
FOREIGN: Final = CourierNote("evt_10", "shp_800", "delivered", minutes_ago=1)


def _worker_killed(stage: Stage) -> str:
    stage.narrator.say(
        "An event has been accepted, and one of the three workers is forwarding it. At this moment that worker is "
        "killed: no warning, no cleanup."
    )
    stage.in_work(INTERRUPTED)
    worker = stage.entry(INTERRUPTED.key)["attemptHistory"][-1]["worker"]
    stage.narrator.event(f"kill -9 {stage.server.kill_worker(worker)}", alarming=True)
    stage.narrator.say(
        "The parent process starts a new worker, but the event does not depend on that. When the lease of the killed "
        "worker has expired, any free worker takes over."
    )
    return taken_over(stage, INTERRUPTED, by="another worker")


def _queue_lost(stage: Stage) -> str:
    servers = _servers(stage)
    stage.narrator.say(
        "The queue is in Valkey, which is compatible with Redis. While a worker is busy with an event, Valkey is lost "
        "with all its data."
    )
    stage.in_work(IN_WORK)
    pid = servers.valkey.pid
    servers.valkey.kill()
    servers.forget_queue()
    stage.narrator.event(f"kill -9 {pid}, and its files are deleted", alarming=True)
    stage.narrator.say("Couriers do not know this, and send more events.")
    replies = [stage.accepted(note, "duplicate", "queued") for note in WITHOUT_QUEUE]
    stage.narrator.say(
        "The answer is still 202: the events are in the ledger, in MongoDB. They could not be put into the queue, so "
        "queued is false."
    )
    servers.valkey.start()
    stage.narrator.event(f"Valkey is back: process {servers.valkey.pid}. It is empty.")
    stage.narrator.say(
        "The workers notice that the queue was reset. They publish every waiting event of the ledger again, also the "
        "events that were in the old queue."
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
        "The queues have BullMQ's format. A program that uses BullMQ, in Node or elsewhere, may put a job straight "
        "into a queue. This program does not know Holdfast, and it adds the job twice."
    )
    data = FOREIGN.job(stage.clients.began)
    call = f'queue.add("{external_producer.JOB_NAME}", {{eventId: "{FOREIGN.event_id}", ...}})'
    stage.narrator.request(f"{external_producer.QUEUE}: {call}  twice")
    job_ids = external_producer.add(servers.redis_url, data, times=2)
    stage.recorded(FOREIGN.key)
    stage.narrator.say(
        "The first worker that gets such a job validates it, and records it in the ledger first. Then it is an event "
        "like any other."
    )
    entry = stage.settled(FOREIGN.key)
    stage.shipment(FOREIGN.shipment_id)
    states: list[str] = []

    def finished() -> bool:
        states[:] = external_producer.states(servers.redis_url, job_ids)
        return set(states) <= {"completed", "failed"}

    stage.wait_for(finished, "BullMQ still has work")
    stage.narrator.facts({"the states of the two jobs in BullMQ": ", ".join(states)})
    return f"{' and '.join(states)}, {entry['status']}, {forwarded(stage, FOREIGN)}"


def _servers(stage: Stage) -> ServerPair:
    if stage.servers is None or not stage.servers.valkey.running:
        message = "Valkey is not running"
        raise Unexpected(message)
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
        "A job from an external producer",
        "a BullMQ job, added twice",
        "completed and completed, processed, forwarded once",
        _adopted,
    ),
    count_of(8),
)
"""The tour of a cluster."""
