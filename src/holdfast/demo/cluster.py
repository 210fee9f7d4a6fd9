"""The cluster of the tour: the ledger in MongoDB, the queue in Valkey, one API and three workers; and its chapters."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import secrets
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Final, TypeVar

from bullmq import Job, Queue

from holdfast.cli.servers import ServerPair
from holdfast.contracts.extras import missing_libraries

from . import Embedded
from .courier import EVENTS, counted, forwarded
from .documents import FOLDER
from .emails import EMAILS
from .stage import Body, Event, Unexpected, chapter, program

SERVERS: Final = "servers"  # the data of Valkey and mongod
CLUSTER_FILE: Final = "cluster.toml"  # the addresses of Valkey and mongod, for commands
MONGO_DATABASE: Final = "holdfast_demo"

IN_WORK: Final = Event("evt_7", "shp_500", "delivered")
WITHOUT_QUEUE: Final = (Event("evt_8", "shp_600", "out_for_delivery", 2), Event("evt_9", "shp_700", "delivered"))
FOREIGN: Final = Event("evt_10", "shp_800", "delivered")
_QUEUE: Final = "courier-events-main"
_JOB_NAME: Final = "courier-event"
_KEY_BYTES: Final = 32

T = TypeVar("T")


@chapter("events without a queue", "202 unqueued, all processed")
def queue_lost(stage: Cluster) -> str:
    """The queue is in Valkey. While a worker is busy with an event, Valkey is lost with all its data."""
    valkey = stage.servers.valkey
    stage.in_work(IN_WORK)
    valkey.kill()
    stage.servers.forget_queue()
    stage.line("!!", f"kill -9 {valkey.pid}, and its files are deleted")
    stage.say("Couriers do not know this, and send more events.")
    queued = sum(stage.accepted(event, "queued").body["queued"] for event in WITHOUT_QUEUE)
    stage.say("""The answer is still 202: the events are in the ledger, in MongoDB. They could not be put into
        the queue, so queued is false.""")
    valkey.start()
    stage.line("**", f"Valkey is back: process {valkey.pid}. It is empty.")
    stage.say("""The workers notice that the queue was reset. They publish every waiting event of the ledger
        again, also the events that were in the old queue.""")
    ends = set()
    for event in (IN_WORK, *WITHOUT_QUEUE):
        ends.add(stage.settled(event)["status"])
        stage.shipment(event)
    return f"202 {'queued' if queued else 'unqueued'}, {'all' if len(ends) == 1 else 'some'} {', '.join(sorted(ends))}"


@chapter("a BullMQ job, added twice", "completed and completed, processed, forwarded once")
def adopted(stage: Cluster) -> str:
    """The queues have BullMQ's format: another program, in Node or elsewhere, may add jobs. Here it adds one twice."""
    data = FOREIGN.document(stage.began) | {"idempotencyKey": FOREIGN.key, "traceId": f"trace_{FOREIGN.event_id}"}
    stage.line("->", f'{_QUEUE}: queue.add("{_JOB_NAME}", {{eventId: "{FOREIGN.event_id}", ...}})  twice')

    async def add(queue: Queue) -> list[str]:
        return [(await queue.add(_JOB_NAME, data)).id for _ in range(2)]

    async def states(queue: Queue) -> list[str]:
        return [await (await Job.fromId(queue, job_id)).getState() for job_id in job_ids]

    job_ids = stage.in_bullmq(_QUEUE, add)
    stage.poll(lambda: stage.ask(stage.operator, FOREIGN.path).status == HTTPStatus.OK, "not in the ledger")
    stage.say("""The first worker that gets such a job validates it, and records it in the ledger first. Then
        it is an event like any other.""")
    entry = stage.settled(FOREIGN)
    stage.shipment(FOREIGN)
    ended = {"completed", "failed"}.issuperset
    found = stage.poll(lambda: stage.in_bullmq(_QUEUE, states), "BullMQ still has work", ended)
    stage.facts({"the states of the two jobs in BullMQ": ", ".join(found)})
    return f"{' and '.join(found)}, {entry['status']}, {forwarded(stage, FOREIGN)}"


class Cluster(Embedded):
    """A Valkey and a mongod in the demo's folder, and the program in several processes."""

    introduction = (
        "This tour starts a real cluster: MongoDB for the ledger, Valkey (compatible with Redis) for the queue, and "
        "the server as one API process and three worker processes."
    )
    parts = (
        EVENTS._replace(
            chapters=(*EVENTS.chapters[:-1], queue_lost, adopted, counted),
            shortened={**EVENTS.shortened, "PUBLISH_GRACE_MS": 1_000},
        ),
        *Embedded.parts[1:],
    )
    up = (*Embedded.up, "--processes", "3")
    ledger = f"MongoDB, in the database {MONGO_DATABASE}"
    servers: ServerPair

    @contextlib.contextmanager
    def surroundings(self) -> Iterator[dict[str, str]]:
        """Run both servers during the body. Raises ``ServerMissing`` if they do not start."""
        self.servers = ServerPair(self.folder / SERVERS)
        settings = {
            "REDIS_URL": self.servers.redis_url,
            "MONGO_URI": self.servers.mongo_uri,
            "MONGO_DB_NAME": MONGO_DATABASE,
            "DOCUMENT_FOLDER": str(self.folder / FOLDER),
        }
        if not missing_libraries(EMAILS.libraries):  # an embedded Holdfast makes its own keys
            key = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
            pepper = secrets.token_urlsafe(_KEY_BYTES)
            settings |= {"EMAIL_PEPPER": pepper, "EMAIL_KEYS": json.dumps({"demo": key})}
        try:
            self.servers.start()
            lines = [f"{name.lower()} = {json.dumps(value)}" for name, value in settings.items()]
            (self.folder / CLUSTER_FILE).touch(mode=0o600)  # it has the keys of the sealed data in the demo's ledger
            content = "\n".join(["# Made by `holdfast demo --cluster`.", *lines, ""])
            (self.folder / CLUSTER_FILE).write_text(content, encoding="utf-8")
            self.line("**", f"MongoDB is up: process {self.servers.mongod.pid}.")
            self.line("**", f"Valkey is up: process {self.servers.valkey.pid}.")
            yield settings
        finally:
            self.servers.stop()

    def kill(self, worker: str) -> None:
        """``kill -9`` for the process of this worker, one of three."""
        (pid,) = (pid for pid in self.server.pids["worker"] if f".{pid}_" in worker)
        os.kill(pid, signal.SIGKILL)
        self.line("!!", f"kill -9 {pid}")
        self.say("""This was one of the three workers. The parent process starts a new one, but the event does not
            depend on that. When the lease of the killed worker has expired, any free worker takes over.""")

    def cli(self, arguments: str) -> str:
        """The addresses are in a file. Variables with a higher priority than the file are emptied."""
        names = "REDIS_URL MONGO_URI MONGO_DB_NAME QUEUE_PREFIX EMAIL_PEPPER EMAIL_KEYS DOCUMENT_FOLDER"
        emptied = "".join(f"{name}= " for name in names.split() if os.environ.get(name))
        return f"{emptied}HOLDFAST_CONFIG={shlex.quote(str(self.data / CLUSTER_FILE))} {program()} {arguments}"

    def queued(self, name: str) -> Sequence[Body]:
        """The waiting jobs of a queue."""

        async def waiting(queue: Queue) -> list[Body]:
            return [job.data for job in await queue.getJobs(["waiting"], asc=True)]

        return self.in_bullmq(name, waiting)

    def in_bullmq(self, name: str, use: Callable[[Queue], Awaitable[T]]) -> T:
        """Use a queue with BullMQ's own library, as any other program with BullMQ would, in Node or elsewhere."""

        async def used() -> T:
            queue = Queue(name, {"connection": self.servers.redis_url})
            try:
                return await use(queue)
            finally:
                await queue.close()

        if not self.servers.valkey.running:
            message = "Valkey is not running"
            raise Unexpected(message)
        return asyncio.run(used())

    def show_ways_to_look(self, commands: Sequence[str]) -> None:
        """The servers have to be started again first."""
        again = f"{shlex.quote(sys.executable)} -m holdfast.cli.servers {shlex.quote(str(self.data / SERVERS))}"
        self.plain("MongoDB and Valkey have stopped. To start them again, in another terminal:")
        self.plain(f"  {again}", "cyan")
        super().show_ways_to_look(commands)
