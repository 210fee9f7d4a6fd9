"""The checker reads a cluster rightly: a good run breaks no rule, and each lie in MongoDB or Redis is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.features.courier.workload import ACTIVE_SHIPMENTS
from tests.support.cluster import ClusterArena, cluster
from tests.support.cluster_truth import LEDGERS, LETTERS, PREFIX
from tests.support.counted_work import EFFECTS

ENTRIES = LEDGERS["counted"]
EVENTS = LEDGERS["courier"]
TASK_LETTERS = LETTERS["counted"]
EVENT_LETTERS = LETTERS["courier"]

Lie = Callable[[ClusterArena], object]

# In this order, in one run: later lies build on earlier ones, and each adds the rule that it is listed with.
LIES: list[tuple[str, Lie]] = [
    ("queues_mirror_the_store", lambda field: field.looking.lpush(f"{PREFIX}:counted-main:wait", "ghost")),
    ("queues_mirror_the_store", lambda field: field.looking.delete(f"{PREFIX}:courier-events-dlq:wait")),
    (
        "shipments_show_the_newest",
        lambda field: field.database[ACTIVE_SHIPMENTS].update_many({}, {"$set": {"lastEventId": "another"}}),
    ),
    ("effects_happen_once", lambda field: field.database[EFFECTS].update_many({}, {"$set": {"worker": "another"}})),
    ("effects_happen_once", lambda field: field.database[EFFECTS].delete_many({})),
    (
        "replays_were_asked_for",
        lambda field: field.database[EVENT_LETTERS].update_many({}, {"$set": {"reviewStatus": "closed"}}),
    ),
    (
        "letters_match_failures",
        lambda field: field.database[TASK_LETTERS].update_many({}, {"$inc": {"generation": 5}}),
    ),
    ("attempts_add_up", lambda field: field.database[ENTRIES].update_many({}, {"$inc": {"attemptCount": 1}})),
    ("moves_are_legal", lambda field: field.database[ENTRIES].update_many({}, {"$inc": {"fence": 1}})),
    (
        "moves_are_legal",
        lambda field: field.database[EVENTS].update_many({"status": "processed"}, {"$set": {"status": "received"}}),
    ),
    (
        "fates_are_as_meant",
        lambda field: field.database[EVENTS].update_many({}, {"$set": {"status": "expired"}}),
    ),
    ("acknowledged_means_settled", lambda field: field.database[ENTRIES].delete_many({})),
    (
        "nothing_is_invented",
        lambda field: field.database[EVENTS].update_one({}, {"$set": {"idempotencyKey": "x"}}),
    ),
]


async def test_every_lie_about_a_good_run_is_called_by_its_name(tmp_path, mongo):
    async with cluster(tmp_path, 1, mongo) as field:
        await field.start(("api", "worker"))
        plain, event = field.author.task("plain"), field.author.event("plain")
        await field.load.send(plain, event, field.author.task("mended"), field.author.event("doomed"))
        await field.load.send(plain, field.author.contradiction(plain), field.author.event("flaky"))
        reviewing = asyncio.create_task(field.reviewer.run())
        await field.until(lambda: field.entries(generation=2, status="processed") == 1, "the replay is processed")
        field.reviewer.stop()
        await reviewing
        report = await field.ended()
        assert report.violations == []
        assert all(report.figures[name] for name in ("entries", "effects", "dead letters", "replayed", "moves"))

        told: list[str] = []
        for rule, lie in LIES:
            lie(field)
            violations = field.check().violations
            news = {violation.partition(":")[0] for violation in violations if violation not in told}
            assert rule in news, f"{rule} was not broken by this lie: {violations}"
            told = violations
