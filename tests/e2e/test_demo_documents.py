"""The chapters of ``holdfast demo`` on documents: they tell a wrong fate."""

from __future__ import annotations

import pypdfium2
import pytest

from holdfast.demo import documents
from holdfast.demo.documents import DOCUMENTS as ON_DOCUMENTS
from holdfast.demo.documents import INBOX, LATE_FILE, LOGBOOK, printed_page, scanned_page
from holdfast.demo.stage import Chapter
from tests.support.demo import tour

pytestmark = pytest.mark.slow

SCANNED, MISSING, REPLAYED = ON_DOCUMENTS.chapters


def sabotage(how) -> Chapter:
    def ruin(stage):
        how(stage)
        return "ruined"

    return Chapter("sabotage", "ruined", ruin)


def fates(told: str) -> dict[str, str]:
    """What became of each, by the table at the end. A long fate goes on in the lines below."""
    actual: dict[str, str] = {}
    name = ""
    for line in told.partition("What became of everything")[2].splitlines():
        cells = [cell.strip() for cell in line.split("│")[1:-1]]
        if len(cells) == 4 and cells[1] != "event":
            name = cells[1] or name
            actual[name] = f"{actual.get(name, '')} {cells[3]}".strip()
    return actual


def text_of(content: bytes) -> list[str]:
    with pypdfium2.PdfDocument(content) as document:
        return document[0].get_textpage().get_text_bounded().splitlines()


def test_a_scan_has_no_text_in_it_and_a_printed_page_has():
    assert text_of(scanned_page(LOGBOOK)) == []
    assert text_of(printed_page(["(a) line\\", "and another"])) == ["(a) line\\", "and another"]


# --- when things are not as they should be ------------------------------------------------------------------------


def test_a_wrong_word_and_a_wrong_dead_letter_are_told(tmp_path, monkeypatch):
    printed = documents.printed_page

    def lie(stage):
        queued = stage.queued
        stage.queued = lambda name: [{**each, "error_type": "SYSTEM"} for each in queued(name)]

    # With its text in it, so that nothing has to be recognised.
    monkeypatch.setattr(
        documents, "scanned_page", lambda lines: printed([*lines[:-1], "My daughter broke the lenses."])
    )
    monkeypatch.setattr(documents, "printed_page", lambda lines: printed(lines[:2]))
    well, told = tour(tmp_path, chapters=[sabotage(lie), *ON_DOCUMENTS.chapters])
    assert not well
    assert fates(told) == {
        "sabotage": "ruined",
        "a scanned page": "202, COMPLETED, 33 of 34 words as printed",
        "a missing file": "202, FAILED after 3 attempts, not the truth about error_type in doc_jobs_dead",
        "its replay as a new job": "a new job COMPLETED, 13 of 19 words as printed, the first still FAILED, "
        "dead letter closed",
    }


def test_a_file_that_is_there_is_not_the_story(tmp_path):
    def put_it_there(stage):
        file = stage.folder / INBOX / LATE_FILE
        file.parent.mkdir(parents=True)
        file.write_bytes(printed_page(["already here"]))

    well, told = tour(tmp_path, chapters=[sabotage(put_it_there), MISSING, REPLAYED])
    assert not well
    nothing = "0 dead letters instead of one"
    assert fates(told) == {"sabotage": "ruined", "a missing file": nothing, "its replay as a new job": nothing}
