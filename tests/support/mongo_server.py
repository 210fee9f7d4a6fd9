"""A real mongod for tests, one for each pytest process; a replica set of one member.

A pytest plugin: ``tests/conftest.py`` names it. Ask for

- ``mongo``: the server that we started. A test may do anything to its data, but not to its process.
- ``mongo_database``: the name of a database that nobody else uses; it is dropped after the test.
"""

from __future__ import annotations

import gc
import sys
import uuid
import warnings
from collections.abc import Iterator

import pytest

from .valkey_server import absent


@pytest.fixture(scope="session")
def mongo(tmp_path_factory):
    """The MongoDB of this pytest process."""
    from holdfast.cli.servers import ServerMissing, start_replica_set

    try:
        server = start_replica_set(tmp_path_factory.mktemp("mongo"))
    except ServerMissing as error:
        absent(str(error))
    yield server
    server.kill()  # its data is of no use to anybody


@pytest.fixture
def mongo_database(mongo) -> Iterator[str]:
    """A database for one test."""
    from pymongo import MongoClient

    name = f"hf_{uuid.uuid4().hex[:12]}"
    yield name
    with MongoClient(mongo.uri) as client:
        client.drop_database(name)


def collect_what_the_driver_left() -> None:
    """Close sockets that PyMongo leaves behind when it is cancelled in the middle of connecting.

    Python would do so at any later moment, with a warning, in the middle of some other test.
    """
    if "pymongo" in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture(autouse=True, scope="module")
def _nothing_left_for_the_next_module():
    yield
    collect_what_the_driver_left()
