"""What a worker of ours does with a broker, by hand: a test decides about each delivery."""

from __future__ import annotations

from datetime import timedelta

from holdfast.contracts.ports import Broker
from holdfast.contracts.queues import Acknowledgement, Again, Delivery, Failed, Finished, Handling

LEASE = timedelta(seconds=30)
SOON = timedelta(seconds=10)
"""How long to wait for a job that must come. It is there so that a broken program fails instead of hanging."""
NOW = timedelta(0)


async def take(broker: Broker, queue: str, count: int = 1, *, lease: timedelta = LEASE) -> list[Delivery]:
    """Exactly so many deliveries."""
    taken: list[Delivery] = []
    while len(taken) < count:
        more = await broker.take(queue, count - len(taken), wait=SOON, lease=lease)
        assert more, f"{queue} gave {len(taken)} of {count} jobs"
        taken += more
    return taken


async def take_one(broker: Broker, queue: str, *, lease: timedelta = LEASE) -> Delivery:
    """The next delivery."""
    (delivery,) = await take(broker, queue, lease=lease)
    return delivery


async def take_now(broker: Broker, queue: str, limit: int = 50) -> list[Delivery]:
    """What is ready at this moment."""
    return await broker.take(queue, limit, wait=NOW, lease=LEASE)


async def settle(broker: Broker, delivery: Delivery, handling: Handling) -> None:
    """One delivery, settled."""
    await broker.settle([Acknowledgement(delivery, handling)])


async def finish(broker: Broker, delivery: Delivery, result: str = '{"ok":true}') -> None:
    """Done."""
    await settle(broker, delivery, Finished(result))


async def fail(broker: Broker, delivery: Delivery, reason: str = "boom") -> None:
    """Failed for good."""
    await settle(broker, delivery, Failed(reason))


async def try_again(broker: Broker, delivery: Delivery, after: timedelta = NOW, reason: str | None = "boom") -> None:
    """Failed for now; without a reason, only given back."""
    await settle(broker, delivery, Again(after, reason=reason))
