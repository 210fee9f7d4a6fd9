"""``examples/order-sync``: the newcomer's program."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast import Holdfast, JobFailed
from tests.support.program import ROOT

FOLDER = ROOT / "examples" / "order-sync"
MOST_LINES = 60


def test_the_program_and_its_test_have_sixty_lines_at_most():
    lines = [line for file in FOLDER.glob("*.py") for line in file.read_text(encoding="utf-8").splitlines()]

    assert 0 < len([line for line in lines if line.strip()]) <= MOST_LINES


def test_its_own_tests_pass(environment):
    plugin = ("-p", "holdfast.testing.plugin")  # installed, it is found by its entry point
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *plugin, FOLDER],
        env=environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


@pytest.fixture
def warehouse():
    """A real server. It takes an order at the second try, and refuses the order 13."""
    tries: Counter[str] = Counter()

    class Warehouse(BaseHTTPRequestHandler):
        def do_PUT(self):
            self.rfile.read(int(self.headers["content-length"]))
            tries[self.path] += 1
            self.answer(422 if self.path == "/orders/13" else 503 if tries[self.path] == 1 else 200)

        def do_POST(self):
            tries[self.path] += 1
            self.answer(200)

        def answer(self, status):
            content = json.dumps({"place": "B-2"}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Warehouse)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server, tries
    server.shutdown()
    thread.join()
    server.server_close()


async def test_it_runs_against_a_real_server(warehouse, load, monkeypatch):
    server, tries = warehouse
    monkeypatch.setenv("WAREHOUSE_URL", f"http://127.0.0.1:{server.server_address[1]}")
    orders = load("order-sync", "orders")

    async with orders.warehouse, Holdfast(orders.app, data="data") as hold:
        good = await hold.submit(orders.sync_order, orders.Order(shop="north", number="7"))
        wrong = await hold.submit(orders.sync_order, orders.Order(shop="north", number="13"))

        assert await hold.result(good, timeout="60s") == "B-2"
        with pytest.raises(JobFailed, match="HTTP_422"):
            await hold.result(wrong, timeout="60s")
        (confirmed,) = [each async for each in hold.jobs(orders.confirm_order)]
        assert confirmed.key == "7"
    assert (tries["/orders/7"], tries["/orders/13"]) == (2, 1)
