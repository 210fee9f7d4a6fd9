"""``examples/node-producer``: npm's bullmq adds jobs, and a worker of ours does them in a cluster."""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid

from holdfast import Holdfast, Status
from tests.support.node import FOLDER as NODE
from tests.support.program import ROOT
from tests.support.valkey_server import RedisPlace, forget

EXAMPLE = ROOT / "examples" / "node-producer"


def test_the_example_asks_for_the_bullmq_that_we_test_with():
    wanted, tested = (json.loads((folder / "package.json").read_text()) for folder in (EXAMPLE, NODE))

    assert wanted["dependencies"]["bullmq"] == tested["dependencies"]["bullmq"]


async def test_node_adds_orders_and_reads_their_results(
    node_packages, valkey, mongo, emptied_mongo_database, load, tmp_path, environment
):
    place = RedisPlace(valkey.url, f"hf{uuid.uuid4().hex[:12]}")
    program = load("node-producer", "node_orders")
    shutil.copy(EXAMPLE / "add-orders.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(NODE / "node_modules")
    settings = {
        "redis_url": place.url,
        "queue_prefix": place.prefix,
        "mongo_uri": mongo.uri,
        "mongo_db_name": emptied_mongo_database,
        "upkeep_interval_ms": 50,
    }
    try:
        async with Holdfast(program.app, settings=settings) as hold:
            node = await asyncio.create_subprocess_exec(
                "node",
                "add-orders.mjs",
                "7",
                "8",
                cwd=tmp_path,
                env=environment | {"REDIS_URL": place.url, "QUEUE_PREFIX": place.prefix},
                stdout=asyncio.subprocess.PIPE,
            )
            printed, _ = await asyncio.wait_for(node.communicate(), 120)

            assert node.returncode == 0
            assert [json.loads(line) for line in printed.splitlines()] == [
                {"number": "7", "attempt": 1},
                {"number": "8", "attempt": 1},
            ]
            entries = [each async for each in hold.jobs(program.book_order)]
            assert {each.key: each.status for each in entries} == {"7": Status.PROCESSED, "8": Status.PROCESSED}
    finally:
        forget(place)
