"""Redis goes away, forgets everything, or remembers an older state: the ledger has it all, and maintenance heals."""

from __future__ import annotations

import asyncio
import shutil
import time

import pytest

from tests.support.cluster_truth import queued
from tests.support.load import Outcome, Sent
from tests.support.long_run import CALM, ENTRIES, LONG_RUN, often, one_by_one
from tests.support.running_cluster import ClusterGateway, running_cluster

AWAY_SECONDS = 20 if LONG_RUN else 2
LOG = "appendonlydir"
"""Where Redis keeps what it would remember after a restart."""

CREWS = (("api", "worker"), ("api", "worker"))


async def stopped(gateway: ClusterGateway) -> None:
    """Redis is away for a while; whoever posts does not notice, but for ``queued``."""
    await asyncio.to_thread(gateway.redis.stop)
    before = len(gateway.load.history)
    await asyncio.sleep(AWAY_SECONDS)  # this long a pause is what is tested
    told = gateway.load.history[before:]
    await asyncio.to_thread(gateway.redis.start)
    assert any(unqueued(sent) for sent in told), "nothing was accepted while Redis was away"
    refused = [sent for sent in told if not (sent.outcome is Outcome.OK or (sent.answer and sent.answer.status == 409))]
    assert not refused, f"Redis was away, and these were not taken: {refused[:5]}"


async def restarted_empty(gateway: ClusterGateway) -> None:
    await asyncio.to_thread(gateway.redis.kill)
    shutil.rmtree(gateway.redis.folder / LOG)
    await asyncio.to_thread(gateway.redis.start)


async def flushed(gateway: ClusterGateway) -> None:
    """Everything is gone in mid-flight, the scripts too, and no connection broke."""
    await asyncio.to_thread(gateway.looking.flushall)
    await asyncio.to_thread(gateway.looking.script_flush)


async def rewound(gateway: ClusterGateway) -> None:
    """After a restart Redis remembers an older state: jobs that were settled since, and none that came since."""
    older = gateway.redis.folder / "older"
    await gateway.until(lambda: bool(letters(gateway)), "the dead-letter queue holds something")
    held = letters(gateway)
    await asyncio.to_thread(shutil.copytree, gateway.redis.folder / LOG, older)
    await gateway.more(2 * CALM)
    # The old state has letters that were dealt with since, and lacks others: both must be mended.
    await gateway.until(lambda: bool(held - letters(gateway)) and bool(letters(gateway) - held), "letters come and go")
    await asyncio.to_thread(gateway.redis.kill)
    shutil.rmtree(gateway.redis.folder / LOG)
    older.rename(gateway.redis.folder / LOG)
    await asyncio.to_thread(gateway.redis.start)


async def paused(gateway: ClusterGateway) -> None:
    """Redis accepts connections and answers nothing."""
    await asyncio.to_thread(gateway.redis.pause)
    await asyncio.sleep(AWAY_SECONDS)  # likewise
    await asyncio.to_thread(gateway.redis.resume)


def letters(gateway: ClusterGateway) -> set[str]:
    """What the operator's dead-letter queue holds."""
    return {job_id for queue, job_id in queued(gateway.looking) if queue == "counted-dlq"}


def unqueued(sent: Sent) -> bool:
    return sent.outcome is Outcome.OK and sent.answer is not None and not sent.answer.document["queued"]


@pytest.mark.parametrize("faults", one_by_one([stopped, restarted_empty, flushed, rewound, paused]))
async def test_whatever_happens_to_redis_nothing_is_lost(tmp_path, seed, tell, rounds, mongo, faults):
    began = time.monotonic()
    faults = often(faults, rounds, every=12 if faults[0] in {stopped, paused} else 5)
    async with running_cluster(tmp_path, seed, mongo) as gateway:
        await gateway.start(*CREWS)
        await gateway.endure(faults, entries=ENTRIES, calm=CALM)
        report = await gateway.ended()
    tell(
        {
            "seed": seed,
            "seconds": round(time.monotonic() - began),
            **report.figures,
            "faults": len(faults),
            "seconds away": AWAY_SECONDS * sum(fault in {stopped, paused} for fault in faults),
            "not queued": sum(map(unqueued, gateway.load.history)),
        }
    )

    assert report.violations == []
    assert report.figures["entries"] >= ENTRIES
    assert report.figures["duplicates"]
