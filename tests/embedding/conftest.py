"""Each test on one SQLite file, and, where it asks for ``place``, in a cluster too."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from tests.embedding.work import QUICK
from tests.support.valkey_server import RedisPlace, forget


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """No settings of this machine, and no holdfast.toml."""
    monkeypatch.chdir(tmp_path)
    for name in [each for each in os.environ if each.startswith(("HOLDFAST_", "REDIS_", "MONGO_", "API_", "OPERATOR"))]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def short_waits():
    """A worker that is told to stop still waits for its last question to the queue; no test needs a whole second."""
    with patch("holdfast.engine.execution._TAKE_WAIT", timedelta(milliseconds=20)):
        yield


@pytest.fixture(params=["embedded", "cluster"])
def place(request, tmp_path) -> Iterator[dict[str, Any]]:
    """The arguments of ``Holdfast`` for this deployment."""
    if request.param == "embedded":
        yield {"data": tmp_path / "data", "settings": QUICK}
        return
    redis = RedisPlace(request.getfixturevalue("valkey").url, f"hf{uuid.uuid4().hex[:12]}")
    mongo = request.getfixturevalue("mongo")
    servers = {
        "redis_url": redis.url,
        "queue_prefix": redis.prefix,
        "mongo_uri": mongo.uri,
        "mongo_db_name": request.getfixturevalue("emptied_mongo_database"),
    }
    yield {"settings": QUICK | servers}
    forget(redis)
