"""Fault tests of the cluster: real processes, a real Valkey, real mongod, and a network that a test can trouble."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.cli.servers import ReplicaSet, ServerMissing, start_replica_set
from tests.support.valkey_server import absent


@pytest.fixture(scope="module")
def three_mongod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """For tests that trouble the primary. Those that trouble something else share ``mongo``, with databases apart."""
    try:
        replica_set = start_replica_set(tmp_path_factory.mktemp("three-mongod"), members=3)
    except ServerMissing as error:
        absent(str(error))
    yield replica_set
    replica_set.kill()
