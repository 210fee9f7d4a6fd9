"""The documents routes over the real system in a SQLite file, for tests. The test itself is the worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from holdfast.api import ApiOptions, ApiServices
from holdfast.api.app import Gateway as Api
from holdfast.api.app import create_app
from holdfast.api.frame import FeatureApi, Frame
from holdfast.contracts.dead_letters import letter_id
from holdfast.contracts.jobs import JobState
from holdfast.contracts.ledger import Claimed, Lease, LedgerEntry
from holdfast.contracts.outcomes import Reason
from holdfast.contracts.queries import EntryQuery, Page
from holdfast.contracts.transitions import Complete, MoveToDeadLetters, Settlement
from holdfast.features.documents.contract import DocumentJob
from holdfast.features.documents.failures import Code
from holdfast.features.documents.feature import DocumentService, DocumentsFeature, HttpLimits, Scope
from holdfast.features.documents.job_records import Reached
from holdfast.features.documents.records import Stage, work_id
from holdfast.features.documents.rendering import outputs_of
from tests.api.courier_api import TOKEN
from tests.support.gateway import Gateway, opened
from tests.support.settings import load

DOCUMENTS = "/v1/documents"
MAX_BYTES = 100_000
PDF = b"%PDF-1.7\n" + b"pages of a contract\n" * 20
WAV = b"RIFF\x24\x08\x00\x00WAVEfmt " + bytes(2_000)
OCR = {"job_type": "OCR", "input_type": "PDF"}
SPEECH = {"job_type": "TRANSCRIPTION", "input_type": "AUDIO"}
ELSEWHERE = OCR | {"url": "https://example.com/contract.pdf"}
BOUNDARY = "the-boundary-of-the-tests"

_numbers = count(1)


def a_pdf() -> bytes:
    """A new file with the first bytes of a PDF."""
    return PDF + b"%d\n" % next(_numbers)


def a_wav() -> bytes:
    """A new file with the first bytes of a recording."""
    return WAV + b"%d\n" % next(_numbers)


def part(name: str, content: str | bytes, *, filename: str | None = None, **headers: str) -> bytes:
    """One part of a form, in bytes."""
    called = f'; filename="{filename}"' if filename is not None else ""
    lines = [f'content-disposition: form-data; name="{name}"{called}']
    lines += [f"{header.replace('_', '-')}: {value}" for header, value in headers.items()]
    body = content.encode() if isinstance(content, str) else content
    return f"--{BOUNDARY}\r\n".encode() + "\r\n".join([*lines, "", ""]).encode() + body + b"\r\n"


def form(*parts: bytes, end: bytes = f"--{BOUNDARY}--\r\n".encode()) -> bytes:
    """A form, in bytes."""
    return b"".join(parts) + end


def fields(**given: str) -> list[bytes]:
    """The parts of fields."""
    return [part(name, value) for name, value in given.items()]


@dataclass(frozen=True)
class DocumentApi:
    """Tenants at the document routes of a gateway. The test itself is the worker."""

    gateway: Gateway
    client: httpx.AsyncClient
    app: Api
    documents: DocumentService
    keys: Mapping[str, str]
    """API keys: ``acme`` and ``other`` may do everything."""
    ids: Mapping[str, str]
    folder: Path

    @property
    def system(self) -> Any:
        return self.gateway.system

    @property
    def services(self) -> ApiServices:
        return self.gateway.services

    # --- as a tenant ------------------------------------------------------------------------------------------

    def bearer(self, who: str = "acme") -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[who]}"}

    async def send(self, body: Any, *, who: str = "acme") -> httpx.Response:
        return await self.client.post(DOCUMENTS, json=body, headers=self.bearer(who))

    async def upload(self, content: bytes, *, who: str = "acme", filename="contract.pdf", **given: str):
        """Send a file as any HTTP client does."""
        return await self.client.post(
            DOCUMENTS, files={"file": (filename, content)}, data=OCR | given, headers=self.bearer(who)
        )

    async def post(self, body: bytes, *, who: str = "acme", **headers: str) -> httpx.Response:
        """Send the raw body of a form."""
        declared = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
        declared |= {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(DOCUMENTS, content=body, headers=self.bearer(who) | declared)

    async def get(self, path: str = "", *, who: str = "acme", **query: Any) -> httpx.Response:
        return await self.client.get(f"{DOCUMENTS}{path}", params=query, headers=self.bearer(who))

    async def cancel(self, job_id: str, *, who: str = "acme") -> httpx.Response:
        return await self.client.post(f"{DOCUMENTS}/{job_id}/cancel", headers=self.bearer(who))

    async def submitted(self, content: bytes | None = None, *, who: str = "acme", **given: str) -> str:
        """Submit a file; the id of its waiting job."""
        answer = await self.upload(a_pdf() if content is None else content, who=who, **given)
        assert answer.status_code == 202, answer.text
        return answer.json()["job_id"]

    # --- as the worker ----------------------------------------------------------------------------------------

    @property
    def workload(self):
        return self.documents.workload

    async def key(self, job_id: str) -> str:
        """The key of the one job that a sender knows by this id."""
        keys = {each.key for each in await self.entries() if json.loads(each.body)["job_id"] == job_id}
        (key,) = keys
        return key

    async def claim(self, job_id: str) -> tuple[Lease, DocumentJob]:
        """Claim the job, as a worker."""
        key = await self.key(job_id)
        (claimed,) = await self.system.store.claim(
            "documents", [key], worker="tests", lease=timedelta(seconds=30), max_attempts=3
        )
        assert isinstance(claimed, Claimed), claimed
        data = DocumentJob.model_validate_json(claimed.body)
        await self.system.store.apply([self.workload.records.began(data, 1)])
        return Lease(key, claimed.fence), data

    async def reach(self, data: DocumentJob, done: int, units: int) -> None:
        """Report progress."""
        reached = Reached(stage=Stage.READING, unit="page", done=done, units=units)
        await self.system.store.apply([self.workload.records.reached(data, reached)])

    async def complete(self, job_id: str, text: str = "What the page says.") -> None:
        """Complete the job, without reading the file."""
        lease, data = await self.claim(job_id)
        await self.finish(lease, data, text)

    async def finish(self, lease: Lease, data: DocumentJob, text: str = "What the page says.") -> None:
        """Complete the attempt that :meth:`claim` started."""
        page = {"number": 1, "text": text, "source": "ocr", "confidence": 0.9, "rotation": 0, "lines": []}
        chunk = {"segments": [{"start": 0.0, "end": 1.5, "text": text, "confidence": 0.9}]}
        pdf = data.input_type == "PDF"
        units = [page if pdf else chunk]
        facts = {
            "job_id": data.job_id,
            "status": "COMPLETED",
            "duration_sec": 1.25,
            "pages": 1 if pdf else None,
            "unit": "page" if pdf else "chunk",
            "units": 1,
            "units_reused": 0,
            "engine": "local",
            "model": "tests",
            "language": None,
            "media_seconds": None if pdf else 1.5,
            "characters": len(text),
            "confidence": 0.9,
            "cached": False,
            "error": None,
        }
        result = {"job_type": data.job_type.value, "input_type": data.input_type.value, **facts}
        outputs = outputs_of(data.job_type, units, result)
        facts["output_path"] = await self.documents.files.write(f"{data.key}/1", outputs)
        upload, options = data.payload.upload, self.workload.options
        work = work_id(upload.sha256, *options.reading_method(data)) if upload else None
        effects = self.workload.records.completed(data, facts, attempts=1, work=work)
        transition = Complete(timedelta(days=1), effects)
        (settled,) = await self.system.store.settle([Settlement("documents", lease, transition)])
        assert settled.status is not None

    async def fail(self, job_id: str, code: Code = Code.PDF_ENCRYPTED) -> None:
        """Fail the job for good, with a detail for operators."""
        lease, data = await self.claim(job_id)
        reason = Reason(code, "The PDF is encrypted\nwith a detail for operators")
        transition = MoveToDeadLetters(
            letter_id=letter_id("documents", data.key, 1),
            code=code,
            message="no",
            reason_code=code,
            reason_message="no",
            retention=timedelta(days=1),
            letter_retention=timedelta(days=1),
            effects=self.workload.records.failed(JobState(data.key, data.key, data, 1, 1), reason, 0.5),
        )
        (settled,) = await self.system.store.settle([Settlement("documents", lease, transition)])
        assert settled.status is not None

    async def entries(self) -> list[LedgerEntry]:
        """All jobs."""
        return (await self.system.store.find(EntryQuery(workload="documents"), Page(100))).items

    # --- as whoever looks into the folder ---------------------------------------------------------------------

    def kept(self) -> list[bytes]:
        """The stored uploads."""
        return [each.read_bytes() for each in (self.folder / "documents" / "uploads").rglob("*") if each.is_file()]

    def arriving(self) -> list[Path]:
        """The uploads that are arriving."""
        return list((self.folder / "documents" / "incoming").glob("*"))  # made for the first file

    async def empty(self) -> bool:
        """Whether no job was accepted and no file is left."""
        return not await self.entries() and not self.kept() and not self.arriving()


@asynccontextmanager
async def document_api(
    folder: Path, environment: Mapping[str, str] | None = None, **changes: Any
) -> AsyncIterator[DocumentApi]:
    """``environment`` has more settings. ``changes`` are fields of ``HttpLimits``."""
    facts = {"HOLDFAST_DATA": str(folder), "DOCUMENT_MAX_BYTES": str(MAX_BYTES)}
    settings = load(facts | dict(environment or {}), folder)
    async with opened(settings, workload="documents") as gateway:
        documents: DocumentService = gateway.system.service("documents")
        documents.limits = HttpLimits(**{"stream_interval": timedelta(milliseconds=10), **changes})
        tenants = gateway.tenants
        keys, ids = {}, {}
        for name in ("acme", "other"):
            tenant = await tenants.add(name)
            ids[name] = tenant.company_id
            _, keys[name] = await tenants.create_key(tenant.company_id)
        _, keys["reads only"] = await tenants.create_key(ids["acme"], scopes=[Scope.DOCUMENTS_READ])
        _, keys["emails only"] = await tenants.create_key(ids["acme"], scopes=["email:send"])
        app = app_of(gateway.services, documents)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://holdfast.test") as client:
            yield DocumentApi(gateway, client, app, documents, keys, ids, folder)
        await asyncio.sleep(0)


def app_of(services: ApiServices, documents: DocumentService) -> Api:
    """The API with the routes of documents."""
    options = ApiOptions(operator_token=TOKEN)
    routes = documents.routes(Frame(documents.services, options))
    feature = FeatureApi(intakes=DocumentsFeature.intakes, routes=routes)
    return create_app(services, options, [feature])


def problems(response: httpx.Response) -> dict[str, str]:
    """The problems, by field."""
    return {each["field"]: each["problem"] for each in response.json()["details"]}


def events_in(stream: str) -> list[tuple[str, Any]]:
    """The events of a stream, with their data."""
    found = []
    for block in stream.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


class Sender:
    """A client that sends its request in pieces. Then it disconnects."""

    def __init__(self, api, *pieces: bytes, **headers: str) -> None:
        self._world = api
        self._pieces = list(pieces)
        headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"} | headers | api.bearer()
        self._headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        self.asked = 0
        self.received: list[Any] = []

    async def run(self) -> int | None:
        """The status of the answer, if there was one."""
        scope = {"type": "http", "method": "POST", "path": DOCUMENTS, "query_string": b"", "headers": self._headers}
        await self._world.app(scope, self._receive, self._send)
        return self.received[0]["status"] if self.received else None

    async def _receive(self):
        self.asked += 1
        if self._pieces:
            return {"type": "http.request", "body": self._pieces.pop(0), "more_body": True}
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self.received.append(message)
