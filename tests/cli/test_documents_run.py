"""``documents run``: one file from the shell, by the real child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from holdfast.features.documents.commands.options import print_content
from tests.support.pages import encrypted_pdf, image_pdf, page_images, scanned_pdf, text_pdf
from tests.support.program import is_alive, wait_until
from tests.support.recordings import mp4, opus, silence

FIRST, SECOND = "The lamp burned all night.", "Ninguém tinha pressa."


@pytest.fixture(scope="module")
def files():
    return {
        "born.pdf": text_pdf([FIRST, SECOND]),
        "locked.pdf": encrypted_pdf(),
        "program.pdf": b"MZ\x90\x00" + bytes(2000),
        "noise.bin": bytes(range(1, 256)) * 8,
        "empty.pdf": b"",
        "notes.txt": b"To do: everything.\n",
        "silent.mp4": mp4(None),
    }


@pytest.fixture
def folder(home, files):
    for name, content in files.items():
        (home / name).write_bytes(content)
    return home


def left_behind(folder, files):
    return {each.name for each in folder.iterdir()} - set(files)


def test_a_born_digital_pdf_is_printed_and_nothing_is_left_behind(program, folder, files):
    said = program("documents", "run", "born.pdf")
    assert said.code == 0
    assert said.out == f"{FIRST}\n\f{SECOND}\n"
    assert said.err.startswith("Read 2 pages in ")
    assert "\x1b" not in said.err, "there is no terminal"
    assert left_behind(folder, files) == set()


def test_a_damaged_pdf_is_read_with_a_warning_and_refused_with_strict(program, folder):
    whole = (folder / "born.pdf").read_bytes()
    (folder / "cut.pdf").write_bytes(whole.rpartition(b"startxref")[0])
    said = program("documents", "run", "cut.pdf", "--quiet")
    warning = "The end mark is missing: the file may have been cut off, and pages may be missing."
    assert (said.code, said.out, said.err) == (0, f"{FIRST}\n\f{SECOND}\n", f"Warning: {warning}\n")
    assert program("documents", "run", "cut.pdf", "--format", "json").json["warnings"] == [warning]

    said = program("documents", "run", "cut.pdf", "--strict")
    assert (said.code, said.out) == (1, "")
    assert "The PDF is damaged (PDF_CORRUPT, VALIDATION)" in said.err
    assert program("documents", "run", "born.pdf", "--strict").code == 0


def test_other_formats_go_to_a_file_and_quiet_is_quiet(program, folder, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    said = program("documents", "run", "born.pdf", "--format", "json", "-o", "born.json", "--quiet")
    assert (said.code, said.out, said.err) == (0, "", "")
    text = (folder / "born.json").read_text()
    assert '"input_type": "PDF"' in text
    assert SECOND in text, "JSON in UTF-8"


def test_a_scanned_page_is_read(program, home):
    (home / "scan.pdf").write_bytes(scanned_pdf(["One line, scanned in 1897."], size=16))
    said = program("documents", "run", "scan.pdf", "--format", "markdown")
    assert said.code == 0
    assert "# scan.pdf" in said.out
    assert "One line, scanned in 1897." in said.out
    assert "confidence" in said.err


def test_a_person_who_watches_sees_the_pages_go_by(program, folder, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    said = program("documents", "run", "born.pdf")
    assert said.out == f"{FIRST}\n\f{SECOND}\n", "the bar is on standard error only"
    assert "2 of 2 pages" in said.err
    assert "Reading" in said.err


def test_a_recording_whose_first_bytes_leave_open_whether_it_has_pictures_is_read_either_way(program, home):
    (home / "voice.bin").write_bytes(opus(silence(1.0)))
    said = program("documents", "run", "voice.bin", "--language", "en", "--format", "vtt")
    assert said.code == 0, said.err
    assert said.out == "WEBVTT\n\n"
    assert "0:01 of sound" in said.err


@pytest.mark.parametrize(
    ("name", "setting", "words"),
    [
        ("locked.pdf", {}, "The PDF is encrypted (PDF_ENCRYPTED, VALIDATION)"),
        ("silent.mp4", {}, "(NO_AUDIO_TRACK, VALIDATION)"),
        ("born.pdf", {"DOCUMENT_MAX_PAGES": "1"}, "(TOO_LARGE, VALIDATION)"),
    ],
    ids=["encrypted", "no sound", "too many pages"],
)
def test_a_file_that_cannot_be_read_is_told_in_a_line(program, folder, monkeypatch, name, setting, words):
    for each, value in setting.items():
        monkeypatch.setenv(each, value)
    said = program("documents", "run", name)
    assert said.code == 1
    assert said.out == ""
    assert words in said.err.splitlines()[0]
    assert said.err.startswith("Error: ")


def test_a_file_that_is_too_large_is_not_read(program, folder, monkeypatch):
    monkeypatch.setenv("DOCUMENT_MAX_BYTES", "1024")
    (folder / "large.pdf").write_bytes(text_pdf([FIRST] * 3))
    said = program("documents", "run", "large.pdf")
    assert said.code == 1
    assert "(TOO_LARGE, VALIDATION)" in said.err
    assert "DOCUMENT_MAX_BYTES" in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing.pdf",), "There is no file missing.pdf."),
        ((".",), "is not a file"),
        (("program.pdf",), "The file begins like an executable (MZ), not like a PDF."),
        (("program.pdf", "--input-type", "AUDIO"), "not like an audio recording"),
        (("notes.txt",), "plain text"),
        (("empty.pdf",), "The file is empty."),
        (("noise.bin",), "--input-type"),
        (("born.pdf", "--job-type", "TRANSCRIPTION"), "--job-type"),
        (("silent.mp4", "--job-type", "OCR"), "not like a PDF"),
        (("born.pdf", "--format", "srt"), "recordings only"),
        (("silent.mp4", "--format", "markdown"), "PDFs only"),
        (("born.pdf", "--language", "Portuguese"), "--language"),
        (("born.pdf", "--engine", "gemini"), "GEMINI_API_KEY"),
        (("born.pdf", "--output", "born.pdf"), "the file itself"),
        (("born.pdf", "--output", "no/such/folder/out.txt"), "--output"),
        (("born.pdf", "--output", "."), "--output"),
        (("born.pdf", "--format", "html"), "--format"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_asked_wrongly_is_told_before_anything_is_read(program, folder, files, monkeypatch, arguments, words):
    def never(*_, **__):
        pytest.fail("a child was started")

    monkeypatch.setattr("holdfast.features.documents.commands.run.read_in_child", never)
    said = program("documents", "run", *arguments)
    assert said.code == 2
    assert said.out == ""
    assert words in " ".join(said.err.split())
    assert (folder / "born.pdf").read_bytes() == files["born.pdf"]


def test_a_terminal_gets_the_text_without_what_would_steer_it_and_a_pipe_gets_it_as_it_is(capsysbinary, monkeypatch):
    hostile = "caf\u00e9\x1b]0;owned\x07\x9b2J\u202e\n\fp. 2\n".encode()
    print_content(hostile)
    assert capsysbinary.readouterr().out == hostile
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_content(hostile)
    shown = capsysbinary.readouterr().out.decode()
    assert shown == "caf\u00e9\\x1b]0;owned\\x07\\x9b2J\\u202e\n\fp. 2\n"


def test_the_help_has_examples_to_copy(program):
    lines = [line.strip() for line in program("documents", "run", "--help").out.splitlines()]
    assert "holdfast documents run letter.pdf" in lines, "each on a line of its own"


def test_without_the_libraries_it_says_what_to_install(program, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    said = program("documents", "run", "born.pdf")
    assert said.code == 2
    assert "pip install 'holdfast-gateway[documents]'" in said.err


def test_ctrl_c_ends_the_child_too_and_exits_with_130(home):
    pages = page_images(text_pdf([FIRST]), dpi=150) * 20
    (home / "long.pdf").write_bytes(image_pdf(pages, dpi=150))
    command = [sys.executable, "-m", "holdfast", "documents", "run", "long.pdf"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    try:
        children = wait_until(lambda: children_of(process.pid))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert out == ""
    assert err == ""
    assert not any(map(is_alive, children))


def children_of(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-ww", "-o", "pid=,ppid=,args=", "-e"], capture_output=True, text=True, check=True)
    rows = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    return [int(child) for child, parent, args in rows if int(parent) == pid and "documents.child" in args]
