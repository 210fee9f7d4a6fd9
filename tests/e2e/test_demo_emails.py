"""The chapters of ``holdfast demo`` on emails: they tell a wrong fate, and stay away where they cannot be told."""

from __future__ import annotations

import re
import sys
from functools import partial

import pytest

from holdfast import demo
from holdfast.cli import main
from holdfast.demo import Embedded, take_tour
from holdfast.demo.courier import EVENTS
from holdfast.demo.emails import EMAILS, INVOICE
from holdfast.demo.stage import Chapter
from tests.support.demo import ticked, tour

pytestmark = pytest.mark.slow

GOOD = EVENTS.chapters[0]
SENT, HELD_UP, REFUSED, EXPIRED = EMAILS.chapters


def sabotage(how) -> Chapter:
    def ruin(stage):
        how(stage)
        return "ruined"

    return Chapter("sabotage", "ruined", ruin)


# --- when things are not as they should be ------------------------------------------------------------------------


def test_the_exit_code_tells_that_the_email_did_not_meet_its_fate(tmp_path, monkeypatch, capsys):
    chapters = [sabotage(lambda stage: stage.mail.refused.add(INVOICE.to)), SENT]
    monkeypatch.setattr(demo, "take_tour", partial(take_tour, chapters=chapters))
    assert main(["demo", "--fast", "--data", str(tmp_path / "tour")]) == 1
    told = capsys.readouterr().out
    assert ticked(told) == ["sabotage"]
    assert re.search(r"✗ │ an email +│ [^│]+│ 202, FAILED, received 0 times", told)


def test_an_email_that_names_somebody_in_the_log_is_told(tmp_path):
    def gossip(stage):
        with (tmp_path / "server.log").open("a", encoding="utf-8") as log:
            log.write(f"sent an email to {INVOICE.nome}\n")

    well, told = tour(tmp_path, chapters=[sabotage(gossip), SENT])
    assert not well
    assert re.search(r"✗ │ an email +│ [^│]+│ 202, SENT, received once, named in clear", told)


def test_a_mail_server_that_was_never_down_is_not_the_story(tmp_path):
    def never_break(stage):
        stage.mail.break_down = lambda: None

    well, told = tour(tmp_path, chapters=[sabotage(never_break), HELD_UP])
    assert not well
    assert re.search(r"✗ │ a mail server that is down +│ [^│]+│ 202, SENT after None, SENT,", told)


def test_an_unknown_address_that_is_known_and_a_queue_that_is_not_paused_are_not_the_story(tmp_path):
    class Nobody(set):
        def add(self, address):
            pass

    def be_kind(stage):
        stage.mail.refused = Nobody()
        run = stage.server.run
        stage.server.run = lambda arguments, seconds: run(
            ["queue", "status"] if "pause" in arguments else arguments, seconds
        )

    well, told = tour(tmp_path, chapters=[sabotage(be_kind), REFUSED, EXPIRED])
    assert not well
    assert re.search(r"✗ │ a refused email +│ [^│]+│ 0 dead letters instead of one", told)
    assert re.search(r"✗ │ an email too late +│ [^│]+│ 202, SENT, offered 1 times", told)


def test_a_command_that_fails_is_told_and_the_next_chapter_is_played(tmp_path):
    def deny(stage):
        run = stage.server.run
        stage.server.run = lambda arguments, seconds: run(["no-such-command"], seconds)

    well, told = tour(tmp_path, chapters=[sabotage(deny), SENT, GOOD])
    assert not well
    assert re.search(r"✗ │ an email +│ [^│]+│ `tenants add` ended with exit code 2", told)
    assert ticked(told) == ["sabotage", "a good event"]


# --- the parts ----------------------------------------------------------------------------------------------------


def test_without_the_libraries_it_says_so_and_leaves_emails_and_documents_out(tmp_path, monkeypatch):
    class Short(Embedded):
        parts = (EVENTS._replace(chapters=[GOOD]), *Embedded.parts[1:])

    for library in ("aiosmtplib", "rapidocr"):
        monkeypatch.setitem(sys.modules, library, None)
    well, told = tour(tmp_path, Short)
    assert well, told
    assert "emails are skipped: aiosmtplib not installed." in told
    assert "documents are skipped: rapidocr not installed." in told
    assert "pip install 'holdfast-gateway[email]'" in told
    assert "pip install 'holdfast-gateway[documents]'" in told
    assert ticked(told) == ["a good event"]
    assert re.search("EMAIL_|DOCUMENT_", told) is None
    assert re.search(r"(emails|documents) list|text\.txt", told) is None
