"""A thousand requests with one key, at once, on two API processes: one entry, one effect (I2)."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.support.load import post
from tests.support.raw_http import Line
from tests.support.running_gateway import running_gateway

REQUESTS = 1000


async def test_a_thousand_posts_of_one_key_make_one_entry_and_one_effect(tmp_path, seed, tell):
    # On a busy machine it takes long to open all lines.
    async with running_gateway(tmp_path, seed, API_HEADER_TIMEOUT_MS="300000") as gateway:
        addresses = [(await gateway.fleet.start("api")).address for _ in range(2)]
        worker = await gateway.fleet.start("worker")
        event = gateway.author.event("plain")
        # All lines are open before the first byte is sent, so that the gateways get the requests together.
        lines = [await Line.open(addresses[number % 2]) for number in range(REQUESTS)]
        gateway.load.history += await asyncio.gather(*(post("", event, line) for line in lines))
        await gateway.drained()
        await worker.terminate()
        report = gateway.check()
        effects = gateway.query("SELECT count(*) FROM witness_effects")[0][0]
    tell(report.figures)

    assert report.violations == []
    answers = [sent.answer for sent in gateway.load.history]
    assert Counter(answer.status for answer in answers) == {202: REQUESTS}
    assert Counter(answer.document["duplicate"] for answer in answers) == {False: 1, True: REQUESTS - 1}
    assert len({answer.document["traceId"] for answer in answers}) == 1
    assert len({answer.document["receivedAt"] for answer in answers}) == 1
    assert (report.figures["entries"], effects, gateway.downstream.deliveries[event.key]) == (1, 1, 1)
