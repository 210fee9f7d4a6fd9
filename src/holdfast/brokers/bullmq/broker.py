"""The broker port on BullMQ's queues."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar

import msgpack

from holdfast.contracts.entries import usable_job_id
from holdfast.contracts.errors import BrokerUnavailable, ConfigurationError
from holdfast.contracts.queues import (
    Acknowledgement,
    Delivery,
    Depth,
    History,
    Permits,
    Presence,
    QueueJob,
    RateLimit,
    WorkedElsewhere,
)
from holdfast.contracts.times import duration_ms

from .keys import ENDED_HERE, PAUSED_BECAUSE, QueueKeys, epoch_key, permits_key, places_key, spans_key
from .link import Argument, Link, LinkLost
from .scripts import load_scripts
from .wire import Keep, ended_from, publish_arguments, settle_arguments, taken_from

Item = TypeVar("Item")

_BATCH: Final = 50
"""Jobs in one script. 50 block Redis for about 2 ms; 200 would block it for 5 to 13 ms."""
_LIGHT_BATCH: Final = 200
"""Jobs in one script that does little for each job."""

_GLANCE: Final = 100
"""Events that ``history`` reads when it has no position yet."""
_PRESENCE: Final = (Presence.ABSENT, Presence.OPEN, Presence.ENDED)

_MICROSECOND: Final = timedelta(microseconds=1)
_KEEP_PLACES: Final = timedelta(hours=1)

_TAKE_KEYS: Final = (
    *("wait", "active", "prioritized", "events", "stalled", "limiter", "delayed", "paused", "meta", "pc", "marker"),
)
_SETTLE_KEYS: Final = (*_TAKE_KEYS, "completed", "failed", "metrics:completed", "metrics:failed")
_PUBLISH_KEYS: Final = (
    *("wait", "paused", "meta", "id", "completed", "delayed", "active", "events", "marker", "prioritized", "pc"),
    *("failed", "repeat"),
)
_RECOVER_KEYS: Final = (
    *("stalled", "wait", "active", "stalled-check", "meta", "paused", "marker", "events", "repeat"),
)
_DEPTH_KEYS: Final = ("wait", "paused", "prioritized", "delayed", "active", "meta")


class _Pause(NamedTuple):
    """Why there is no job, in seconds: how long the rate limit lasts, and when the next delay ends. 0 means: not so."""

    limited: float = 0
    delayed: float = 0


class BullmqBroker:
    """Queues in Redis; implements :class:`holdfast.contracts.ports.Broker`.

    Finished jobs stay, up to ``keep_completed`` and ``keep_failed`` in each queue, for people and dashboards.
    ``keep_completed_in`` has the queues with another number.
    ``worker_name`` is what BullMQ's clients show as ``processedBy``.
    """

    def __init__(  # noqa: PLR0913 - what an operator sets, by name
        self,
        url: str,
        *,
        prefix: str = "bull",
        keep_completed: int = 1_000,
        keep_failed: int = 10_000,
        keep_completed_in: Mapping[str, int] | None = None,
        worker_name: str | None = None,
    ) -> None:
        self._link = Link(url, prefix)
        self._prefix = prefix
        self._keep = Keep(keep_completed, keep_failed)
        self._keep_in = {queue: Keep(number, keep_failed) for queue, number in (keep_completed_in or {}).items()}
        self._worker_name = worker_name
        self._scripts = load_scripts()
        self._queues: dict[str, QueueKeys] = {}
        self._waiting: dict[str, asyncio.Lock] = {}
        self._unanswered: dict[str, dict[str, float]] = {}
        self._tokens = (f"{uuid.uuid4().hex}:{number}" for number in itertools.count(1))

    async def open(self) -> None:
        """Connect to the server, if it is reachable. An unreachable server is no error here."""
        await self._link.open()

    async def close(self) -> None:
        """Close the connections."""
        await self._link.close()

    # --- publishing ---------------------------------------------------------------------------------------

    async def publish(self, queue: str, jobs: Sequence[QueueJob]) -> None:
        """See :meth:`holdfast.contracts.ports.Broker.publish`."""
        for job in jobs:
            if not usable_job_id(job.job_id):
                message = f"{job.job_id!r} cannot be a job id in BullMQ."
                raise ConfigurationError(message)
        keys = self._keys(queue)
        for batch in _batches(jobs, _BATCH):
            arguments: list[Argument] = [keys.base]
            for job in batch:
                arguments += publish_arguments(job)
            await self._link.run(self._scripts.publish, keys.named(*_PUBLISH_KEYS), arguments)

    # --- taking -------------------------------------------------------------------------------------------

    async def take(
        self,
        queue: str,
        limit: int,
        *,
        wait: timedelta,
        lease: timedelta,
        rate: RateLimit | None = None,
    ) -> list[Delivery]:
        """See :meth:`holdfast.contracts.ports.Broker.take`."""
        end = time.monotonic() + wait.total_seconds()
        while True:
            try:
                deliveries, after = await self._take_ready(queue, limit, lease, rate)
            except LinkLost:  # the second call finds the jobs again that the first call took
                deliveries, after = await self._take_ready(queue, limit, lease, rate)
            left = end - time.monotonic()
            if deliveries or left <= 0:
                return deliveries
            await self._wait(queue, left, after)

    async def _take_ready(
        self,
        queue: str,
        limit: int,
        lease: timedelta,
        rate: RateLimit | None,
    ) -> tuple[list[Delivery], _Pause]:
        deliveries = await self._readopt(queue, lease) if self._unanswered.get(queue) else []
        pause = _Pause()
        while len(deliveries) < limit:
            size = min(_BATCH, limit - len(deliveries))
            try:
                batch, pause = await self._take_batch(queue, size, lease, rate)
            except BrokerUnavailable:
                if deliveries:  # these jobs are ours; the next take raises the error
                    break
                raise
            deliveries += batch
            if len(batch) < size:
                break
        return deliveries, pause

    async def _take_batch(
        self,
        queue: str,
        size: int,
        lease: timedelta,
        rate: RateLimit | None,
    ) -> tuple[list[Delivery], _Pause]:
        keys, token = self._keys(queue), next(self._tokens)
        options: dict[str, Any] = {"token": token, "lockDuration": duration_ms(lease)}
        if rate is not None:
            options["limiter"] = {"max": rate.most, "duration": duration_ms(rate.per)}
        if self._worker_name is not None:
            options["name"] = self._worker_name
        arguments = (keys.base, msgpack.packb(options), size, PAUSED_BECAUSE)
        with self._remember_if_lost(queue, token, lease):
            taken, limited, delayed = await self._link.run_once(self._scripts.take, keys.named(*_TAKE_KEYS), arguments)
        return [taken_from(queue, token, job) for job in taken], _Pause(limited / 1000, delayed / 1000)

    async def _readopt(self, queue: str, lease: timedelta) -> list[Delivery]:
        """Find the jobs of takes whose reply was lost. They are locked for us, so no other worker can take them.

        A lost request may also arrive late. So its token is looked for until its lock would have expired.
        """
        now = time.monotonic()
        lost = {token: until for token, until in self._unanswered[queue].items() if until > now}
        self._unanswered[queue] = lost
        if not lost:
            return []
        keys, token = self._keys(queue), next(self._tokens)
        arguments: list[Argument] = [keys.base, token, duration_ms(lease), *lost]
        with self._remember_if_lost(queue, token, lease):
            found = await self._link.run_once(self._scripts.readopt, keys.named("active"), arguments)
        return [taken_from(queue, token, job) for job in found]

    @contextlib.contextmanager
    def _remember_if_lost(self, queue: str, token: str, lease: timedelta) -> Iterator[None]:
        """Remember the token when no reply comes, for any reason."""
        try:
            yield
        except BaseException:
            self._unanswered.setdefault(queue, {})[token] = time.monotonic() + lease.total_seconds()
            raise

    async def _wait(self, queue: str, left: float, pause: _Pause) -> None:
        """Wait for the marker, the end of the rate limit, or the next delayed job."""
        if pause.limited:
            await asyncio.sleep(min(left, pause.limited))
            return
        keys = self._keys(queue)
        seconds = min(left, pause.delayed) if pause.delayed else left
        # Only one connection of this process waits for each queue. A second taker waits for this lock.
        waiting = self._waiting.setdefault(queue, asyncio.Lock())
        started = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                await waiting.acquire()
        except TimeoutError:
            return
        try:
            seconds -= time.monotonic() - started
            if seconds > 0:
                await self._link.wait_for(("BZPOPMIN", keys["marker"]), seconds, keys.client_name)
        finally:
            waiting.release()

    # --- settling -----------------------------------------------------------------------------------------

    async def settle(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """See :meth:`holdfast.contracts.ports.Broker.settle`."""
        for queue, each_queue in _by_queue(acknowledgements, lambda each: each.delivery.queue):
            keys, keep = self._keys(queue), self._keep_in.get(queue, self._keep)
            for batch in _batches(each_queue, _BATCH):
                arguments: list[Argument] = [keys.base, ENDED_HERE]
                for each in batch:
                    arguments += settle_arguments(each, keep)
                names = [*keys.named(*_SETTLE_KEYS), spans_key(self._prefix, queue)]
                # Safe to repeat: the first run released the lock, so the second run changes nothing.
                await self._link.run(self._scripts.settle, names, arguments)

    async def renew(self, deliveries: Sequence[Delivery], lease: timedelta) -> list[Delivery]:
        """See :meth:`holdfast.contracts.ports.Broker.renew`."""
        lost: set[int] = set()
        for queue, numbered in _by_queue(list(enumerate(deliveries)), lambda each: each[1].queue):
            keys = self._keys(queue)
            for batch in _batches(numbered, _LIGHT_BATCH):
                arguments: list[Argument] = [keys.base, duration_ms(lease)]
                for _, each in batch:
                    arguments += (each.job_id, each.token)
                failed = await self._link.run(self._scripts.renew, keys.named("stalled"), arguments)
                lost |= {batch[position][0] for position in failed}
        return [each for position, each in enumerate(deliveries) if position in lost]

    async def recover(self, queue: str) -> int:
        """See :meth:`holdfast.contracts.ports.Broker.recover`."""
        keys = self._keys(queue)
        return int(await self._link.run(self._scripts.recover, keys.named(*_RECOVER_KEYS), [keys.base]))

    async def remove(self, queue: str, job_ids: Sequence[str]) -> None:
        """See :meth:`holdfast.contracts.ports.Broker.remove`."""
        keys = self._keys(queue)
        for batch in _batches(job_ids, _BATCH):
            await self._link.run(self._scripts.remove, keys.named("repeat"), [keys.base, *batch])

    # --- looking ------------------------------------------------------------------------------------------

    async def look_up(self, queue: str, job_ids: Sequence[str]) -> list[Presence | WorkedElsewhere]:
        """See :meth:`holdfast.contracts.ports.Broker.look_up`."""
        keys = self._keys(queue)
        found: list[Presence | WorkedElsewhere] = []
        for batch in _batches(job_ids, _LIGHT_BATCH):
            arguments: list[Argument] = [keys.base, ENDED_HERE, *batch]
            answers = await self._link.run(self._scripts.look_up, keys.named("completed", "failed"), arguments)
            found += [
                _PRESENCE[each] if isinstance(each, int) else ended_from(each) or Presence.ENDED for each in answers
            ]
        return found

    async def history(self, queue: str, after: str | None = None) -> History:
        """See :meth:`holdfast.contracts.ports.Broker.history`."""
        names = [self._keys(queue)["events"], spans_key(self._prefix, queue)]
        arguments: list[Argument] = [after or "", _GLANCE if after is None else _LIGHT_BATCH]
        ended, position, more = await self._link.run(self._scripts.history, names, arguments)
        found = (ended_from(each) for each in ended)
        return History(tuple(each for each in found if each is not None), position.decode(), bool(more))

    # --- steering -----------------------------------------------------------------------------------------

    async def depth(self, queue: str, *, most: int | None = None) -> Depth:
        """See :meth:`holdfast.contracts.ports.Broker.depth`. Redis knows the sizes of its sets, without counting."""
        del most
        keys = self._keys(queue)
        answer = await self._link.run(self._scripts.depth, keys.named(*_DEPTH_KEYS), [PAUSED_BECAUSE])
        ready, delayed, active, paused, why = answer
        return Depth(ready, delayed, active, paused == 1, None if why is None else why.decode(errors="replace"))

    async def pause(self, queue: str, *, reason: str | None = None) -> None:
        """See :meth:`holdfast.contracts.ports.Broker.pause`."""
        await self._pause(queue, "wait", "paused", "paused", reason or "")

    async def resume(self, queue: str) -> None:
        """See :meth:`holdfast.contracts.ports.Broker.resume`."""
        while await self._pause(queue, "paused", "wait", "resumed"):
            pass  # the list of paused jobs of an older BullMQ is moved in portions

    async def _pause(self, queue: str, source: str, target: str, event: str, reason: str = "") -> int:
        keys = self._keys(queue).named(source, target, "meta", "prioritized", "events", "delayed", "marker")
        return int(await self._link.run(self._scripts.pause, keys, [event, PAUSED_BECAUSE, reason]))

    # --- sharing ------------------------------------------------------------------------------------------

    async def acquire(self, name: str, rate: RateLimit, wanted: int, *, hold: timedelta) -> Permits:
        """See :meth:`holdfast.contracts.ports.Broker.acquire`."""
        # The names are made here, so that a repeated request after a lost reply gives the same permits, not more.
        names = [next(self._tokens) for _ in range(min(wanted, rate.most, _LIGHT_BATCH))]
        arguments: list[Argument] = [rate.most, rate.per // _MICROSECOND, hold // _MICROSECOND, *names]
        given, wait = await self._link.run(self._scripts.acquire, [permits_key(self._prefix, name)], arguments)
        return Permits(tuple(each.decode() for each in given), wait * _MICROSECOND)

    async def release(self, name: str, rate: RateLimit, permits: Sequence[str]) -> None:
        """See :meth:`holdfast.contracts.ports.Broker.release`."""
        for batch in _batches(permits, _LIGHT_BATCH):
            arguments: list[Argument] = [rate.per // _MICROSECOND, *batch]
            await self._link.run(self._scripts.release, [permits_key(self._prefix, name)], arguments)

    async def reserve(self, name: str, rate: RateLimit, job_ids: Sequence[str]) -> list[timedelta]:
        """See :meth:`holdfast.contracts.ports.Broker.reserve`."""
        waits: list[int] = []
        for batch in _batches(job_ids, _LIGHT_BATCH):
            arguments: list[Argument] = [rate.distance // _MICROSECOND, _KEEP_PLACES // _MICROSECOND, *batch]
            # Repeated after a lost reply, a job whose time had come gets another place: late, but never early.
            waits += await self._link.run(self._scripts.reserve, [places_key(self._prefix, name)], arguments)
        return [wait * _MICROSECOND for wait in waits]

    # --- the server ---------------------------------------------------------------------------------------

    async def epoch(self) -> str:
        """See :meth:`holdfast.contracts.ports.Broker.epoch`."""
        keys = [epoch_key(self._prefix)]
        epoch = await self._link.run(self._scripts.epoch, keys, [uuid.uuid4().hex])
        return str(epoch.decode())

    async def ping(self) -> None:
        """See :meth:`holdfast.contracts.ports.Broker.ping`."""
        await self._link.call("PING")

    async def facts(self) -> Mapping[str, str]:
        """Facts about the server, for ``holdfast doctor``."""
        info = await self._link.info()
        wanted = (
            *("redis_version", "valkey_version", "role", "server_time_usec"),
            *("maxmemory_policy", "aof_enabled", "cluster_enabled"),
        )
        return {name: str(info[name]) for name in wanted if name in info}

    def _keys(self, queue: str) -> QueueKeys:
        keys = self._queues.get(queue)
        if keys is None:
            keys = self._queues[queue] = QueueKeys(self._prefix, queue)
        return keys


def _batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _by_queue(items: Sequence[Item], queue_of: Any) -> Iterator[tuple[str, list[Item]]]:  # noqa: ANN401 - a function
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(queue_of(item), []).append(item)
    yield from groups.items()
