"""The caps of a document's output: of a page, of a job, of a tenant. On both deployments, with real workers."""

from __future__ import annotations

import gc
import json
import re
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.contracts.queries import Page, RecordQuery
from holdfast.features.documents.records import UNITS
from tests.support.document_client import CLUSTER, EMBEDDED, Script, document_client_on, failed, pages

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEGABYTE = 1024 * 1024
PAGE, JOB, TENANT = 100_000, 400_000, 1_000_000


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[EMBEDDED, CLUSTER])
async def client(request, tmp_path_factory):
    caps = {
        "document_max_page_output_bytes": PAGE,
        "document_max_output_bytes": JOB,
        "document_tenant_bytes": TENANT,
    }
    async with document_client_on(request.param, request, tmp_path_factory.mktemp("documents"), **caps) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module", params=[EMBEDDED, CLUSTER])
async def generous(request, tmp_path):
    caps = {"document_max_output_bytes": 1024 * MEGABYTE, "document_concurrency": 1}
    async with document_client_on(request.param, request, tmp_path, **caps) as client:
        yield client


_BOOK = """
import json, sys
sizes = json.loads(sys.argv[1])
say = lambda **message: print(json.dumps(message))
say(**{"is": "plan"}, units=len(sizes), unit="page", engine="local", model="book")
for index, size in enumerate(sizes):
    page = {"number": index + 1, "text": "a" * size, "source": "text_layer", "lines": []}
    say(**{"is": "unit"}, index=index, result=page)
say(**{"is": "finished"})
"""


class Book(Script):
    """Pages of so many characters, which the child makes by itself: they take no memory here."""

    def __init__(self, *sizes: int) -> None:
        super().__init__([])
        self.sizes = sizes

    def begin(self, spec, folder):
        super().begin(spec, folder)
        return [sys.executable, "-S", "-c", _BOOK, json.dumps(self.sizes)]


async def units(client) -> int:
    """How many checkpoints there are."""
    found = await client.gateway.system.store.find_records(RecordQuery(collection=UNITS), Page(100))
    return len(found.items)


async def completed(client, job_id):
    await client.until(job_id, "COMPLETED")
    return await client.result(job_id)


async def dead_letter(client, job_id):
    await client.until(job_id, "FAILED")
    (letter,) = await client.letters(job_id)
    return letter


@pytest.mark.parametrize(
    ("sizes", "cap"),
    [
        ((10, PAGE + 1), "one page, or one stretch of sound, gives more than 100000 bytes"),
        # The text is in three files. Of all of them, the third page is too much.
        ((60_000, 60_000, 60_000), "all pages together give more than 400000 bytes of output files"),
        # The fifth page is too much before anything is written.
        ((90_000,) * 9, "all pages together give more than 400000 bytes of output files"),
    ],
)
async def test_too_much_output_is_a_dead_letter_at_once_that_names_the_cap_and_leaves_no_pages(client, sizes, cap):
    script = Book(*sizes)
    letter = await dead_letter(client, job_id := await client.handed_in(script))
    assert letter.reason_code == "OUTPUT_TOO_LARGE"
    assert cap in letter.reason_message
    tried = [(attempt.error_code, attempt.error_message) for attempt in (await client.entry(job_id)).attempts]
    assert tried == [("OUTPUT_TOO_LARGE", letter.reason_message)]
    assert await units(client) == 0
    assert not list((client.folder / "documents" / "results").glob(f"{job_id}/*"))
    assert not list((client.folder / "documents" / "work").glob("job-*"))


async def test_output_counts_for_the_tenant_and_beyond_the_quota_it_is_a_dead_letter(client):
    company = client.companies["other"]

    async def used() -> int:
        return (await client.gateway.system.usage(company))["stored_bytes"]

    script = Book(60_000, 60_000)
    result = await completed(client, await client.handed_in(script, who="other"))
    first = await used()
    assert first == result["output_bytes"] + len(script.content)
    await completed(client, await client.handed_in(Book(60_000, 60_000), who="other"))
    assert await used() == pytest.approx(2 * first, abs=1_000)
    letter = await dead_letter(client, await client.handed_in(Book(90_000, 30_000), who="other"))
    assert letter.reason_code == "OUTPUT_TOO_LARGE"
    assert "the files of the tenant would have more than 1000000 bytes" in letter.reason_message
    assert await used() < TENANT


async def test_the_pages_of_a_failed_job_stay_for_its_replay_and_count(client):
    company = client.companies["acme"]
    before = (await client.gateway.system.usage(company))["stored_bytes"]
    script = Script([*pages(3)[:-1], failed("PDF_CORRUPT")])
    await dead_letter(client, await client.handed_in(script))
    assert await units(client) == 3
    after = (await client.gateway.system.usage(company))["stored_bytes"]
    assert after > before + len(script.content)


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _kilobytes(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)[1])


async def _most_memory(client, count: int) -> int:
    """By how many bytes the memory of this process, which is also the worker's, grew at most over a document."""
    gc.collect()
    _forget_peak()
    before = _kilobytes("VmRSS")
    await completed(client, await client.handed_in(Book(*[50_000] * count)))
    return (_kilobytes("VmHWM") - before) * 1024


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
async def test_the_memory_of_the_worker_does_not_grow_with_the_document(generous, record_property):
    few, many = await _most_memory(generous, 60), await _most_memory(generous, 600)
    record_property("memory", f"60 pages: {few / MEGABYTE:.1f} MB  600 pages: {many / MEGABYTE:.1f} MB")
    print(f"60 pages: {few / MEGABYTE:.1f} MB  600 pages: {many / MEGABYTE:.1f} MB")
    # SQLite's page cache may take 64 of them, once and for all. To hold the pages took 230 MB.
    assert many - few < 96 * MEGABYTE
