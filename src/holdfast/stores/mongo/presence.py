"""Who is there: so that the transaction of a process that was killed does not outlive it for long.

A transaction whose client died holds its documents until the server's limit is over (a minute by default); until then
nobody can claim its jobs, nor write what it was about to write. Every process therefore notes the sessions of its
transactions and beats. One that has not been heard of for a while has its sessions ended by any other: if it is alive
after all, only frozen, its transaction fails and is tried again.
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
# A note for the living: one that is lost with a primary is written again with the next beat.
_QUICKLY: Final = WriteConcern(1)


class Presence:
    """The notes of this process, and its look at those of the others."""

    def __init__(self, database: AsyncDatabase[dict[str, Any]]) -> None:
        self._admin = database.client.admin
        self._processes = database.get_collection(PROCESSES, write_concern=_QUICKLY)
        self._name = secrets.token_hex(12)
        self._sessions: dict[bytes, dict[str, Any]] = {}
        self._beating: asyncio.Task[None] | None = None

    async def note(self, session_id: dict[str, Any]) -> None:
        """Note a session before its first transaction; sessions are used again and again, so this is rare."""
        if bytes(session_id["id"]) in self._sessions:
            return
        self._sessions[bytes(session_id["id"])] = dict(session_id)
        await self._beat()
        if self._beating is None:
            # In a context of its own: the time limit of whoever called is none of the beat's.
            self._beating = asyncio.create_task(self._keep_beating(), context=contextvars.Context())

    async def close(self) -> None:
        """There is nothing left to end."""
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
            # Whatever it is, the next beat tries again; and without any, the server's own limit is still there.
            with contextlib.suppress(PyMongoError):
                await self._beat()
                await self.end_the_silent()

    async def _beat(self) -> None:
        beat: list[dict[str, Any]] = [
            {"$set": {"seenAt": "$$NOW", "sessions": {"$literal": list(self._sessions.values())}}},
        ]
        with pymongo.timeout(_SECONDS):
            await self._processes.update_one({"_id": self._name}, beat, upsert=True)

    async def end_the_silent(self) -> int:
        """End the sessions of processes that were not heard of; return how many processes."""
        silence = {"$subtract": ["$$NOW", int(_SILENCE.total_seconds() * 1_000)]}
        with pymongo.timeout(_SECONDS):
            silent = await self._processes.find({"$expr": {"$lt": ["$seenAt", silence]}}).to_list()
            for each in silent:
                await self._admin.command("killSessions", each["sessions"])
                await self._processes.delete_one({"_id": each["_id"], "seenAt": each["seenAt"]})
        return len(silent)
