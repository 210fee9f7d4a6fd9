"""Write the data of a running version as fixtures: jobs in every state, on SQLite and on MongoDB.

    python tests/support/write_fixtures.py FOLDER

The version that is written is the one that this Python imports as ``holdfast``. The script uses nothing but the
program, its HTTP API and its servers, so any version can run it. ``tests/assets/previous-version/README.md`` has the
commands, and ``tests/support/previous_version.py`` reads the files.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx

COMPANY: Final = "789e4567-e89b-12d3-a456-426614174999"
ENVIRONMENT: Final = {
    "COURIER_SECRETS": json.dumps({"courier-x": ["a-test-secret-of-courier-x-long-enough"]}),
    "OPERATOR_TOKEN": "a-test-token-of-operators-long-enough",
    "COURIER_DOWNSTREAM_SECRET": "a-test-secret-of-the-downstream-long-enough",
    "EMAIL_PEPPER": "a-test-pepper-of-thirty-two-bytes-or-more",
    "EMAIL_KEYS": json.dumps({"first": base64.b64encode(bytes(range(32))).decode()}),
    "EMAIL_FROM": "Acme <mail@example.com>",
}
"""Test secrets. Whoever opens the fixtures needs them, so they are written down beside the data."""

FOLDER: Final = "/the/folder"
"""Stands in the files for the folder that the deployment was in."""

_SLOW_RETRIES: Final = {"RETRY_BACKOFF_BASE_MS": "1800000", "WORKER_LEASE_SECONDS": "10"}
_SECONDS: Final = 60
_TEXT: Final = "The lamp burned all night."


def a_pdf() -> bytes:
    """A PDF of one page, with :data:`_TEXT` on it."""
    content = f"BT /F1 12 Tf 20 50 Td ({_TEXT}) Tj ET"
    objects = (
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 100]/Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )
    text, offsets = "%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        offsets.append(len(text))
        text += f"{number} 0 obj\n{each}\nendobj\n"
    rows = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    table = f"xref\n0 {size}\n0000000000 65535 f \n{rows}trailer\n<< /Size {size} /Root 1 0 R >>\n"
    return f"{text}{table}startxref\n{len(text)}\n%%EOF\n".encode()


class Downstream(BaseHTTPRequestHandler):
    """The system that courier events are forwarded to. The id of an event decides its answer."""

    repaired: bool = False
    """Whether an event that is replayed now succeeds."""
    seen: Final[list[str]] = []
    ended = threading.Event()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        event = body["eventId"]
        self.seen.append(event)
        if event == "evt_processing":
            self.ended.wait(_SECONDS)
            return
        failed = event == "evt_failed"
        dead = event.startswith("evt_dead") and not self.repaired
        self.send_response(503 if failed else 404 if dead else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Stay silent."""


class Deployment:
    """One deployment of the version: its settings, its program and what a sender does."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = {**os.environ, **ENVIRONMENT, **_SLOW_RETRIES, **environment, "LOG_LEVEL": "error"}
        self.environment |= {"API_PORT": "0", "USER": "ana"}
        self.key = ""
        self.emails: dict[str, str] = {}
        self.events: dict[str, str] = {}
        self.address = ""

    # --- the program --------------------------------------------------------------------------------------------------

    def run(self, *arguments: str, url: bool = False) -> Any:
        """``holdfast <arguments> --json``, and its answer."""
        where = ["--url", self.address] if url else []
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments, *where, "--json"],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return json.loads(done.stdout) if done.stdout.strip() else None

    @contextlib.contextmanager
    def running(self, command: str, *, end: signal.Signals, **changes: str) -> Iterator[None]:
        """``holdfast <command>``, until the block is left."""
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", command, "--json"],
            env=self.environment | changes,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            self.address = json.loads(process.stdout.readline())["address"]
            yield
        finally:
            process.send_signal(end)
            process.communicate(timeout=_SECONDS)

    def entries(self) -> dict[str, str]:
        """The status of every job, by workload and key."""
        return {f"{each['workload']} {each['key']}": each["status"] for each in self.listed()}

    def listed(self) -> list[dict[str, Any]]:
        """Every job, as ``events list`` shows it."""
        workloads = ("courier", "email", "documents")
        return [
            each | {"workload": workload}
            for workload in workloads
            for each in self.run("events", "list", "--workload", workload, "--limit", "1000")["items"]
        ]

    # --- a sender -----------------------------------------------------------------------------------------------------

    def send(self, event: str) -> None:
        """A courier's event."""
        instant = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        facts = ("--shipment", f"shp_{event}", "--order", "ord_1", "--occurred-at", instant)
        self.run("send", "--event-id", event, *facts, url=True)
        self.events[event] = instant

    def email(self, name: str, **changes: Any) -> str:
        """An email; answers its id."""
        document = {
            "to": f"{name}@example.com",
            "subject": f"About {name}",
            "html": f"<p>{name}</p>",
            "recipient": {"externalId": name, "nome": "Joana Prado"},
        }
        headers = {"idempotency-key": name}
        receipt = self._accepted("/v1/email/send", json=document | changes, headers=headers)
        self.emails[name] = receipt["outboxId"]
        return self.emails[name]

    def document(self, name: str, content: bytes | None = None) -> None:
        """A file."""
        self._accepted(
            "/v1/documents",
            files={"file": (f"{name}.pdf", (content or a_pdf()) + f"% {name}\n".encode())},
            data={"job_type": "OCR", "input_type": "PDF", "job_id": name},
        )

    def _accepted(self, path: str, **request: Any) -> Any:
        headers = {"authorization": f"Bearer {self.key}"} | request.pop("headers", {})
        answer = httpx.post(self.address + path, headers=headers, **request)
        assert answer.status_code in {200, 202}, answer.text
        return answer.json()


def write_states(deployment: Deployment) -> None:
    """Bring jobs into every state."""
    run = deployment.run
    run("tenants", "add", "Acme", "--id", COMPANY)
    deployment.key = run("keys", "create", "Acme", "--label", "works")["key"]
    with deployment.running("up", end=signal.SIGKILL):
        for event in ("evt_processed", "evt_failed"):
            deployment.send(event)
        for event in ("evt_dead_pending", "evt_dead_reviewed", "evt_dead_replayed", "evt_dead_closed"):
            deployment.send(event)
        deployment.email("sent")
        deployment.document("doc_processed")
        deployment.document("doc_dead", b"%PDF-1.4\nno pages\n")
        wait_until(lambda: not set(deployment.entries().values()) & {"received", "processing"})
        review(deployment)
        deployment.send("evt_processing")
        wait_until(lambda: "evt_processing" in Downstream.seen)
        # The worker is killed with this event in its hands.
    with deployment.running("api", end=signal.SIGTERM, EMAIL_TTL_MS="1000"):
        expired = deployment.email("expired")
        wait_until(lambda: run("emails", "show", expired)["status"] == "EXPIRED")
    with deployment.running("api", end=signal.SIGTERM):
        deployment.send("evt_waiting")
        deployment.document("doc_waiting")
        deployment.document("doc_cancelled")
        run("documents", "cancel", "doc_cancelled")
        deployment.email("waiting")
        deployment.email("delayed_short", delay=3_600_000)
        deployment.email("delayed_long", delay=72_000_000)
        run("emails", "cancel", deployment.email("cancelled"))


def review(deployment: Deployment) -> None:
    """Review three of the four dead letters of courier events, replay one, close another."""
    letters = deployment.run("dlq", "list", "--workload", "courier")["items"]
    ids = {each["idempotencyKey"].partition(":")[2]: each["id"] for each in letters}

    def decide(command: str, event: str, *options: str) -> None:
        deployment.run("dlq", command, ids[event], "--reason", f"{command} it", *options)

    for event in ("evt_dead_reviewed", "evt_dead_replayed", "evt_dead_closed"):
        decide("review", event)
    decide("close", "evt_dead_closed")
    Downstream.repaired = True
    decide("replay", "evt_dead_replayed", "--yes")
    wait_until(lambda: deployment.entries()["courier courier-x:evt_dead_replayed"] == "processed")
    Downstream.repaired = False


def wait_until(condition: Callable[[], Any]) -> None:
    """Return once the condition holds."""
    end = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < end, "not so in time"
        time.sleep(0.1)


def facts(deployment: Deployment) -> dict[str, Any]:
    """Everything that a test must know about the data."""
    made = datetime.now(UTC)
    known = ("workload", "key", "status", "note", "generation", "attemptCount")
    return {
        "madeAt": made.isoformat(timespec="seconds"),
        "environment": ENVIRONMENT,
        "key": deployment.key,
        "entries": [{name: each.get(name) for name in known} for each in deployment.listed()],
        "letters": {each["idempotencyKey"]: each["reviewStatus"] for each in deployment.run("dlq", "list")["items"]},
        "events": deployment.events,
        "emails": deployment.emails,
    }


# --- the two deployments ----------------------------------------------------------------------------------------------


def write_embedded(target: Path, downstream: str) -> None:
    """A data folder: the statements of its SQLite file, and its other files."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "holdfast-data"
        environment = {"HOLDFAST_DATA": str(data), "COURIER_DOWNSTREAM_URL": downstream}
        deployment = Deployment(Path(name), environment)
        write_states(deployment)
        pause = [sys.executable, "-m", "holdfast", "queue", "pause", "email"]
        subprocess.run(pause, env=deployment.environment, cwd=name, check=True, capture_output=True)
        _write(target / "facts.json", json.dumps(facts(deployment), indent=1), deployment.folder)
        with contextlib.closing(sqlite3.connect(data / "holdfast.db")) as connection:
            _write(target / "holdfast.sql", "\n".join(connection.iterdump()), deployment.folder)
        shutil.copytree(data, target / "files", ignore=shutil.ignore_patterns("holdfast.db*"))


def write_cluster(target: Path, downstream: str) -> None:
    """The collections of a database. Redis is left out: a queue may be lost at any time."""
    from bson import json_util
    from pymongo import MongoClient

    from holdfast.cli.servers import start_replica_set, start_valkey

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mongo, redis = start_replica_set(folder / "mongo"), start_valkey(folder / "redis")
        try:
            environment = {
                "MONGO_URI": mongo.uri,
                "REDIS_URL": redis.url,
                "COURIER_DOWNSTREAM_URL": downstream,
                "DOCUMENT_FOLDER": str(folder / "files" / "documents"),
                "EMAIL_FOLDER": str(folder / "files" / "mail"),
            }
            deployment = Deployment(folder, environment)
            deployment.run("migrate")
            write_states(deployment)
            _write(target / "facts.json", json.dumps(facts(deployment), indent=1), deployment.folder)
            with MongoClient(mongo.uri, tz_aware=True) as client:
                database = client["holdfast"]
                for each in sorted(database.list_collection_names()):
                    indexes = [dict(index) for index in database[each].list_indexes()]
                    content = {"indexes": indexes, "records": list(database[each].find(sort=[("_id", 1)]))}
                    text = json_util.dumps(content, indent=1, json_options=json_util.CANONICAL_JSON_OPTIONS)
                    _write(target / "collections" / f"{each}.json", text, folder)
            shutil.copytree(folder / "files", target / "files")
        finally:
            redis.stop()
            mongo.stop()


def _write(path: Path, text: str, folder: Path) -> None:
    """Write a text without the names of this machine: workers are named after it, and results have their full path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = text.replace(f'"{socket.gethostname()}.', '"host.').replace(str(folder), FOLDER)
    path.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Write both fixtures into the folder that the command line names."""
    folder = Path(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Downstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    downstream = f"http://127.0.0.1:{server.server_port}/"
    for deployment, write in (("embedded", write_embedded), ("cluster", write_cluster)):
        Downstream.seen.clear()
        shutil.rmtree(folder / deployment, ignore_errors=True)
        write(folder / deployment, downstream)
    Downstream.ended.set()
    server.shutdown()


if __name__ == "__main__":
    main()
