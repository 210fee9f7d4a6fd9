"""The checker reads a cluster rightly: a good run breaks no rule, and each lie in MongoDB or Redis is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.features.courier.workload import ACTIVE_SHIPMENTS
from tests.support.cluster_truth import LEDGERS, LETTERS, PREFIX
from tests.support.counted_work import EFFECTS
from tests.support.running_cluster import ClusterGateway, running_cluster

ENTRIES = LEDGERS["counted"]
EVENTS = LEDGERS["courier"]
TASK_LETTERS = LETTERS["counted"]
EVENT_LETTERS = LETTERS["courier"]

Lie = Callable[[ClusterGateway], object]

# In this order, in one run: later lies build on earlier ones, and each adds the rule that it is listed with.
LIES: list[tuple[str, Lie]] = [
    ("queues_mirror_the_store", lambda gateway: gateway.looking.lpush(f"{PREFIX}:counted-main:wait", "ghost")),
    ("queues_mirror_the_store", lambda gateway: gateway.looking.delete(f"{PREFIX}:courier-events-dlq:wait")),
    (
        "shipments_show_the_newest",
        lambda gateway: gateway.database[ACTIVE_SHIPMENTS].update_many({}, {"$set": {"lastEventId": "another"}}),
    ),
    ("effects_happen_once", lambda gateway: gateway.database[EFFECTS].update_many({}, {"$set": {"worker": "another"}})),
    ("effects_happen_once", lambda gateway: gateway.database[EFFECTS].delete_many({})),
    (
        "replays_were_asked_for",
        lambda gateway: gateway.database[EVENT_LETTERS].update_many({}, {"$set": {"reviewStatus": "closed"}}),
    ),
    (
        "letters_match_failures",
        lambda gateway: gateway.database[TASK_LETTERS].update_many({}, {"$inc": {"generation": 5}}),
    ),
    ("attempts_add_up", lambda gateway: gateway.database[ENTRIES].update_many({}, {"$inc": {"attemptCount": 1}})),
    ("moves_are_legal", lambda gateway: gateway.database[ENTRIES].update_many({}, {"$inc": {"fence": 1}})),
    (
        "moves_are_legal",
        lambda gateway: gateway.database[EVENTS].update_many({"status": "processed"}, {"$set": {"status": "received"}}),
    ),
    (
        "fates_are_as_meant",
        lambda gateway: gateway.database[EVENTS].update_many({}, {"$set": {"status": "expired"}}),
    ),
    ("acknowledged_means_settled", lambda gateway: gateway.database[ENTRIES].delete_many({})),
    (
        "nothing_is_invented",
        lambda gateway: gateway.database[EVENTS].update_one({}, {"$set": {"idempotencyKey": "x"}}),
    ),
]


async def test_every_lie_about_a_good_run_is_called_by_its_name(tmp_path, mongo):
    async with running_cluster(tmp_path, 1, mongo) as gateway:
        await gateway.start(("api", "worker"))
        plain, event = gateway.author.task("plain"), gateway.author.event("plain")
        await gateway.load.send(plain, event, gateway.author.task("mended"), gateway.author.event("doomed"))
        await gateway.load.send(plain, gateway.author.contradiction(plain), gateway.author.event("flaky"))
        reviewing = asyncio.create_task(gateway.reviewer.run())
        await gateway.until(lambda: gateway.entries(generation=2, status="processed") == 1, "the replay is processed")
        gateway.reviewer.stop()
        await reviewing
        report = await gateway.ended()
        assert report.violations == []
        assert all(report.figures[name] for name in ("entries", "effects", "dead letters", "replayed", "moves"))

        told: list[str] = []
        for rule, lie in LIES:
            lie(gateway)
            violations = gateway.check().violations
            news = {violation.partition(":")[0] for violation in violations if violation not in told}
            assert rule in news, f"{rule} was not broken by this lie: {violations}"
            told = violations
