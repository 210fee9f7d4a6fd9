"""Data of the previous version opens, and its jobs go on: a data folder, and a MongoDB whose Redis is lost."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from pymongo import MongoClient

from holdfast.cli import main
from tests.support.previous_version import facts_of, load_cluster, load_embedded
from tests.support.program import started, stop, wait_until
from tests.support.settings import Settings
from tests.support.valkey_server import RedisPlace, forget

pytestmark = pytest.mark.slow

OPEN_EVENTS = ("evt_waiting", "evt_failed", "evt_processing")
SETTLED_EVENTS = ("evt_processed", "evt_dead_pending", "evt_dead_reviewed", "evt_dead_replayed", "evt_dead_closed")


@dataclass
class Deployment:
    """The data of the previous version, with the present program on it."""

    name: str
    folder: Path
    environment: dict[str, str]
    downstream: Counter[str]
    capsys: pytest.CaptureFixture[str]
    facts: dict[str, Any] = field(init=False)
    address: str = ""

    def __post_init__(self) -> None:
        self.facts = facts_of(self.name)

    def run(self, *arguments: str, code: int = 0) -> Any:
        """``holdfast <arguments>`` in this process, which must end with this exit code; its answer."""
        self.capsys.readouterr()
        ended = main(arguments)
        said = self.capsys.readouterr()
        assert ended == code, (arguments, said.out, said.err)
        return json.loads(said.out) if "--json" in arguments and code == 0 else None

    def show(self, *arguments: str) -> Any:
        """``holdfast <arguments> --json``, and its answer."""
        return self.run(*arguments, "--json")

    def entries(self) -> dict[str, dict[str, Any]]:
        """Every job of every workload, by its key."""
        return {
            each["key"]: each | {"workload": workload}
            for workload in ("courier", "email", "documents")
            for each in self.show("events", "list", "--workload", workload, "--limit", "1000")["items"]
        }

    def event(self, name: str) -> dict[str, Any]:
        return self.show("events", "show", f"courier-x:{name}")

    def email(self, name: str) -> str:
        """The status of an email."""
        return self.show("emails", "show", self.facts["emails"][name])["status"]

    def send_again(self, event: str) -> dict[str, Any]:
        """Send an event of the previous version once more, with the same content."""
        occurred = self.facts["events"][event]
        named = ("--event-id", event, "--shipment", f"shp_{event}", "--order", "ord_1", "--occurred-at", occurred)
        return self.show("send", *named, "--url", self.address)

    def letters(self) -> dict[str, dict[str, Any]]:
        """Every dead letter, by the key of its job."""
        return {each["idempotencyKey"]: each for each in self.show("dlq", "list", "--limit", "1000")["items"]}

    def mail(self) -> list[str]:
        """The emails that were sent."""
        folder = Path(self.environment.get("EMAIL_FOLDER") or Path(self.environment["HOLDFAST_DATA"]) / "mail")
        return sorted(path.stem for path in folder.glob("*.eml"))


@pytest.fixture
def downstream() -> Iterator[tuple[str, Counter[str]]]:
    """A system that takes every courier event and counts it."""
    taken: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken[json.loads(self.rfile.read(int(self.headers["content-length"])))["eventId"]] += 1
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", taken
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=["embedded", "cluster"])
def deployment(request, tmp_path, monkeypatch, capsys, downstream) -> Iterator[Deployment]:
    """Either deployment of the previous version. ``holdfast migrate`` has run on the cluster, and on nothing else."""
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    url, taken = downstream
    environment = {"COURIER_DOWNSTREAM_URL": url, "UPKEEP_INTERVAL_MS": "50", "API_PORT": "0", "USER": "ana"}
    environment |= facts_of(request.param)["environment"]
    # An event is sent again as it was, so that its fingerprint is the same: it may be years old by now.
    environment["PROCESSED_EVENTS_TTL_DAYS"] = "3650"
    redis = None
    if request.param == "embedded":
        environment |= load_embedded(tmp_path)
    else:
        mongo, database = request.getfixturevalue("mongo"), request.getfixturevalue("mongo_database")
        redis = RedisPlace(request.getfixturevalue("valkey").url, f"hf{uuid.uuid4().hex[:12]}")
        with MongoClient(mongo.uri, tz_aware=True) as client:
            environment |= load_cluster(tmp_path, client[database])
        environment |= {"MONGO_URI": mongo.uri, "MONGO_DB_NAME": database}
        environment |= {"REDIS_URL": redis.url, "QUEUE_PREFIX": redis.prefix}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    made = Deployment(request.param, tmp_path, environment, taken, capsys)
    if redis is not None:
        made.run("migrate")
    yield made
    if redis is not None:
        forget(redis)


@pytest.fixture
def running(deployment) -> Iterator[Deployment]:
    """The present version runs on the data: API, worker and maintenance."""
    with started(deployment.folder, deployment.environment, "up", "--json") as server:
        deployment.address = server.address
        yield deployment
        stop(server)


def test_every_job_is_listed_as_the_previous_version_left_it(deployment):
    kept = ("workload", "status", "note", "generation", "attemptCount")
    expected = {each["key"]: {name: each[name] for name in kept} for each in deployment.facts["entries"]}

    assert {key: {name: each[name] for name in kept} for key, each in deployment.entries().items()} == expected
    reviewed = {key: each["reviewStatus"] for key, each in deployment.letters().items()}
    assert reviewed == deployment.facts["letters"]
    assert set(reviewed.values()) == {"pending", "reviewed", "replayed", "closed"}
    assert [each["name"] for each in deployment.show("tenants", "list")] == ["Acme"]
    assert deployment.show("documents", "show", "doc_processed")["result"]["pages"] == 1
    if deployment.name == "embedded":  # in a cluster, Redis knows which queues are paused, and Redis was lost
        paused = {each["queue"] for each in deployment.show("queue", "status") if each["paused"]}
        assert paused == {"email:send"}


def test_nothing_is_left_to_migrate(deployment):
    assert deployment.show("migrate")["done"] == []
    assert deployment.show("doctor")["failed"] == 0


def test_open_jobs_are_finished_once_and_settled_jobs_stay(running):
    keys = [f"courier-x:{event}" for event in OPEN_EVENTS]
    wait_until(lambda: {running.entries()[key]["status"] for key in (*keys, "doc_waiting")} == {"processed"})

    assert [each["outcome"] for each in running.event("evt_failed")["attemptHistory"]] == ["failed", "succeeded"]
    assert [each["outcome"] for each in running.event("evt_processing")["attemptHistory"]] == ["lost", "succeeded"]
    assert [each["outcome"] for each in running.event("evt_waiting")["attemptHistory"]] == ["succeeded"]
    assert running.show("documents", "show", "doc_waiting")["result"]["pages"] == 1

    if running.name == "embedded":
        assert [running.email(name) for name in ("waiting", "delayed_short")] == ["ENQUEUED", "ENQUEUED"]
        assert running.mail() == [running.facts["emails"]["sent"]], "the queue is still paused"
        running.run("queue", "resume", "email")
    wait_until(lambda: [running.email(name) for name in ("waiting", "delayed_short")] == ["SENT", "SENT"])
    sent = [running.facts["emails"][name] for name in ("sent", "waiting", "delayed_short")]
    assert running.mail() == sorted(sent)

    assert running.email("delayed_long") == "ENQUEUED"
    assert running.email("cancelled") == "CANCELLED"
    assert running.email("expired") == "EXPIRED"
    found = running.entries()
    settled = [each for each in running.facts["entries"] if each["status"] in {"processed", "dead_lettered", "expired"}]
    assert {each["key"]: found[each["key"]]["status"] for each in settled} == {
        each["key"]: each["status"] for each in settled
    }
    assert found["doc_cancelled"]["note"] == "withdrawn"
    assert running.downstream == dict.fromkeys(OPEN_EVENTS, 1)


def test_a_duplicate_of_a_settled_job_is_still_known(running):
    for event in SETTLED_EVENTS:
        assert running.send_again(event)["duplicate"] is True
    answer = httpx.post(
        f"{running.address}/v1/email/send",
        headers={"authorization": f"Bearer {running.facts['key']}", "idempotency-key": "sent"},
        json={
            "to": "sent@example.com",
            "subject": "About sent",
            "html": "<p>sent</p>",
            "recipient": {"externalId": "sent", "nome": "Joana Prado"},
        },
    )
    assert (answer.status_code, answer.json()["duplicate"]) == (202, True)
    assert answer.json()["outboxId"] == running.facts["emails"]["sent"]
    wait_until(lambda: running.event("evt_waiting")["status"] == "processed")
    assert set(running.downstream).isdisjoint(SETTLED_EVENTS)
    assert running.mail().count(running.facts["emails"]["sent"]) == 1


def test_dead_letters_are_reviewed_replayed_and_closed(running):
    ids = {key.partition(":")[2]: each["id"] for key, each in running.letters().items()}

    def decide(step: str, event: str, *options: str, code: int = 0) -> None:
        running.run("dlq", step, ids[event], "--reason", "The downstream is repaired.", *options, code=code)

    decide("review", "evt_dead_pending")
    decide("replay", "evt_dead_pending", "--yes")
    decide("replay", "evt_dead_reviewed", "--yes")
    decide("close", "evt_dead_replayed")
    decide("replay", "evt_dead_closed", "--yes", code=1)

    for event in ("evt_dead_pending", "evt_dead_reviewed"):
        wait_until(lambda event=event: running.event(event)["status"] == "processed")
        assert (running.event(event)["generation"], running.downstream[event]) == (2, 1)
    letters = {key.partition(":")[2]: each["reviewStatus"] for key, each in running.letters().items()}
    assert letters["evt_dead_pending"] == letters["evt_dead_reviewed"] == "replayed"
    assert letters["evt_dead_replayed"] == letters["evt_dead_closed"] == "closed"
    assert running.downstream["evt_dead_closed"] == 0
