"""Documents for a running gateway: a tenant who uploads, a model that sees every page, and a checker.

Each page is a picture that says which document and which page it is. The engine is Gemini, played by a server that
outlives every worker and child: it writes down each page that it is asked to read, and can keep a child waiting in the
midst of one. What it answers names the reading, so that a result shows which reading each of its pages came from.

What became of the jobs is read past Holdfast's own code.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import httpx

from holdfast.wiring import open_system
from tests.support.settings import load

from .counted_work import app
from .gemini_server import GeminiServer
from .page_server import Hold, PageServer, Reading, numbered_pdf
from .processes import GatewayProcess
from .running_cluster import ClusterGateway
from .running_gateway import DRAIN_SECONDS, EmbeddedGateway, RunningGateway

KEY: Final = "a-key-for-the-kill-tests-of-documents"
_QUEUE: Final = "doc_jobs"
_LETTERS: Final = "doc_jobs_dead"
_WANTED: Final = {"processed": "COMPLETED", "dead_lettered": "FAILED"}
_FINAL: Final = {"processed", "dead_lettered", "expired"}


def document_settings(server: GeminiServer, **settings: str) -> dict[str, str]:
    """Settings of gateways whose documents are read by this server, several at a time, and again at once."""
    return {
        "DOCUMENT_ENGINE": "gemini",
        "GEMINI_API_KEY": KEY,
        "GEMINI_BASE_URL": server.url,
        "DOCUMENT_CONCURRENCY": "4",
        "DOCUMENT_RETRY_BASE_MS": "0",
        # Longer than elsewhere: pages are counted, and a busy worker that loses its lease would have some read twice.
        "WORKER_LEASE_SECONDS": "2",
    } | settings


# --- what is left at the end ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DocumentTruth:
    """What the store and the queues hold, by job id."""

    entries: Mapping[str, str]
    attempts: Mapping[str, Sequence[Mapping[str, Any]]]
    jobs: Mapping[str, Mapping[str, Any]]
    results: Mapping[str, Mapping[str, Any]]
    units: Sequence[str]
    """The texts of all pages that are committed as checkpoints."""
    letters: Sequence[tuple[str, str]]
    """Job and reason."""
    told: Sequence[Mapping[str, Any]]
    """What ``doc_jobs_dead`` holds."""
    waiting: int
    """Jobs that the queue would still hand out."""

    @property
    def settled(self) -> bool:
        ended = set(self.entries.values()) <= _FINAL
        return ended and self.waiting == 0 and len(self.told) == len(self.letters)

    def outcomes(self, job_id: str) -> list[tuple[str, str | None]]:
        """How each attempt ended, and why."""
        return [(each["outcome"], each.get("errorCode")) for each in self.attempts[job_id]]

    @property
    def read(self) -> set[tuple[int, int]]:
        """The pages that are committed: document and page."""
        return {Reading.of(each).place for each in self.units if each.startswith("document ")}


def document_truth(gateway: RunningGateway) -> DocumentTruth:
    """Read past Holdfast's own code."""
    return _of_cluster(gateway) if isinstance(gateway, ClusterGateway) else _of_file(gateway)


def _of_file(gateway: EmbeddedGateway) -> DocumentTruth:
    def bodies(table: str, key: str) -> dict[str, Any]:
        return {name: json.loads(body) for name, body in gateway.query(f"SELECT {key}, body FROM {table}")}  # noqa: S608

    entries = gateway.query("SELECT key, status, attempts FROM ledger_entries WHERE workload = 'documents'")
    told = gateway.query("SELECT data FROM queue_jobs WHERE queue = ?", _LETTERS)
    return DocumentTruth(
        entries={key: status for key, status, _ in entries},
        attempts={key: json.loads(attempts) for key, _, attempts in entries},
        jobs=bodies("document_jobs", "job_id"),
        results=bodies("document_results", "job_id"),
        units=[each["result"]["text"] for each in bodies("document_units", "unit_id").values()],
        letters=gateway.query("SELECT key, reason_code FROM dead_letters WHERE workload = 'documents'"),
        told=[json.loads(data) for (data,) in told],
        waiting=gateway.query("SELECT count(*) FROM queue_jobs WHERE queue = ?", _QUEUE)[0][0],
    )


def _of_cluster(gateway: ClusterGateway) -> DocumentTruth:
    database, redis = gateway.database, gateway.looking
    entries = list(database["document_ledger"].find())
    lists = sum(redis.llen(f"bull:{_QUEUE}:{part}") for part in ("wait", "paused", "active"))
    sets = sum(redis.zcard(f"bull:{_QUEUE}:{part}") for part in ("delayed", "prioritized"))
    told = redis.lrange(f"bull:{_LETTERS}:wait", 0, -1)
    return DocumentTruth(
        entries={each["idempotencyKey"]: each["status"] for each in entries},
        attempts={each["idempotencyKey"]: each["attemptHistory"] for each in entries},
        jobs={each["job_id"]: each for each in database["document_jobs"].find()},
        results={each["job_id"]: each for each in database["document_results"].find()},
        units=[each["result"]["text"] for each in database["document_units"].find()],
        letters=[(each["idempotencyKey"], each["terminalReasonCode"]) for each in database["doc_jobs_dead"].find()],
        told=[json.loads(redis.hget(f"bull:{_LETTERS}:{each.decode()}", "data")) for each in told],
        waiting=lists + sets,
    )


@dataclass(frozen=True)
class Posted:
    """A document that was accepted."""

    job_id: str
    number: int | None
    """Of its pages; None where they are not numbered ones."""
    pages: int
    upload: str
    """The SHA-256 of the file."""


def violations(
    posted: Sequence[Posted],
    truth: DocumentTruth,
    readings: Sequence[Reading],
    text_of: Callable[[Mapping[str, Any]], str],
) -> Iterator[str]:
    """Whatever must never be. ``text_of`` is the text in the output files of a result."""
    if set(truth.entries) != {each.job_id for each in posted}:
        yield "what was acknowledged and what is known are not the same"
    letters = Counter(job_id for job_id, _ in truth.letters)
    told = Counter(each["job_id"] for each in truth.told)
    for each in posted:
        job_id, status = each.job_id, truth.entries.get(each.job_id)
        wanted = _WANTED.get(str(status))
        for name, documents in (("job", truth.jobs), ("result", truth.results)):
            if documents.get(job_id, {}).get("status") != wanted:
                yield f"{job_id} is {status}, and its {name} says otherwise"
        dead_lettered = int(status == "dead_lettered")
        if (letters[job_id], told[job_id]) != (dead_lettered, dead_lettered):
            yield f"{job_id} is {status}, and has {letters[job_id]} letters, {told[job_id]} of them told"
        ends = [outcome for outcome, _ in truth.outcomes(job_id)] if job_id in truth.attempts else []
        if ends.count("succeeded") != int(status == "processed") or "running" in ends:
            yield f"{job_id} is {status}, and its attempts ended as {ends}"
        if wanted == "COMPLETED":
            yield from _of_text(each, truth.results[job_id], readings, text_of)


def _of_text(
    posted: Posted, result: Mapping[str, Any], readings: Sequence[Reading], text_of: Callable[[Mapping[str, Any]], str]
) -> Iterator[str]:
    """Every page once, in order, with the words of a reading that took place."""
    if result["pages"] != posted.pages:
        yield f"{posted.job_id} has {result['pages']} pages instead of {posted.pages}"
    if posted.number is None:
        return
    found = readings_in(text_of(result))
    if [each.place for each in found] != [(posted.number, page) for page in range(posted.pages)]:
        yield f"{posted.job_id} has not all of its pages in order"
    if not set(found) <= set(readings):
        yield f"{posted.job_id} has a page that nobody read"


def readings_in(text: str) -> list[Reading]:
    """The readings that a text came from."""
    return [Reading.of(line) for line in text.splitlines() if line.startswith("document ")]


class Memory:
    """Remembers which pages were committed when, and finds those that were asked for afterwards all the same.

    Of use while no worker but the present owner of a job is at it: one that lost its lease unawares may read on.
    """

    def __init__(self, server: PageServer) -> None:
        self._server = server
        self._known: dict[tuple[int, int], int] = {}

    def look(self, truth: DocumentTruth) -> None:
        """Call it at any time, with what was committed a moment ago."""
        now = len(self._server.readings)
        for place in truth.read:
            self._known.setdefault(place, now)

    @property
    def read_again(self) -> list[Reading]:
        """Readings of pages that were committed before."""
        return [
            each for each in list(self._server.readings) if each.number >= self._known.get(each.place, each.number + 1)
        ]

    def __len__(self) -> int:
        return len(self._known)


# --- processes ------------------------------------------------------------------------------------------------------


def children_of(worker: GatewayProcess) -> list[int]:
    """The processes that a worker started and that are there."""
    found = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    return [pid for pid in found if _parent_of(pid) == worker.pid]


def gone(pid: int) -> bool:
    """Whether a process has ended; whether anybody took note of its end does not matter."""
    return _parent_of(pid) is None


def _parent_of(pid: int) -> int | None:
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else int(parent)


def _has_open(pid: int, name: str) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                # An upload is named by its content, and by the request that it came with.
                if each.readlink().name.partition("-")[0] == name:
                    return True
    return False


# --- the traffic ------------------------------------------------------------------------------------------------------


@dataclass
class DocumentTraffic:
    """A tenant at a running gateway, the model that reads its pages, and what became of them."""

    gateway: RunningGateway
    api_key: str
    server: PageServer
    posted: list[Posted] = field(default_factory=list)

    async def start(self, *roles: str, **settings: str) -> GatewayProcess:
        member = await self.gateway.fleet.start(*roles, **settings)
        assert member.ready, f"it did not start; see {member.log}"
        return member

    async def post(self, pages: int, content: bytes | None = None, **form: str) -> Posted:
        """Upload a document, of numbered pages unless ``content`` is something else."""
        number = None if content else len(self.posted)
        content = content or numbered_pdf(len(self.posted), pages)
        headers = {"authorization": f"Bearer {self.api_key}"}
        given = {"job_type": "OCR", "input_type": "PDF", **form}
        async with httpx.AsyncClient(base_url=self.gateway.fleet.addresses[0], timeout=DRAIN_SECONDS) as client:
            answer = await client.post("/v1/documents", files={"file": content}, data=given, headers=headers)
        assert answer.status_code == 202, answer.text
        self.posted.append(Posted(answer.json()["job_id"], number, pages, sha256(content).hexdigest()))
        return self.posted[-1]

    # --- looking ------------------------------------------------------------------------------------------

    def truth(self) -> DocumentTruth:
        return document_truth(self.gateway)

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until it is so, and return what it said."""
        clock = asyncio.get_running_loop().time
        end = clock() + DRAIN_SECONDS
        while not (found := await asyncio.to_thread(condition)):
            assert clock() < end, f"{what}: not so after {DRAIN_SECONDS} s; logs in {self.gateway.folder}"
            await asyncio.sleep(0.1)
        return found

    async def until_in_page(self, posted: Posted, hold: Hold, page: int) -> None:
        """Wait until a child is in the midst of this page, and all pages before it are committed."""
        await self.until(lambda: hold.taken, f"page {page} of {posted.job_id} is being read")
        before = {(posted.number, each) for each in range(page)}
        await self.until(lambda: before <= self.truth().read, f"{page} pages of {posted.job_id} are committed")

    async def until_status(self, posted: Posted, status: str) -> None:
        await self.until(lambda: self.truth().entries[posted.job_id] == status, f"{posted.job_id} is {status}")

    def child_of(self, worker: GatewayProcess, posted: Posted) -> int | None:
        """The child of this worker that reads this document."""
        return next((each for each in children_of(worker) if _has_open(each, posted.upload)), None)

    async def reader(self, worker: GatewayProcess, posted: Posted) -> int:
        return await self.until(lambda: self.child_of(worker, posted), f"a child has {posted.job_id} open")

    def text_of(self, result: Mapping[str, Any]) -> str:
        return (Path(result["output_path"]) / "text.txt").read_text(encoding="utf-8")

    # --- acting -------------------------------------------------------------------------------------------

    async def kill_worker(self, worker: GatewayProcess) -> None:
        """Kill it with SIGKILL, and see that its children end with it."""
        children = await asyncio.to_thread(children_of, worker)
        await worker.kill()
        await self.until(lambda: all(map(gone, children)), "the children of a dead worker are gone")

    # --- the end ------------------------------------------------------------------------------------------

    async def ended(self) -> DocumentTruth:
        """Everything settled, every process stopped in good order, no child left."""
        await self.until(lambda: self.truth().settled, "everything is settled")
        living = [member for member in self.gateway.fleet.members if member.alive]
        left = [child for member in living for child in children_of(member)]
        assert left == [], "a child outlived its document"
        assert {await member.terminate() for member in living} <= {0}
        return await asyncio.to_thread(self.truth)

    def violations(self, truth: DocumentTruth) -> list[str]:
        return list(violations(self.posted, truth, list(self.server.readings), self.text_of))


def kill(pid: int) -> None:
    """Kill a child that a worker of this test started."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def with_documents(gateway: RunningGateway, server: PageServer) -> DocumentTraffic:
    """A tenant of the gateway."""
    async with open_system(load(gateway.fleet.environment, gateway.folder), app) as system:
        company = await system.tenants.add("acme")
        _, api_key = await system.tenants.create_key(company.company_id)
    return DocumentTraffic(gateway, api_key, server)
