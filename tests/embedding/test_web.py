"""A FastAPI app with Holdfast inside: its lifespan, and our API below a prefix."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.from_thread
import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from holdfast import ConfigurationError, Holdfast, Status
from tests.embedding import web_program
from tests.embedding.work import QUICK, Invoice, app_with
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
TOKEN = QUICK["operator_token"]
OPERATOR = {"authorization": f"Bearer {TOKEN}"}


# --- under uvicorn as it comes ----------------------------------------------------------------------------------------


class Served:
    """The program under uvicorn, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "uvicorn.log"
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        self.start_python("-m", "uvicorn", "tests.embedding.web_program:api", "--port", "0")
        self.url = (await eventually(self._address))[1]

    def start_python(self, *arguments: str) -> None:
        self.log.write_text("")
        settings = {name.upper(): str(value) for name, value in QUICK.items()}
        environ = {**os.environ, **settings, "GATES": str(self.folder), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env=environ,
                stdout=log,
                stderr=log,
            )

    def _address(self) -> re.Match[str] | None:
        assert self.process.poll() is None, self.log.read_text()
        return re.search(r"running on (http://\S+)", self.log.read_text())

    async def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, 60)

    def began(self, number: str) -> bool:
        return (self.folder / f"{number}.began").exists()

    def open(self, number: str) -> None:
        (self.folder / f"{number}.open").touch()

    async def entries(self) -> dict[str, Status]:
        """What the ledger has, read when the program does not run."""
        reader = Holdfast(web_program.app, data=self.folder / "holdfast-data", worker=False, maintenance=False)
        async with reader as hold:
            return {entry.key: entry async for entry in hold.jobs(web_program.issue_invoice)}


@pytest.fixture
async def served(tmp_path) -> AsyncIterator[Served]:
    program = Served(tmp_path)
    await program.start()
    yield program
    with contextlib.suppress(ProcessLookupError):
        program.process.kill()
    program.process.wait()


async def test_a_fastapi_app_does_its_own_jobs(served):
    async with httpx.AsyncClient(base_url=served.url, timeout=60) as client:
        answer = await client.post("/invoices/now", json={"number": "1", "cents": 5})
        assert (answer.status_code, answer.json()) == (200, {"title": "Invoice 1"})
        assert (await client.post("/invoices", json={"number": "1", "cents": 5})).status_code == 202
        assert (await client.post("/invoices", json={"number": "1", "cents": 6})).status_code == 409
        await client.post("/invoices", json={"number": "slow", "cents": 5})
        await eventually(lambda: served.began("slow"))
        asyncio.get_running_loop().call_later(0.1, served.open, "slow")
        assert await served.end(signal.SIGTERM) in {0, -signal.SIGTERM}
    entries = await served.entries()
    assert {key: entry.status for key, entry in entries.items()} == dict.fromkeys(["1", "slow"], Status.PROCESSED)
    assert {entry.attempt_count for entry in entries.values()} == {1}


async def test_a_killed_program_loses_no_job_and_repeats_no_effect(served):
    async with httpx.AsyncClient(base_url=served.url, timeout=60) as client:
        numbers = [f"slow-{number}" for number in range(10)] + [str(number) for number in range(30)]
        answers = await asyncio.gather(
            *(client.post("/invoices", json={"number": number, "cents": 1}) for number in numbers)
        )
        assert {answer.status_code for answer in answers} == {202}
        await eventually(lambda: served.began("slow-3"))
        served.open("slow-1")
        assert await served.end(signal.SIGKILL) == -signal.SIGKILL
    for number in numbers:
        served.open(number)
    await served.start()
    async with httpx.AsyncClient(base_url=served.url, timeout=60) as client:
        for number in numbers:  # the same jobs again: duplicates, with the result of the first
            answer = await client.post("/invoices/now", json={"number": number, "cents": 1})
            assert answer.json() == {"title": f"Invoice {number}"}
        records = [await client.get(f"/jobs-api/v1/records/issued/{number}", headers=OPERATOR) for number in numbers]
        assert await served.end(signal.SIGTERM) in {0, -signal.SIGTERM}
    assert {record.status_code for record in records} == {200}
    assert {record.json()["times"] for record in records} == {1}
    entries = await served.entries()
    assert {entry.status for entry in entries.values()} == {Status.PROCESSED}
    assert [attempt.outcome for attempt in entries["slow-3"].attempts] == ["lost", "succeeded"]


async def test_our_api_answers_below_the_prefix_with_its_guards(served):
    async with httpx.AsyncClient(base_url=f"{served.url}/jobs-api", timeout=60) as client:
        assert (await client.get("/ready")).status_code == 200
        job = {"number": "1", "cents": 1}
        assert (await client.post("/v1/jobs/issue_invoice", json=job)).status_code == 401
        sent = await client.post("/v1/jobs/issue_invoice", json=job, headers=OPERATOR)
        assert (sent.status_code, sent.json()["key"]) == (202, "1")
        shown = await client.get("/v1/jobs/issue_invoice/1", params={"wait": 30}, headers=OPERATOR)
        assert (shown.json()["status"], shown.json()["result"]) == ("processed", {"title": "Invoice 1"})
        stream = await client.get("/v1/jobs/issue_invoice/1/events", headers=OPERATOR)
        assert "event: end" in stream.text
        large = json.dumps(job | {"number": "x" * 300_000})
        refused = await client.post(
            "/v1/jobs/issue_invoice", content=large, headers=OPERATOR | {"content-type": "application/json"}
        )
        assert (refused.status_code, refused.json()["errorCode"]) == (413, "PAYLOAD_TOO_LARGE")

        async def without_length() -> AsyncIterator[bytes]:
            for start in range(0, len(large), 10_000):
                yield large[start : start + 10_000].encode()

        refused = await client.post(
            "/v1/jobs/issue_invoice", content=without_length(), headers=OPERATOR | {"content-type": "application/json"}
        )
        assert refused.status_code == 413
        refused = await client.post("/v1/jobs/issue_invoice", content="1", headers=OPERATOR)
        assert refused.status_code == 415
        unsigned = await client.post("/v1/events/courier", json={})  # a path that answers without FastAPI
        assert unsigned.status_code == 401
        missing = await client.get("/v1/nothing", headers={"x-request-id": "my-request"})
        assert (missing.status_code, missing.headers["x-request-id"]) == (404, "my-request")
        page = (await client.get("/docs")).text
        link = re.search(r'href="([^"#]*openapi\.json)"', page)[1]
        described = await client.get(httpx.URL(f"{served.url}/jobs-api/docs").join(link))
        assert "/v1/jobs/{workload}" in described.json()["paths"]
        outside = await client.get(f"{served.url}/v1/jobs/issue_invoice/1", headers=OPERATOR)
        assert outside.status_code == 404


async def test_ctrl_c_drains_a_plain_program(tmp_path):
    """``asyncio.run`` cancels the program at Ctrl-C: the end of the body waits for the job in work."""
    program = """
import asyncio
from holdfast import Holdfast
from tests.embedding.web_program import Invoice, app, issue_invoice

async def main():
    async with Holdfast(app) as hold:
        await hold.submit(issue_invoice, Invoice(number="slow", cents=1))
        await asyncio.Event().wait()

asyncio.run(main())
"""
    served = Served(tmp_path)
    served.start_python("-c", program)
    await eventually(lambda: served.began("slow"))
    asyncio.get_running_loop().call_later(0.1, served.open, "slow")
    assert await served.end(signal.SIGINT) in {1, -signal.SIGINT}
    assert "KeyboardInterrupt" in served.log.read_text()
    assert [entry.status for entry in (await served.entries()).values()] == [Status.PROCESSED]


# --- in this process --------------------------------------------------------------------------------------------------


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://holdfast.test")


async def test_before_the_start_and_after_the_stop_requests_are_refused(tmp_path):
    hold = Holdfast(app_with()[0], data=tmp_path / "data", settings=QUICK)
    api = FastAPI(lifespan=hold.lifespan)
    api.mount("/jobs-api", hold.asgi)
    async with client_of(api) as client:
        for _ in range(2):  # a program, and above all a test, may start its app more than once
            refused = await client.get("/jobs-api/ready")
            assert (refused.status_code, refused.json()["errorCode"]) == (503, "SERVICE_UNAVAILABLE")
            assert refused.headers["retry-after"] == "5"
            async with api.router.lifespan_context(api):
                assert (await client.get("/jobs-api/ready")).status_code == 200
        assert (await client.get("/jobs-api/ready")).status_code == 503


async def test_a_lifespan_of_ones_own_has_holdfast_inside(tmp_path):
    app, workload = app_with()
    hold = Holdfast(app, data=tmp_path / "data", settings=QUICK)
    steps: list[str] = []

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[dict[str, Holdfast]]:
        steps.append("opened")
        async with hold.lifespan(api):
            yield {"hold": hold}
        steps.append("closed")

    api = FastAPI(lifespan=lifespan)
    async with api.router.lifespan_context(api) as state:
        await state["hold"].result(await hold.submit(workload, Invoice(number="1", cents=1)))
    assert steps == ["opened", "closed"]


def test_the_client_for_tests_of_fastapi_works(tmp_path):
    """It runs the app in a thread, in an event loop of its own."""
    app, workload = app_with()
    hold = Holdfast(app, data=tmp_path / "data", settings=QUICK)
    api = FastAPI(lifespan=hold.lifespan)
    api.mount("/jobs-api", hold.asgi)

    @api.post("/invoices")
    async def create(invoice: Invoice) -> dict[str, int]:
        return await hold.result(await hold.submit(workload, invoice), timeout=60)

    @api.post("/blocking")
    def create_in_thread(invoice: Invoice) -> str:
        return anyio.from_thread.run(hold.submit, workload, invoice).key

    with TestClient(api) as client:
        assert client.post("/invoices", json={"number": "1", "cents": 7}).json() == {"total": 7}
        assert client.post("/blocking", json={"number": "2", "cents": 7}).json() == "2"
        assert client.get("/jobs-api/v1/jobs/invoices/2?wait=30", headers=OPERATOR).json()["status"] == "processed"
    assert workload.finished == ["1", "2"]


async def test_the_mounted_api_needs_safe_secrets(tmp_path):
    settings = {name: value for name, value in QUICK.items() if name != "operator_token"}
    hold = Holdfast(app_with()[0], data=tmp_path / "data", settings=settings)
    async with hold:
        with pytest.raises(RuntimeError, match="before Holdfast starts"):
            _ = hold.asgi
    _ = hold.asgi
    with pytest.raises(ConfigurationError, match="OPERATOR_TOKEN is not set"):
        await hold.__aenter__()


async def test_the_stop_ends_a_stream_and_answers_a_request_that_has_begun(tmp_path):
    app, workload = app_with()
    hold = Holdfast(app, data=tmp_path / "data", settings=QUICK)
    api = FastAPI()
    api.mount("/jobs-api", hold.asgi)
    async with client_of(api) as client:
        async with hold:
            await hold.submit(workload, Invoice(number="later", cents=1), delay="1h")
            path = "/jobs-api/v1/jobs/invoices/later"
            stream = asyncio.create_task(client.get(f"{path}/events", headers=OPERATOR))
            waits = asyncio.create_task(client.get(path, params={"wait": 60}, headers=OPERATOR))
            await eventually(lambda: hold._running._calls == 2)
            await eventually(lambda: len(hold._running._opened.result().waiting._waits) == 1)
        assert (await stream).status_code == 200
        answer = await waits
        assert (answer.status_code, answer.json()["status"]) == (200, "received")
