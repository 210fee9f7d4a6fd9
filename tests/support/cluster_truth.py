"""The truth of a cluster: what MongoDB holds and went through, and what the queues in Redis still hold.

The history comes from a change stream that is opened when the run is over, from its first moment on. It tells every
majority-committed write in the order of the commits, and needs nobody to listen while servers die.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from bson import Timestamp
from pymongo.database import Database
from redis import Redis

from holdfast.contracts.times import isoformat
from holdfast.contracts.transitions import EDGES, TRANSITIONS
from holdfast.features.courier.workload import ACTIVE_SHIPMENTS

from .counted_work import EFFECTS
from .truth import Edges, Truth

LEDGERS: Final = {"courier": "processed_events", "counted": "counted_jobs"}
LETTERS: Final = {"courier": "dead_letter_events", "counted": "counted_dead_letters"}
MAIN_QUEUES: Final = ("courier-events-main", "counted-main")
DEAD_LETTER_QUEUES: Final = ("courier-events-dlq", "counted-dlq")
PREFIX: Final = "bull"

_DOCUMENTS: Final = {EFFECTS: "effectId", ACTIVE_SHIPMENTS: "shipmentId"}
_END: Final = "witness_end"
# A move of several steps is one update of one document here: the steps between are never seen.
_EDGES: Final[Edges] = EDGES | {(path[0], path[-1]) for paths in TRANSITIONS.values() for path in paths}

Document = dict[str, Any]


def beginning(database: Database[Document]) -> Timestamp:
    """The moment that the history of a run starts at. Ask before the first process does."""
    return database.client.admin.command("ping")["operationTime"]


def read_cluster(database: Database[Document], since: Timestamp, redis: Redis) -> Truth:
    """Everything, on a cluster that has been drained."""
    history = _History(database)
    history.read(since)
    entries = {
        (workload, found["idempotencyKey"]): _entry(workload, found)
        for workload, name in LEDGERS.items()
        for found in database[name].find()
    }
    letters = [
        _letter(workload, found) for workload, name in LETTERS.items() for found in database[name].find().sort("_id")
    ]
    return Truth(
        entries=entries,
        letters=letters,
        moves=history.moves,
        writes=history.writes,
        queued=list(queued(redis)),
        effects={found["effectId"]: found for found in database[EFFECTS].find()},
        shipments={found["shipmentId"]: _shown(found) for found in database[ACTIVE_SHIPMENTS].find()},
        edges=_EDGES,
    )


def queued(redis: Redis) -> Iterator[tuple[str, str]]:
    """Everything that the queues would still hand out: queue and job id."""
    for queue in (*MAIN_QUEUES, *DEAD_LETTER_QUEUES):
        for part in ("wait", "paused", "active"):
            yield from ((queue, each.decode()) for each in redis.lrange(f"{PREFIX}:{queue}:{part}", 0, -1))
        for part in ("delayed", "prioritized"):
            yield from ((queue, each.decode()) for each in redis.zrange(f"{PREFIX}:{queue}:{part}", 0, -1))


def _entry(workload: str, found: Document) -> Document:
    return {
        "workload": workload,
        "key": found["idempotencyKey"],
        "generation": found["generation"],
        "status": found["status"],
        "attempt_count": found["attemptCount"],
        "attempts": found["attemptHistory"],
        "body": json.loads(found["body"]),
        "last_error_code": found.get("lastErrorCode"),
    }


def _letter(workload: str, found: Document) -> Document:
    return {
        "id": found["_id"],
        "workload": workload,
        "key": found["idempotencyKey"],
        "generation": found["generation"],
        "attempt_count": found["attemptCount"],
        "attempts": found["attemptHistory"],
        "review_status": found["reviewStatus"],
        "decisions": found["decisions"],
    }


def _shown(document: Mapping[str, Any]) -> Document:
    """With instants as text, which is how the events carry them."""
    return {name: isoformat(value) if isinstance(value, datetime) else value for name, value in document.items()}


class _History:
    """Every move of an entry and every write of an effect, in the order of the commits."""

    _MOVED: Final = ("status", "generation", "fence")

    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._ledgers = {name: workload for workload, name in LEDGERS.items()}
        self._known: dict[tuple[str, Any], Document] = {}
        self.moves: list[Document] = []
        self.writes: list[Document] = []

    def read(self, since: Timestamp) -> None:
        """The whole history; it raises when the server no longer has all of it."""
        mark = self._database[_END].insert_one({}).inserted_id
        watched = [{"$match": {"ns.coll": {"$in": [*self._ledgers, *_DOCUMENTS, _END]}}}]
        with self._database.watch(watched, start_at_operation_time=since, batch_size=5_000) as stream:
            for change in stream:
                name, identity = change["ns"]["coll"], change.get("documentKey", {}).get("_id")
                if name == _END and identity == mark:
                    return
                if name in self._ledgers:
                    self._move(name, identity, change)
                elif name in _DOCUMENTS:
                    self._write(name, identity, change)

    def _move(self, name: str, identity: Any, change: Document) -> None:
        old, new = self._step(name, identity, change)
        known = new or old or {}
        move = {"workload": self._ledgers[name], "key": known.get("idempotencyKey"), "start": None, "end": None}
        if old is not None:
            move |= {"start": old["status"], "old_generation": old["generation"], "old_fence": old["fence"]}
        if new is not None:
            move |= {"end": new["status"], "generation": new["generation"], "fence": new["fence"]}
        if old is None or new is None or any(old[each] != new[each] for each in self._MOVED):
            self.moves.append(move)

    def _write(self, name: str, identity: Any, change: Document) -> None:
        _, document = self._step(name, identity, change)
        if document is not None:
            self.writes.append({"collection": name, "id": document[_DOCUMENTS[name]], "document": _shown(document)})

    def _step(self, name: str, identity: Any, change: Document) -> tuple[Document | None, Document | None]:
        """The document before and after this change, as far as top-level fields go."""
        place = (name, identity)
        old = self._known.get(place)
        match change["operationType"]:
            case "insert" | "replace":
                new: Document | None = change["fullDocument"]
            case "update":
                told = change["updateDescription"]
                new = {**(old or {}), **told["updatedFields"]}
                for gone in told["removedFields"]:
                    new.pop(gone, None)
            case "delete":
                new = None
            case other:
                message = f"{name} was subject to {other!r}"
                raise AssertionError(message)
        if new is None:
            self._known.pop(place, None)
        else:
            self._known[place] = new
        return old, new
