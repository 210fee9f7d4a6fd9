"""Attacks on memory and disk: a small PDF with endless text, uploads that are refused, and more files than the quota.

Each attack is made over real sockets on a gateway whose one process is API and worker, while a neighbour asks for its
health.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest

from holdfast.contracts.queries import EntryQuery, LetterQuery, Page, RecordQuery
from holdfast.features.documents.records import ARRIVING, UNITS
from holdfast.wiring import System, open_system
from tests.support.counted_work import app
from tests.support.pages import swelling_pdf
from tests.support.processes import GatewayProcess
from tests.support.pulse import pulse
from tests.support.running_cluster import running_cluster
from tests.support.running_gateway import RunningGateway, running_gateway
from tests.support.settings import load
from tests.support.waiting import eventually

DOCUMENTS: Final = "/v1/documents"
OCR: Final = {"job_type": "OCR", "input_type": "PDF"}
PDF: Final = b"%PDF-1.7\n" + b"pages of a contract\n" * 20
QUOTA: Final = 200_000
MEGABYTE: Final = 1024 * 1024
BOUNDARY: Final = "the-boundary"

_SETTINGS: Final = {
    "WORKER_LEASE_SECONDS": "20",
    "DOCUMENT_MAX_PAGE_OUTPUT_BYTES": "65536",
    "DOCUMENT_MAX_OUTPUT_BYTES": "150000",
    "DOCUMENT_TENANT_BYTES": str(QUOTA),
}


@dataclass(frozen=True)
class Target:
    """A running gateway with a tenant, and an eye on its store."""

    gateway: RunningGateway
    process: GatewayProcess
    system: System
    company: str
    headers: Mapping[str, str]

    @property
    def port(self) -> int:
        return urlsplit(self.process.address or "").port or 0

    def client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=50)
        return httpx.AsyncClient(base_url=self.process.address or "", headers=self.headers, timeout=60, limits=limits)

    def files(self) -> list[Path]:
        """All files of documents, but the lock."""
        folder = self.gateway.folder / "documents"
        return [each for each in folder.rglob("*") if each.is_file() and each.name != ".lock"]

    async def records(self, collection: str) -> int:
        return len((await self.system.store.find_records(RecordQuery(collection=collection), Page(100))).items)

    async def entries(self) -> int:
        return len((await self.system.store.find(EntryQuery(workload="documents"), Page(100))).items)

    async def used(self) -> int:
        return (await self.system.usage(self.company))["stored_bytes"]

    def peak(self) -> int:
        """The most memory of the process so far, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024


@pytest.fixture(params=["embedded", "cluster"])
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "embedded":
            gateway: Any = await stack.enter_async_context(running_gateway(tmp_path, 1, **_SETTINGS))
        else:
            mongo = request.getfixturevalue("mongo")
            gateway = await stack.enter_async_context(running_cluster(tmp_path, 1, mongo, **_SETTINGS))
        process = await gateway.fleet.start("api", "worker")
        system = await stack.enter_async_context(open_system(load(gateway.fleet.environment, tmp_path), app))
        company = (await system.tenants.add("acme")).company_id
        _, key = await system.tenants.create_key(company)
        yield Target(gateway, process, system, company, {"authorization": f"Bearer {key}"})


async def _upload(client: httpx.AsyncClient, content: bytes, **given: str) -> httpx.Response:
    return await client.post(DOCUMENTS, files={"file": ("a.pdf", content)}, data=OCR | given)


async def _letter(target: Target, job_id: str) -> Any:
    async def found() -> Any:
        letters = await target.system.store.letters(LetterQuery(workload="documents", key=job_id), Page(1))
        return next(iter(letters.items), None)

    return await eventually(found)


async def test_a_small_pdf_with_endless_text_costs_a_dead_letter_and_no_memory(target, tell):
    """Sixty pages share one packed text; and one page has more text than any page may have."""
    book, page = swelling_pdf(60, 6_000), swelling_pdf(1, 40_000)
    assert max(len(book), len(page)) < 16_000
    before = target.peak()
    async with pulse(target.port) as waits, target.client() as client:
        jobs = [(await _upload(client, content)).json()["job_id"] for content in (book, page)]
        reasons = [(await _letter(target, job_id)).reason_message for job_id in jobs]
        grown = target.peak() - before
    assert "all pages together give more than 150000 bytes" in reasons[0]
    assert "one page, or one stretch of sound, gives more than 65536 bytes" in reasons[1]
    assert await target.records(UNITS) == 0
    assert {each.relative_to(target.gateway.folder / "documents").parts[0] for each in target.files()} == {"uploads"}
    assert grown < 128 * MEGABYTE
    tell({"tried": 2, "got through": 0, "memory": f"{grown // MEGABYTE} MB", "longest wait": f"{waits.longest:.3f} s"})


async def _break_off(target: Target, *pieces: bytes, length: int) -> None:
    """Send the beginning of an upload, and go away."""
    _, writer = await asyncio.open_connection("127.0.0.1", target.port)
    head = [f"POST {DOCUMENTS} HTTP/1.1", "host: holdfast", f"content-length: {length}"]
    head += [f"content-type: multipart/form-data; boundary={BOUNDARY}"]
    head += [f"{name}: {value}" for name, value in target.headers.items()]
    writer.write("\r\n".join([*head, "", ""]).encode())
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    # Only when the gateway has begun to store the upload is there something that could stay.
    await eventually(lambda: target.records(ARRIVING))
    writer.transport.abort()


async def test_refused_uploads_leave_nothing(target, rounds, tell):
    tried = 0
    async with pulse(target.port) as waits, target.client() as client:
        accepted = await _upload(client, PDF, job_id="one", cache="false")
        assert accepted.status_code == 202, accepted.text
        for number in range(rounds):
            other = PDF + b"%d" % number
            answers = await asyncio.gather(
                _upload(client, b"MZ\x90\x00" + bytes(50_000)),
                _upload(client, other, job_id="one"),
                _upload(client, PDF, job_id="one", cache="false"),
                _upload(client, other, metadata="no JSON"),
                _upload(client, other, callback_url="https://example.com/called"),
                _upload(client, PDF + bytes(QUOTA)),
            )
            assert [each.status_code for each in answers] == [422, 409, 202, 400, 422, 413]
            assert answers[2].json()["duplicate"] is True
            start = f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n'.encode()
            await _break_off(target, start + PDF, bytes(60_000), length=100_000)
            tried += len(answers) + 1
        await eventually(lambda: _nothing_arrives(target))
    assert await target.entries() == 1
    uploads = [each for each in target.files() if "uploads" in each.parts]
    assert [each.read_bytes() for each in uploads] == [PDF]
    assert await target.used() == len(PDF)
    tell({"tried": tried, "got through": 0, "longest wait": f"{waits.longest:.3f} s"})


async def _nothing_arrives(target: Target) -> bool:
    arriving = [each for each in target.files() if "incoming" in each.parts]
    return not arriving and await target.records(ARRIVING) == 0


async def test_the_quota_holds_under_parallel_uploads(target, tell):
    content = PDF.ljust(60_000, b"\n")
    async with pulse(target.port) as waits, target.client() as client:
        answers = await asyncio.gather(*(_upload(client, content) for _ in range(10)))
    counted = Counter(each.status_code for each in answers)
    assert set(counted) == {202, 413}
    assert 2 <= counted[202] <= QUOTA // len(content)
    refused = next(each.json() for each in answers if each.status_code == 413)
    assert refused["errorCode"] == "QUOTA_EXCEEDED"
    assert re.fullmatch(rf"has no room: \d+ of {QUOTA} bytes are in use", refused["details"][0]["problem"])
    uploads = [each for each in target.files() if "uploads" in each.parts]
    assert len(uploads) == counted[202]
    assert await target.used() <= QUOTA
    assert await target.records(ARRIVING) == 0
    tell({"tried": 10, "got through": 0, "accepted": counted[202], "longest wait": f"{waits.longest:.3f} s"})
