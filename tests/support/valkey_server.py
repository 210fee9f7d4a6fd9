"""A real Valkey for tests, one for each pytest process; and the Redis that ``REDIS_URL`` names, where it is given.

A pytest plugin: ``tests/conftest.py`` names it. Ask for

- ``valkey``: the server that we started. A test may do anything to its data, but not to its process.
- ``redis_server``: that server, and once more the one of ``REDIS_URL``. Never FLUSHALL it: it may not be ours.
- ``redis_place``: a corner of ``redis_server`` for one test: keys under ``place.prefix`` are the test's own, and are
  deleted after it.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from .long_run import LONG_RUN

OWN = "valkey"
GIVEN = "REDIS_URL"
_KEPT = "TEST_REDIS_URL"

# To the program that is tested, REDIS_URL means a cluster. It is for us, and for the pytest processes that we start.
if GIVEN in os.environ:
    os.environ[_KEPT] = os.environ.pop(GIVEN)
os.environ.pop("MONGO_URI", None)

# Both servers run the commands of the queue in tests/bullmq, tests/conformance and half of tests/interop. What uses the
# queue through a whole gateway needs one of them; a long run (HOLDFAST_CHAOS_ROUNDS) has both.
_WHOLE_GATEWAYS = [OWN, *([GIVEN] if LONG_RUN and os.environ.get(_KEPT) else [])]
ON_ONE_SERVER = pytest.mark.parametrize("redis_server", _WHOLE_GATEWAYS, indirect=True)


@dataclass(frozen=True)
class RedisServer:
    """A server to test with. ``ours`` is False for one that a user named."""

    url: str = field(repr=False)
    ours: bool


@dataclass(frozen=True)
class RedisPlace:
    """Where one test keeps its keys: all that contain ``prefix``."""

    url: str = field(repr=False)
    prefix: str
    ours: bool = True


def absent(why: str) -> None:
    """Skip the test that needs what is not here; on CI, where everything must run, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="session")
def valkey(tmp_path_factory):
    """The Valkey of this pytest process."""
    from holdfast.cli.servers import ServerMissing, start_valkey

    try:
        server = start_valkey(tmp_path_factory.mktemp("valkey"))
    except ServerMissing as error:
        absent(str(error))
    yield server
    server.stop()


@pytest.fixture(scope="session", params=[OWN, *([GIVEN] if os.environ.get(_KEPT) else [])])
def redis_server(request) -> RedisServer:
    """Ours, and the one that the user named."""
    if request.param == GIVEN:
        return RedisServer(os.environ[_KEPT], ours=False)
    return RedisServer(request.getfixturevalue("valkey").url, ours=True)


@pytest.fixture
def redis_place(redis_server) -> Iterator[RedisPlace]:
    """A prefix that nobody else uses."""
    place = RedisPlace(redis_server.url, f"hf{uuid.uuid4().hex[:12]}", redis_server.ours)
    yield place
    forget(place)


def forget(place: RedisPlace) -> None:
    """Delete what was written under the prefix."""
    import redis

    with contextlib.closing(redis.Redis.from_url(place.url)) as client:
        for key in client.scan_iter(f"{place.prefix}:*", count=1_000):
            client.unlink(key)
