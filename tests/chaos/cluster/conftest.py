"""Fault tests of the cluster: real processes, a real Valkey, real mongod, and a network that a test can trouble."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.servers import MongoServer, ReplicaSet, ServerMissing, free_port
from tests.support.long_run import LONG_RUN
from tests.support.valkey_server import absent

# A process that dies in a transaction leaves it open, and its documents locked, for a minute. A long run waits for
# that as a default server would; a short one has no minute.
IMPATIENT = () if LONG_RUN else ("--setParameter", "transactionLifetimeLimitSeconds=3")


@pytest.fixture(scope="session")
def one_mongod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """For tests that trouble something else; each has a database of its own."""
    yield from _replica_set(tmp_path_factory.mktemp("one-mongod"), 1)


@pytest.fixture(scope="module")
def three_mongod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """For tests that trouble the primary."""
    yield from _replica_set(tmp_path_factory.mktemp("three-mongod"), 3)


def _replica_set(folder: Path, members: int) -> Iterator[ReplicaSet]:
    try:
        replica_set = ReplicaSet([MongoServer(folder, free_port(), IMPATIENT) for _ in range(members)])
    except ServerMissing as error:
        absent(str(error))
    try:
        replica_set.start()
        yield replica_set
    finally:
        replica_set.kill()
