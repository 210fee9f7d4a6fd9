"""Heartbeats of the processes, so that the open transaction of a killed process is ended soon.

A transaction whose client was killed holds its documents until the server's time limit (a minute by default). Until
then nobody can claim its jobs or write its documents. So every process stores the sessions of its transactions, with a
heartbeat. When the heartbeats of a process stop, another process ends its sessions. If that process was only frozen,
its transaction fails and is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import secrets
from datetime import timedelta
from typing import Any, Final

import pymongo
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

PROCESSES: Final = "holdfast_processes"

_BEAT: Final = timedelta(seconds=2)
_SILENCE: Final = timedelta(seconds=6)
_SECONDS: Final = 2.0
# Not durable: a heartbeat that is lost with a primary is written again with the next heartbeat.
_FAST: Final = WriteConcern(1)


class Presence:
    """The heartbeat of this process, and the check of the others' heartbeats."""

    def __init__(self, database: AsyncDatabase[dict[str, Any]]) -> None:
        self._admin = database.client.admin
        self._processes = database.get_collection(PROCESSES, write_concern=_FAST)
        self._name = secrets.token_hex(12)
        self._sessions: dict[bytes, dict[str, Any]] = {}
        self._beating: asyncio.Task[None] | None = None

    async def note(self, session_id: dict[str, Any]) -> None:
        """Store a session before its first transaction. Sessions are reused, so this is rare."""
        if bytes(session_id["id"]) in self._sessions:
            return
        self._sessions[bytes(session_id["id"])] = dict(session_id)
        await self._beat()
        if self._beating is None:
            # In a context of its own: the caller's time limit must not apply to the heartbeat.
            self._beating = asyncio.create_task(self._keep_beating(), context=contextvars.Context())

    async def close(self) -> None:
        """Stop the heartbeat and delete it: there are no sessions to end any more."""
        if self._beating is None:
            return
        self._beating.cancel()
        await asyncio.gather(self._beating, return_exceptions=True)
        self._beating = None
        with contextlib.suppress(PyMongoError), pymongo.timeout(_SECONDS):
            await self._processes.delete_one({"_id": self._name})

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(_BEAT.total_seconds())
            # The next heartbeat tries again. Without heartbeats, the server's own time limit still applies.
            with contextlib.suppress(PyMongoError):
                await self._beat()
                await self.end_dead_sessions()

    async def _beat(self) -> None:
        beat: list[dict[str, Any]] = [
            {"$set": {"seenAt": "$$NOW", "sessions": {"$literal": list(self._sessions.values())}}},
        ]
        with pymongo.timeout(_SECONDS):
            await self._processes.update_one({"_id": self._name}, beat, upsert=True)

    async def end_dead_sessions(self) -> int:
        """End the sessions of processes without a recent heartbeat; return how many processes."""
        silence = {"$subtract": ["$$NOW", int(_SILENCE.total_seconds() * 1_000)]}
        with pymongo.timeout(_SECONDS):
            silent = await self._processes.find({"$expr": {"$lt": ["$seenAt", silence]}}).to_list()
            for each in silent:
                await self._admin.command("killSessions", each["sessions"])
                await self._processes.delete_one({"_id": each["_id"], "seenAt": each["seenAt"]})
        return len(silent)
