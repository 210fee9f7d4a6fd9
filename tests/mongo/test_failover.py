"""A replica set of three loses its primary: that costs seconds, never data (I3, I13)."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from holdfast.cli.servers import ServerMissing, start_replica_set
from holdfast.contracts.effects import Upsert
from holdfast.contracts.errors import StoreUnavailable
from holdfast.contracts.ledger import Claimed, RecordedAs, Status
from holdfast.contracts.transitions import Complete
from holdfast.features.courier.workload import Courier
from holdfast.stores.mongo import MongoStore
from tests.mongo.steps import DAY, an_event, settlement
from tests.support.valkey_server import absent
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

BATCH = 5
LEASE = timedelta(seconds=2)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    try:
        servers = start_replica_set(tmp_path_factory.mktemp("three"), members=3)
    except ServerMissing as error:
        absent(str(error))
    yield servers
    servers.kill()


class Crew:
    """Writers that record, claim and settle like the engine: when the store is unavailable, they try again."""

    def __init__(self, store) -> None:
        self._store = store
        self.accepted: list[str] = []
        self.settled: Counter[str] = Counter()
        self.away = 0
        self._stop = asyncio.Event()

    async def write(self, name):
        number = 0
        while not self._stop.is_set():
            keys = [f"{name}-{number + offset}" for offset in range(BATCH)]
            number += BATCH
            answers = await self._ask(lambda keys=keys: self._store.record([an_event(key) for key in keys]))
            assert all(answer.recorded_as is not RecordedAs.CONFLICT for answer in answers)
            self.accepted += keys
            await self.work(keys)

    async def work(self, keys):
        """Claim and settle until every job is settled."""
        waiting = [f"id-{key}" for key in keys]
        while waiting:
            claims = await self._ask(
                lambda ids=waiting: self._store.claim("courier", ids, worker="w", lease=LEASE, max_attempts=1000),
            )
            ours = [
                settlement(claim, Complete(DAY, [Upsert("active_shipments", claim.key, {"by": claim.attempt})]))
                for claim in claims
                if isinstance(claim, Claimed)
            ]
            for answer in await self._ask(lambda batch=ours: self._store.settle(batch)):
                self.settled[answer.job_id] += answer.status is Status.PROCESSED
            waiting = [claim.job_id for claim in claims if getattr(claim, "status", None) is not Status.PROCESSED]
            if not ours and waiting:
                await asyncio.sleep(0.05)

    async def _ask(self, question):
        while True:
            try:
                return await question()
            except StoreUnavailable:
                self.away += 1
                await asyncio.sleep(0.05)

    async def more(self, jobs):
        wanted = len(self.accepted) + jobs
        await eventually(lambda: len(self.accepted) >= wanted, within=60)

    def stop(self):
        self._stop.set()


def stepped_down(servers):
    servers.step_down(seconds=2)


def killed(servers):
    primary = servers.wait_for_primary()
    primary.kill()
    servers.wait_for_primary()
    primary.start()


def frozen(servers):
    primary = servers.wait_for_primary()
    primary.pause()
    try:
        while servers_primary(servers, primary) is None:
            pass
    finally:
        primary.resume()


def servers_primary(servers, but):
    """The new primary. The frozen server does not answer."""
    for member in servers.members:
        if member is not but and member.command("hello").get("isWritablePrimary"):
            return member
    return None


async def test_a_lost_primary_costs_seconds_and_never_data(three):
    stores = [MongoStore(three.uri, "failover", [Courier()]) for _ in range(2)]
    for store in stores:
        await store.open()
    crews = [Crew(store) for store in stores]
    writers = [asyncio.create_task(crew.write(f"{n}{m}")) for n, crew in enumerate(crews) for m in range(3)]

    for fault in (stepped_down, killed, frozen):
        await asyncio.gather(*(crew.more(50) for crew in crews))
        await asyncio.to_thread(fault, three)
    await asyncio.gather(*(crew.more(50) for crew in crews))
    for crew in crews:
        crew.stop()
    await asyncio.gather(*writers)

    accepted = [key for crew in crews for key in crew.accepted]
    settled = crews[0].settled + crews[1].settled
    assert await stores[0].counts("courier") == {"processed": len(accepted)}
    assert [job_id for job_id, times in settled.items() if times > 1] == []
    for key in accepted:
        entry = await stores[0].entry("courier", key)
        document = await stores[0].get("active_shipments", key)
        # A confirmed settlement is that of the last attempt; no earlier attempt was applied.
        assert (entry.status, document["by"]) == (Status.PROCESSED, entry.attempt_count), key
    for store in stores:
        await store.disconnect()
