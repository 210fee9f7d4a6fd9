"""A real mongod for tests, one for each pytest process; a replica set of one member.

A pytest plugin: ``tests/conftest.py`` names it. Ask for

- ``mongo``: the server that we started. A test may do anything to its data, but not to its process.
- ``mongo_database``: the name of a database that nobody else uses; it is dropped after the test.
- ``emptied_mongo_database``: the name of a database whose collections and indexes stay for the next test of the module,
  and whose documents are deleted after each. To make them costs the server more than most tests do: use it where
  nothing is said about how they come to be.
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


@pytest.fixture(scope="module")
def _kept_mongo_database(mongo):
    """The database of one module, open."""
    from pymongo import MongoClient

    with MongoClient(mongo.uri) as client:
        name = f"hf_{uuid.uuid4().hex[:12]}"
        yield client[name]
        client.drop_database(name)


@pytest.fixture
def emptied_mongo_database(_kept_mongo_database) -> Iterator[str]:
    """A database for one test after another."""
    yield _kept_mongo_database.name
    for name in _kept_mongo_database.list_collection_names():
        _kept_mongo_database[name].delete_many({})


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
