"""Requests that nobody would send, to the whole surface of a running API (I18).

``make test`` sends some thousands; ``make fuzz`` sends HOLDFAST_FUZZ_CASES and prints figures. The same requests come
again with HOLDFAST_FUZZ_SEED.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

import httpx
import pytest

from holdfast.cli import main
from tests.cli.commands import APP, ENVIRONMENT, SECRET, TOKEN
from tests.support.fuzzing import Author, Fuzzer, Secrets
from tests.support.program import started, stop
from tests.support.pulse import pulse
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="The memory of a process is read from /proc.")

CASES = int(os.environ.get("HOLDFAST_FUZZ_CASES", "3000"))
SEED = int(os.environ.get("HOLDFAST_FUZZ_SEED", str(random.SystemRandom().randrange(2**32))))
SLOW = 1.0 if "HOLDFAST_FUZZ_CASES" in os.environ else 20.0
"""Seconds that an answer may take, of a request that is slow each time. A machine that runs all tests is a busy one."""
MOST_GROWTH = 64 * 1024 * 1024
MANY = "1000000"
SETTINGS = {
    "LOG_LEVEL": "warning",
    # All requests come from one address: what is tested here is behind the limits of an address and of a tenant.
    "API_MAX_CONNECTIONS_PER_ADDRESS": "100",
    "TENANT_REQUESTS_PER_SECOND": MANY,
    "TENANT_WAITING_JOBS": MANY,
    "COURIER_REQUESTS_PER_SECOND": MANY,
    "AUTH_FAILURES_PER_MINUTE": MANY,
}


@pytest.fixture
def secrets(tmp_path, monkeypatch, capsys) -> Secrets:
    """Those of an operator, a courier and two tenants. One tenant may only read documents."""
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "holdfast-data"))
    keys = []
    for name, *scopes in (("acme",), ("other", "--scope", "documents:read")):
        assert main(["tenants", "add", name]) == 0
        capsys.readouterr()
        assert main(["keys", "create", name, "--json", *scopes]) == 0
        keys.append(json.loads(capsys.readouterr().out)["key"])
    return Secrets(operator=TOKEN, source="courier-x", courier=SECRET, keys=(keys[0], keys[0], keys[1]))


def memory_of(pid: int) -> int:
    """Bytes of real memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.timeout(7_200)
async def test_no_request_breaks_the_api(tmp_path, secrets, tell):
    print(f"HOLDFAST_FUZZ_SEED={SEED}")
    with started(tmp_path, ENVIRONMENT | SETTINGS, "api", "--port", "0", "--json", "--app", APP) as server:
        port, pid = int(server.address.rpartition(":")[2]), server.process.pid
        async with httpx.AsyncClient(base_url=server.address, timeout=60) as client:
            document = (await client.get("/openapi.json")).raise_for_status().json()
        fuzzer = Fuzzer(port, Author(document, secrets, SEED), SLOW)
        async with pulse(port, patience=30) as beat:
            await fuzzer.send(CASES // 3)
            before = memory_of(pid)
            await fuzzer.send(CASES - fuzzer.run.cases)
        after = memory_of(pid)
        run = fuzzer.run
        tell(
            {
                "seed": SEED,
                "cases": run.cases,
                "answers": dict(sorted(run.statuses.items())),
                "closed without an answer": run.unanswered,
                "slowest answer": f"{run.slowest * 1000:.0f} ms",
                "longest wait for /health": f"{beat.longest * 1000:.0f} ms",
                "memory in MB": f"{before / 2**20:.0f} then {after / 2**20:.0f}",
                "findings": len(run.findings),
            }
        )
        assert not run.findings, "\n".join(run.findings)
        assert {200, 202} <= set(run.statuses), f"nothing was right, so little was tested: {run.statuses}"
        assert after - before < MOST_GROWTH
        assert server.process.poll() is None
        async with pulse(port) as beat:
            await eventually(lambda: beat.waits)
        stop(server)
    log = server.log.read_text()
    assert "Traceback" not in log
    assert '"api.unexpected"' not in log
