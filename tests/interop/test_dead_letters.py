"""A Node consumer of the dead-letter queue gets what the specification promises, whatever job failed."""

from __future__ import annotations

import json

import pytest

from holdfast.cli.servers import free_port
from tests.interop.courier import DEAD, MAIN, a_request, an_event, post
from tests.interop.specified_schemas import DEAD_LETTER_PAYLOAD
from tests.support.courier_documents import without
from tests.support.valkey_server import ON_ONE_SERVER
from tests.support.waiting import eventually

pytestmark = ON_ONE_SERVER


@pytest.fixture
def main(open_queue):
    return open_queue(MAIN)


@pytest.fixture
def dead(open_queue):
    return open_queue(DEAD)


async def test_node_reads_dead_letters_as_the_specification_says(main, dead, gateway, downstream, node):
    """Permanent failures and broken contracts of every kind."""
    broken = [
        without(an_event("a"), "traceId", "eventId"),
        an_event("b") | {"payload": ["not", "an", "object"]},
        {"anything": {"nested": True}},
        "just text",
        None,
        17,
        [1, 2],
    ]
    async with gateway.running():
        await post(gateway, a_request("doomed-1"))
        for document in broken:
            await main.add("courier.event", document)
        await eventually(lambda: _holds(dead, 1 + len(broken)))
    consumer = await dead.work()
    runs = await consumer.has_run(1 + len(broken))

    documents = [each["data"] for each in runs]
    assert await node("complaints", schema=DEAD_LETTER_PAYLOAD, documents=documents) == [[] for _ in documents]
    _count_their_attempts(documents)
    (doomed,) = [each for each in documents if each["eventId"] == "doomed-1"]
    assert doomed["idempotencyKey"] == "courier-x:doomed-1"
    assert doomed["payloadSnapshot"] == {
        "shipmentId": "shp_doomed-1",
        "orderId": "ord_789",
        "status": "out_for_delivery",
    }
    assert sorted(each["terminalReasonCode"] for each in documents if each is not doomed) == ["VALIDATION_FAILED"] * 7
    # To take a letter from the queue is not to deal with it: people do that, in the store.
    assert len(await gateway.letters()) == 1 + len(broken)


async def test_node_reads_how_often_an_exhausted_event_was_tried(main, dead, open_gateway_with, node):
    nobody = f"http://127.0.0.1:{free_port()}/"
    gateway = await open_gateway_with(courier_downstream_url=nobody, courier_downstream_secret="downstream secret 0123")
    async with gateway.running():
        receipt = await post(gateway, a_request("evt_123"))
        await eventually(lambda: _holds(dead, 1))

    (job,) = await dead.call("getWaiting")

    letter = job["data"]
    assert await node("complaints", schema=DEAD_LETTER_PAYLOAD, documents=[letter]) == [[]]
    assert (letter["eventId"], letter["traceId"]) == ("evt_123", receipt["traceId"])
    assert letter["attemptCount"] == 3
    assert [each["attempt"] for each in letter["attemptHistory"]] == [1, 2, 3]
    assert {each["outcome"] for each in letter["attemptHistory"]} == {"failed"}
    assert letter["terminalReasonCode"].endswith("_EXHAUSTED")
    _count_their_attempts([letter])
    (stored,) = await gateway.letters()
    assert json.loads(stored.body)["attempt"] == 3
    assert (await main.job("courier-x.evt_123"))["data"]["attempt"] == 3


def _count_their_attempts(letters):
    """Rule C59: what a JSON Schema cannot say."""
    for letter in letters:
        numbers = [each["attempt"] for each in letter["attemptHistory"]]
        assert letter["attemptCount"] == len(numbers) == max(numbers, default=0)


async def _holds(queue, count) -> bool:
    return (await queue.counts())["waiting"] == count
