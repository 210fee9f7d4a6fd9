"""``holdfast demo``, for real: it starts the program, and its exit code can be believed."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path

import pytest
from rich.console import Console

from holdfast import demo
from holdfast.cli import main
from holdfast.contracts.errors import ConfigurationError
from holdfast.demo import MAILBOX, NOT_REACHED, Embedded, claim, take_tour, unused
from holdfast.demo.courier import EVENTS, GOOD
from holdfast.demo.documents import DOCUMENTS as ON_DOCUMENTS
from holdfast.demo.documents import FOLDER, LETTER, LOGBOOK
from holdfast.demo.emails import EMAILS, INVOICE, LATE, MISTYPED, PATIENT
from holdfast.demo.narration import Narrator
from holdfast.demo.servers import LOG_FILE
from holdfast.demo.stage import Chapter
from tests.support.demo import environment, run_demo, start_demo, ticked, told_until, tour

CHAPTERS = EVENTS.chapters
DATABASE = "holdfast.db"

pytestmark = pytest.mark.slow


def rows(folder: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        return connection.execute(query).fetchall()


# --- the whole tour -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("demo") / "tour"
    return folder, run_demo(folder)


def test_ends_well_and_lists_every_fate(finished):
    _, done = finished
    assert done.returncode == 0, done.stdout + done.stderr
    table = done.stdout.partition("What became of everything")[2]
    chapters = [*CHAPTERS, *EMAILS.chapters, *ON_DOCUMENTS.chapters]
    assert ticked(done.stdout) == [chapter.name for chapter in chapters]
    assert "✗" not in table
    assert f"All {len(chapters)} fates are as expected." in table
    assert done.stderr == ""


def test_tells_the_shortened_settings_with_their_defaults(finished):
    _, done = finished
    assert re.search(r"RETRY_BACKOFF_BASE_MS +300 +\(default 1,000\)", done.stdout)
    assert re.search(r"EMAIL_BACKOFF_SECONDS +1, 2, 3, 4, 5 +\(default 1, 5, 30, 120, 600\)", done.stdout)
    assert re.search(r"EMAIL_TTL_MS +6,000 +\(default 86,400,000\)", done.stdout)
    assert re.search(r"DOCUMENT_RETRY_BASE_MS +300 +\(default 5,000\)", done.stdout)


def test_uses_no_colour_where_there_is_no_terminal(finished):
    _, done = finished
    assert "\x1b" not in done.stdout


def test_leaves_its_data_to_look_at(finished):
    folder, _ = finished
    events = rows(
        folder, "SELECT eventId, status, generation, attemptCount, note FROM processed_events ORDER BY eventId"
    )
    assert events == [
        ("evt_1", "processed", 1, 1, None),
        ("evt_2", "processed", 1, 1, "ignored_stale"),
        ("evt_4", "processed", 1, 3, None),
        ("evt_5", "processed", 2, 1, None),
        ("evt_6", "processed", 1, 2, None),
    ]
    assert rows(folder, "SELECT shipmentId, currentState FROM active_shipments ORDER BY shipmentId") == [
        ("shp_100", "out_for_delivery"),
        ("shp_200", "delivered"),
        ("shp_300", "delivered"),
        ("shp_400", "delivered"),
    ]
    letters = rows(folder, "SELECT eventId, terminalReasonCode, attemptCount, reviewStatus FROM dead_letter_events")
    assert letters == [("evt_5", "DOWNSTREAM_HTTP_503_EXHAUSTED", 5, "closed")]
    assert (folder / LOG_FILE).read_text(encoding="utf-8").count("worker.started") == 2  # one of them was killed


def test_leaves_its_emails_to_look_at(finished):
    folder, _ = finished
    emails = rows(folder, "SELECT body ->> '$.externalId', status, body ->> '$.to' FROM email_outbox ORDER BY 1")
    assert emails == [
        ("CUST-1", "SENT", "b***@e***.com"),
        ("CUST-2", "SENT", "c***@e***.com"),
        ("CUST-3", "FAILED", "d***@e***.com"),
        ("CUST-4", "EXPIRED", "e***@e***.com"),
    ]
    letters = rows(folder, "SELECT reason_code, review_status FROM dead_letters WHERE workload = 'email'")
    assert letters == [("SMTP_550", "closed")]
    texts = [file.read_text(encoding="utf-8") for file in sorted((folder / MAILBOX).iterdir())]
    assert [re.findall(r"^To: (.*)$", text, flags=re.MULTILINE) for text in texts] == [[INVOICE.to], [PATIENT.to]]


def test_leaves_what_it_read_to_look_at(finished):
    folder, done = finished
    told = "SELECT coalesce(given_id, job_id), status, body ->> '$.replay_of', body ->> '$.replayed_as'"
    jobs = rows(folder, f"{told} FROM document_jobs ORDER BY body ->> '$.accepted_at'")
    keys = dict(rows(folder, "SELECT coalesce(given_id, job_id), job_id FROM document_jobs"))
    scan, replay = jobs[0][0], jobs[2][0]
    assert jobs == [
        (scan, "COMPLETED", None, None),
        ("ocr-009", "FAILED", None, replay),
        (replay, "COMPLETED", "ocr-009", None),
    ]
    for job_id, lines in ((scan, LOGBOOK), (replay, LETTER)):
        results = folder / FOLDER / "results" / keys[job_id] / "1"
        assert sorted(file.name for file in results.iterdir()) == ["document.md", "result.json", "text.txt"]
        for name in ("document.md", "text.txt"):
            text = (results / name).read_text(encoding="utf-8")
            assert [line for line in lines if line not in text.replace("\\", "")] == [], name
        assert all(line in done.stdout for line in lines)
    letters = rows(folder, "SELECT reason_code, review_status FROM dead_letters WHERE workload = 'documents'")
    assert letters == [("FILE_NOT_FOUND", "closed")]


def test_shows_the_stages_of_the_reading_and_the_dead_letter_of_the_specification(finished):
    _, done = finished
    stages = re.findall(r"^ +\+[\d.]+ s +([A-Z]+) +([a-z]+) +(\d+) %", done.stdout, flags=re.MULTILINE)
    assert stages[-1] == ("COMPLETED", "finished", "100")
    assert "PROCESSING" in {status for status, _, _ in stages}
    (letter,) = re.findall(r"^ +\{\n.*?^ +\}$", done.stdout, flags=re.MULTILINE | re.DOTALL)
    told = json.loads(letter)
    assert datetime.fromisoformat(told.pop("failed_at")).tzinfo is not None
    assert told.pop("worker_id")
    assert told == {
        "job_id": "ocr-009",
        "job_type": "OCR",
        "input_type": "PDF",
        "payload": {"local_path": "samples/missing.pdf"},
        "status": "FAILED",
        "error": "File not found: samples/missing.pdf",
        "error_type": "IO",
        "attempts": 3,
        "max_attempts": 3,
        "schema_version": "v1",
    }


def test_names_nobody_where_others_look(finished):
    folder, _ = finished
    people = {word for note in (INVOICE, PATIENT, MISTYPED, LATE) for word in note.personal}
    assert {INVOICE.to, INVOICE.nome, INVOICE.cpf} < people
    log = (folder / LOG_FILE).read_text(encoding="utf-8")
    outbox = str(rows(folder, "SELECT * FROM email_outbox"))
    assert [word for word in people if word in log or word in outbox] == []


def test_every_command_that_it_recommends_works(finished):
    folder, done = finished
    recommended = re.findall(r"^  (holdfast .*)$", done.stdout, flags=re.MULTILINE)
    assert len(recommended) == 5
    for line in recommended:
        run = subprocess.run(
            ["bash", "-c", line], cwd=folder.parent, env=environment(), capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, line + run.stderr
        told = {"emails": "EXPIRED", "documents": "ocr-009"}.get(line.split()[1], "demo-courier:evt_")
        assert told in run.stdout, line


def test_leaves_no_process_behind(finished):
    _, done = finished
    pids = re.findall(r"process (\d+)\.", done.stdout)
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


# --- when things are not as they should be ------------------------------------------------------------------------


def test_an_event_with_another_fate_is_told_and_fails_the_demo(tmp_path, monkeypatch, capsys):
    def refuse(stage):
        stage.downstream.answers[GOOD.key] = [HTTPStatus.UNPROCESSABLE_ENTITY]
        return CHAPTERS[0].play(stage)

    monkeypatch.setattr(demo, "take_tour", partial(take_tour, chapters=[CHAPTERS[0]._replace(play=refuse)]))
    assert main(["demo", "--fast", "--data", str(tmp_path / "tour")]) == 1
    told = capsys.readouterr().out
    assert re.search(r"✗ │ a good event +│ 202, processed, forwarded once +│ 202, dead_lettered, forwarded once", told)
    assert "1 of 1 fates are not as expected" in told


def test_a_chapter_that_goes_wrong_does_not_hide_the_next(tmp_path):
    # Nobody wrote the dead letter that the replay needs.
    replay = next(chapter for chapter in CHAPTERS if chapter.name == "its replay by a person")
    well, told = tour(tmp_path, chapters=[replay, CHAPTERS[0]])
    assert not well
    assert "0 dead letters instead of one" in told
    assert "✓ │ a good event" in told


def test_a_server_that_does_not_start_is_told_with_its_log(tmp_path):
    class Broken(Embedded):
        up = (sys.executable, "-c", "import sys; sys.exit('the disk is made of cheese')")

    well, told = tour(tmp_path, Broken)
    assert not well
    assert "ended with exit code 1, and did not answer" in told
    assert "the disk is made of cheese" in told


def test_a_server_that_dies_leaves_the_other_fates_unreached(tmp_path):
    def die(stage):
        stage.server.kill()
        return "as planned"

    last_words = Chapter("the end", "as planned", die)
    well, told = tour(tmp_path, chapters=[last_words, CHAPTERS[0]])
    assert not well
    assert re.search(rf"✗ │ a good event +│ [^│]+│ {NOT_REACHED}", told)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_server_too(tmp_path, number, code):
    folder = tmp_path / "stopped"
    with start_demo(folder) as demo:
        up = told_until(demo, r"The server is up: process (\d+)\.")
        demo.send_signal(number)
        demo.communicate(timeout=60)
    assert demo.returncode == code
    with pytest.raises(ProcessLookupError):
        os.kill(int(up[1]), 0)


# --- the folder ---------------------------------------------------------------------------------------------------


def test_refuses_a_folder_that_it_did_not_make(tmp_path):
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / DATABASE).write_bytes(b"irreplaceable")
    done = run_demo(folder)
    assert done.returncode == 2
    assert "is not empty. Nothing was changed. Name a new or empty folder" in done.stderr
    assert "Traceback" not in done.stderr
    assert [each.name for each in folder.iterdir()] == [DATABASE]
    assert (folder / DATABASE).read_bytes() == b"irreplaceable"


def test_refuses_a_file(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot use"):
        claim(tmp_path / "file")


def test_two_demos_do_not_share_a_folder(tmp_path):
    claim(tmp_path)
    with pytest.raises(ConfigurationError, match="is not empty"):
        claim(tmp_path)


def test_without_a_name_each_demo_takes_a_new_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = []
    for _ in range(3):
        folder = unused("holdfast-demo")
        claim(folder)
        names.append(folder.name)
    assert names == ["holdfast-demo", "holdfast-demo-2", "holdfast-demo-3"]


# --- the parts ----------------------------------------------------------------------------------------------------


def test_no_fates_are_not_good_fates():
    narrator = Narrator(Console(file=io.StringIO()), fast=True)
    good, bad = ("a", "processed", "processed"), ("b", "processed", "dead_lettered")
    assert not narrator.closing([], 1)
    assert narrator.closing([good], 1)
    assert not narrator.closing([good, bad], 1)
