"""Tenants who have documents read by a gateway in this process, of either deployment, with a real worker in it.

Tenants use the real HTTP routes, external producers put jobs straight into the queue, and a real child process reads
every file. A test may also write a :class:`Script`: a file whose child is a small program that says what the script
says, so that causes that are hard to make in earnest can be told by a process all the same.

What the queue ``doc_jobs_dead`` holds is read past Holdfast's own code.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import httpx
import pytest
from redis import Redis

from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.ledger import LedgerEntry
from holdfast.contracts.queries import LetterQuery
from holdfast.contracts.queues import QueueJob
from holdfast.contracts.retry import ExponentialBackoff
from holdfast.features.documents.child.protocol import Failed as ChildFailed
from holdfast.features.documents.child.protocol import Finished, Message, Plan, Spec, Unit, encoded
from holdfast.features.documents.contract import key_of
from holdfast.features.documents.running import read_in_child
from holdfast.features.documents.workload import DEAD_LETTER_QUEUE, QUEUE
from holdfast.wiring import DATABASE_FILE
from tests.support.letters import whole_letters
from tests.support.settings import Settings

from . import waiting
from .file_server import FileServer
from .gateway import Gateway, assert_counts_its_attempts, opened
from .gemini_server import GeminiServer
from .valkey_server import RedisPlace, forget

EMBEDDED: Final = "embedded"
CLUSTER: Final = "cluster"
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OCR: Final = {"job_type": "OCR", "input_type": "PDF"}
AUDIO: Final = {"job_type": "TRANSCRIPTION", "input_type": "AUDIO"}
ROUTE: Final = "/v1/documents"
PATIENCE: Final = 150.0
"""Seconds. Reading takes long on a busy machine; nothing depends on the length."""


async def eventually(condition: Callable[[], Any]) -> Any:
    """As :func:`tests.support.waiting.eventually`, with the patience that reading needs."""
    return await waiting.eventually(condition, within=PATIENCE)


# --- children that say what they are told to ------------------------------------------------------------------------

_PROGRAM: Final = """
import os, sys, time
with open(sys.argv[2], "w") as file:
    file.write(str(os.getpid()))
os.write(1, sys.argv[1].encode())
time.sleep(3600)
"""
_MARK: Final = b"%PDF-1.7\n%script "


class Script:
    """A PDF, as far as its first bytes go; each attempt at it says the next of ``attempts``, the last again and again.

    The child stays, silent, when it has said its messages: only a last word ends it. ``specs`` is what the children
    were told, one for each attempt.
    """

    def __init__(self, *attempts: Sequence[Message]) -> None:
        self.name = uuid.uuid4().hex
        self.content = _MARK + self.name.encode() + b"\n%%EOF\n"
        self.specs: list[Spec] = []
        self.attempts = list(attempts)

    @property
    def pid(self) -> int:
        """The process of the attempt that began last."""
        return int(self._pid_file.read_text())

    def begin(self, spec: Spec, folder: Path) -> list[str]:
        """The command of the next attempt."""
        said = self.attempts.pop(0) if len(self.attempts) > 1 else self.attempts[0]
        self.specs.append(spec)
        self._pid_file = folder / f"pid-{self.name}"
        lines = b"".join(map(encoded, said)).decode()
        return [sys.executable, "-S", "-c", _PROGRAM, lines, str(self._pid_file)]


def plan(units: int) -> Plan:
    return Plan(units=units, unit="page", engine="local", model="script")


def page(index: int) -> Unit:
    """A page that was read: its text says which."""
    text = f"page {index + 1}"
    said = {"number": index + 1, "text": text, "source": "ocr", "confidence": 0.9, "lines": []}
    return Unit(index=index, result=said)


def pages(count: int) -> list[Message]:
    """A whole document."""
    return [plan(count), *map(page, range(count)), Finished()]


def failed(code: str, message: str | None = None, **facts: Any) -> ChildFailed:
    return ChildFailed(code=code, message=message, **facts)


# --- the client ------------------------------------------------------------------------------------------------------


@dataclass
class DocumentClient:
    """What a test does with documents. ``server`` has files and takes callbacks; ``roots`` has local files."""

    gateway: Gateway
    folder: Path
    server: FileServer
    gemini: GeminiServer
    place: RedisPlace | None
    scripts: dict[str, Script] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    companies: dict[str, str] = field(default_factory=dict)

    @property
    def roots(self) -> Path:
        return self.folder / "roots"

    @property
    def workload(self) -> Any:
        return self.gateway.system.workloads["documents"]

    # --- tenants --------------------------------------------------------------------------------------------

    async def send(self, document: Mapping[str, Any], *, who: str = "acme") -> httpx.Response:
        """Ask for a file that is elsewhere."""
        return await self.gateway.client.post(ROUTE, json=document, headers=self._bearer(who))

    async def upload(
        self, content: bytes, *, who: str = "acme", filename: str = "contract.pdf", **given: str
    ) -> httpx.Response:
        """Ask with the file. ``given`` are other fields of the form."""
        form = OCR | given
        files = {"file": (filename, content)}
        return await self.gateway.client.post(ROUTE, files=files, data=form, headers=self._bearer(who))

    async def handed_in(self, file: bytes | Script | None = None, *, who: str = "acme", **given: Any) -> str:
        """The id of a job that was accepted: with the file, or with the word where it is."""
        if isinstance(file, Script):
            self.scripts[file.name] = file
            file = file.content
        if file is None:
            answer = await self.send(OCR | given, who=who)
        else:
            answer = await self.upload(file, who=who, **given)
        assert answer.status_code == 202, answer.text
        return answer.json()["job_id"]

    async def cancel(self, job_id: str, *, who: str = "acme") -> httpx.Response:
        return await self.gateway.client.post(f"{ROUTE}/{job_id}/cancel", headers=self._bearer(who))

    async def get(self, path: str, *, who: str = "acme") -> httpx.Response:
        return await self.gateway.client.get(f"{ROUTE}/{path}", headers=self._bearer(who))

    # --- external producers ------------------------------------------------------------------------------------------

    async def put(self, document: Any, name: str | None = None) -> None:
        """Put a job straight into the queue, as a producer does that knows nothing of our API."""
        data = document if isinstance(document, str) else json.dumps(document)
        await self.gateway.broker.publish(QUEUE, [QueueJob(name or f"external-{uuid.uuid4()}", data)])

    # --- looking --------------------------------------------------------------------------------------------

    async def key(self, job_id: str) -> str:
        """The key of a job: an id that a tenant chose is the tenant's own."""
        for key in (key_of(job_id, each) for each in self.companies.values()):
            if await self.gateway.store.entry("documents", key) is not None:
                return key
        return job_id

    async def job(self, job_id: str) -> dict[str, Any]:
        return dict(await self.gateway.store.get("document_jobs", await self.key(job_id)) or {})

    async def result(self, job_id: str) -> dict[str, Any] | None:
        found = await self.gateway.store.get("document_results", await self.key(job_id))
        return None if found is None else dict(found)

    async def until(self, job_id: str, status: str, **facts: Any) -> dict[str, Any]:
        """Wait until the job's record says so. One that has ended otherwise is told at once."""
        wanted = {"status": status, **facts}

        async def reached() -> dict[str, Any] | None:
            job = await self.job(job_id)
            if wanted.items() <= job.items():
                return job
            assert job.get("status") not in {"COMPLETED", "FAILED", "CANCELLED"}, job
            return None

        return await eventually(reached)

    async def entry(self, job_id: str) -> LedgerEntry:
        entry = await self.gateway.store.entry("documents", await self.key(job_id))
        assert entry is not None, f"no entry for {job_id}"
        assert_counts_its_attempts(entry)
        return entry

    async def output(self, job_id: str, name: str) -> bytes:
        """An output file of a completed job."""
        return await self.gateway.system.service("documents").admission.output(await self.result(job_id), name)

    async def letters(self, job_id: str) -> list[DeadLetter]:
        """The dead letters of a job in the store, also of one that was refused and has another name there."""
        found = await whole_letters(self.gateway.store, LetterQuery(workload="documents"), 1_000)
        return [each for each in found if self.workload.dead_letter_payload(each)["job_id"] == job_id]

    async def told(self, job_id: str) -> list[dict[str, Any]]:
        """What ``doc_jobs_dead`` holds about a job."""
        return [each for each in await self.dead_letter_queue() if each["job_id"] == job_id]

    async def the_letter(self, job_id: str) -> dict[str, Any]:
        """The job's one dead letter, which the store and the queue tell alike, also after rounds of maintenance."""
        try:
            await eventually(lambda: self.told(job_id))
        except AssertionError as error:
            error.add_note(f"the job: {await self.job(job_id)}")
            raise
        await self.look_after()
        (letter,) = await self.letters(job_id)
        (told,) = await self.told(job_id)
        assert json.loads(json.dumps(self.workload.dead_letter_payload(letter))) == told
        return told

    async def look_after(self, rounds: int = 2) -> None:
        """Let maintenance do what it does."""
        maintenance = self.gateway.maintenance
        for _ in range(rounds):
            await maintenance.round()

    async def dead_letter_queue(self) -> list[dict[str, Any]]:
        """Every letter that ``doc_jobs_dead`` holds."""
        held = self._letters_in_file if self.place is None else self._letters_in_redis
        return [json.loads(data) for data in await asyncio.to_thread(held)]

    def _letters_in_file(self) -> list[str]:
        with contextlib.closing(sqlite3.connect(self.folder / DATABASE_FILE, timeout=30)) as connection:
            rows = connection.execute("SELECT data FROM queue_jobs WHERE queue = ?", (DEAD_LETTER_QUEUE,))
            return [data for (data,) in rows]

    def _letters_in_redis(self) -> list[str]:
        assert self.place is not None
        with contextlib.closing(Redis.from_url(self.place.url, decode_responses=True)) as redis:
            base = f"{self.place.prefix}:{DEAD_LETTER_QUEUE}"
            pipeline = redis.pipeline()
            for name in redis.lrange(f"{base}:wait", 0, -1):
                pipeline.hget(f"{base}:{name}", "data")
            return pipeline.execute()

    # --- people ---------------------------------------------------------------------------------------------

    async def replay(self, letter: DeadLetter) -> DeadLetter:
        await self.gateway.review.review(letter.id, actor="ana", reason="looked")
        return await self.gateway.review.replay(letter.id, actor="ana", reason="mended")

    # --- parts ----------------------------------------------------------------------------------------------

    def _bearer(self, who: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[who]}"}

    def _script_of(self, path: str) -> Script | None:
        with Path(path).open("rb") as file:
            head = file.read(len(_MARK) + 32)
        return self.scripts.get(head[len(_MARK) :].decode()) if head.startswith(_MARK) else None

    async def _read(self, spec: Spec, options: Any, on_message: Callable[..., Any]) -> None:
        """The real keeper; a script's file has its own child."""
        script = self._script_of(spec.path)
        command = None if script is None else script.begin(spec, self.folder)
        await read_in_child(spec, options, on_message, command)


def alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@contextlib.asynccontextmanager
async def document_client(
    folder: Path, *, place: RedisPlace | None = None, mongo: Any = None, **settings: Any
) -> AsyncIterator[DocumentClient]:
    """The embedded deployment in ``folder``; with a ``place`` and a ``mongo``, a cluster on those servers."""
    (folder / "roots").mkdir()
    with FileServer() as server, GeminiServer() as gemini, _database(mongo) as name:
        facts: dict[str, Any] = {
            "holdfast_data": folder,
            "document_concurrency": 4,
            "document_retry_base_ms": 0,
            "document_roots": (folder / "roots",),
            "document_local_path_over_http": True,
            "document_allowed_addresses": ("127.0.0.1",),
            "document_callback_secret": SECRET,
            "gemini_api_key": "a-key-for-the-tests-of-documents",
            "gemini_base_url": gemini.url,
            "worker_drain_timeout_ms": 0,
        }
        if place is not None:
            facts |= {"redis_url": place.url, "queue_prefix": place.prefix, "mongo_uri": mongo.uri}
            facts |= {"mongo_db_name": name, "publish_grace_ms": 200}
        async with opened(Settings(**facts | settings), workload="documents") as gateway:
            client = DocumentClient(gateway, folder, server, gemini, place)
            callbacks = gateway.system.workloads["document_callbacks"]
            callbacks.retry = ExponentialBackoff(max_attempts=3, base=timedelta(0))
            for who in ("acme", "other"):
                client.companies[who] = (await gateway.tenants.add(who)).company_id
                _, client.keys[who] = await gateway.tenants.create_key(client.companies[who])
            with patch("holdfast.features.documents.reading.read_in_child", client._read):
                async with gateway.running():
                    yield client


@contextlib.asynccontextmanager
async def document_client_on(
    deployment: str, request: pytest.FixtureRequest, folder: Path, **settings: Any
) -> AsyncIterator[DocumentClient]:
    """A client of this deployment; the servers of a cluster are those of this pytest process."""
    if deployment == EMBEDDED:
        async with document_client(folder, **settings) as client:
            yield client
        return
    place = RedisPlace(request.getfixturevalue("valkey").url, f"hf{uuid.uuid4().hex[:12]}")
    try:
        async with document_client(folder, place=place, mongo=request.getfixturevalue("mongo"), **settings) as client:
            yield client
    finally:
        await asyncio.to_thread(forget, place)


@contextlib.contextmanager
def _database(mongo: Any) -> Iterator[str | None]:
    """The name of a database of our own, which is dropped in the end."""
    if mongo is None:
        yield None
        return
    from pymongo import MongoClient

    name = f"hf_{uuid.uuid4().hex[:12]}"
    try:
        yield name
    finally:
        with MongoClient(mongo.uri) as client:
            client.drop_database(name)
