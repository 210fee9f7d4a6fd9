"""A BullMQ queue as a Node user holds it: every answer comes out of npm's ``bullmq``."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tests.support.node import Node
from tests.support.waiting import eventually

_names = itertools.count(1)


class NodeQueue:
    """``new Queue(name, {prefix})`` in a Node process."""

    def __init__(self, node: Node, url: str, prefix: str, name: str, *, cluster: bool = False) -> None:
        self.node = node
        self.name = name
        self.at = {"url": url, "prefix": prefix, "queue": name, "cluster": cluster}

    def seen_by(self, node: Node) -> NodeQueue:
        """The same queue in another Node process."""
        return NodeQueue(node, self.at["url"], self.at["prefix"], self.name, cluster=self.at["cluster"])

    async def call(self, method: str, *args: Any) -> Any:
        """Any method of Node's ``Queue``."""
        return await self.node("queue", at=self.at, method=method, args=args)

    async def tell(self, job_id: str, method: str, *args: Any) -> Any:
        """Any method of Node's ``Job``."""
        return await self.node("tell", at=self.at, id=job_id, method=method, args=args)

    async def add(self, name: str, data: Any = MappingProxyType({}), **options: Any) -> str:
        """``queue.add``; answers the job's id."""
        return (await self.call("add", name, dict(data) if isinstance(data, Mapping) else data, options))["id"]

    async def add_bulk(self, jobs: Sequence[dict[str, Any]]) -> list[str]:
        """``queue.addBulk``; answers the ids."""
        return [job["id"] for job in await self.call("addBulk", list(jobs))]

    async def job(self, job_id: str) -> dict[str, Any] | None:
        """``job.toJSON()`` and, as ``state``, ``job.getState()``."""
        return await self.node("job", at=self.at, id=job_id)

    async def state(self, job_id: str) -> str:
        """``job.getState()``."""
        job = await self.job(job_id)
        return "unknown" if job is None else job["state"]

    async def counts(self) -> dict[str, int]:
        """``queue.getJobCounts()``."""
        return await self.call("getJobCounts")

    async def waiting_for(self, job_id: str) -> asyncio.Task[dict[str, Any]]:
        """``job.waitUntilFinished``, under way: ``{"resolved": value}`` or ``{"rejected": message}`` in the end."""
        await self.node("listen", at=self.at)
        return asyncio.create_task(self.node("finished", at=self.at, id=job_id, ttl=30_000))

    async def heard(self, job_id: str, last: str) -> list[dict[str, Any]]:
        """What ``QueueEvents`` told of a job from its beginning, once it has told of ``last``."""

        async def told() -> list[dict[str, Any]] | None:
            events = [each for each in await self.node("heard", at=self.at) if each.get("jobId") == job_id]
            return events if any(each["event"] == last for each in events) else None

        return await eventually(told)

    async def has_a_waiting_worker(self) -> list[dict[str, Any]]:
        """Those of ``queue.getWorkers()`` that are blocked at this moment, as Redis's client list tells."""
        return [each for each in await self.call("getWorkers") if "b" in each["flags"]]

    async def work(self, **options: Any) -> NodeWorker:
        """``new Worker(name, ...)``; what it does with a job is in the job's name (``node/worker.mjs``).

        ``result`` is what it returns for a job whose name says nothing.
        """
        worker = NodeWorker(self.node, f"worker {next(_names)}")
        await self.node("work", at=self.at, name=worker.name, options=options)
        return worker


class NodeWorker:
    """A running Node worker."""

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.name = name

    async def runs(self) -> list[dict[str, Any]]:
        """Every job that the processor was called with, as it was then, in order."""
        return await self.node("runs", name=self.name)

    async def has_run(self, count: int) -> list[dict[str, Any]]:
        """The runs, once there are so many."""

        async def enough() -> list[dict[str, Any]] | None:
            runs = await self.runs()
            return runs if len(runs) >= count else None

        return await eventually(enough)

    async def errors(self) -> list[str]:
        """What its ``error`` event told."""
        return await self.node("errors", name=self.name)

    async def release(self) -> None:
        """Let jobs named ``held`` be done."""
        await self.node("release", name=self.name)

    async def check_stalls(self) -> None:
        """Check for stalled jobs now, and from now on, though the worker may do nothing else."""
        await self.node("checkStalls", name=self.name)

    async def rest(self) -> list[dict[str, Any]]:
        """Finish what is under way, stop, and tell of all runs."""
        return await self.node("rest", name=self.name)
