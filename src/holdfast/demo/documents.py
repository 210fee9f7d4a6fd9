"""The chapters on documents: a scanned page, and a missing file that arrives later."""

from __future__ import annotations

import ctypes
import io
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final

from holdfast.features.documents.feature import LIBRARIES

from .folder import INBOX, LATE_FILE
from .narration import shown
from .stage import Body, Part, Stage, Unexpected, chapter

_PATH: Final = "/v1/documents"
_DEAD_LETTERS: Final = "doc_jobs_dead"
_JOB_ID: Final = "ocr-009"
_ENDS: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
_WHAT: Final = {"job_type": "OCR", "input_type": "PDF"}
_READING_SECONDS: Final = 90.0  # the longest that one page may take, also on a busy machine
_STREAM_SECONDS: Final = 30.0  # longer than the time between two keep-alive lines of the stream

_WIDTH, _HEIGHT = 420, 298  # of a page: A6 on its side, in points
_LEFT, _TOP = 36, 250
_SIZE: Final = 15
_LEADING: Final = 30
_DOTS_PER_INCH: Final = 200
_ASKEW_DEGREES: Final = 0.6
_BICUBIC: Final = 3  # of Pillow: smooth edges

LOGBOOK: Final = (
    "The keeper's log, 14 March 1897",
    "The wind has turned to the north-west.",
    "Two fishing boats passed close to the rocks.",
    "The lamp has burned 3.5 litres of oil.",
    "My daughter polished the lenses.",
)
LETTER: Final = ("Harbour Office, 2 April 1897", "The oil for the lamp comes on Tuesday,", "and the new wicks with it.")

_DEAD_LETTER: Final[Mapping[str, object]] = {
    "job_id": _JOB_ID,
    **_WHAT,
    "payload": {"local_path": LATE_FILE},
    "status": "FAILED",
    "error": f"File not found: {LATE_FILE}",
    "error_type": "IO",
    "attempts": 3,
    "max_attempts": 3,
    "failed_at": None,
    "worker_id": None,
    "schema_version": "v1",
}
"""A dead letter of schema v1: the fields that programs can rely on, and their values here. None: any value."""


@chapter("a scanned page", "202, COMPLETED, every word as printed")
def scanned(stage: Stage) -> str:
    """Holdfast reads documents, too. The demo scans a page, slightly tilted: a PDF with a picture, without text."""
    content = scanned_page(LOGBOOK)
    file = {"file": ("logbook.pdf", content, "application/pdf")}
    job_id = stage.submitted(_PATH, f"logbook.pdf, {len(content) // 1000} kB", "job_id", data=_WHAT, files=file)
    stage.narrator.say("""A separate process reads the page, so that a file that crashes this process harms nothing
        else. Meanwhile the tenant follows the job's progress stream:""")
    status = _followed(stage, job_id)
    return f"202, {status}, {_read(stage, job_id, LOGBOOK, 'engine', 'model', 'confidence')}"


@chapter("a missing file", f"202, FAILED after 3 attempts, the whole truth in {_DEAD_LETTERS}")
def missing(stage: Stage) -> str:
    """A job may also name a file in a folder that the operator has allowed, here inbox. But the file is missing."""
    (stage.folder / INBOX / LATE_FILE).parent.mkdir(parents=True, exist_ok=True)
    job = {**_WHAT, "job_id": _JOB_ID, "local_path": LATE_FILE}
    stage.submitted(_PATH, f"job_id {_JOB_ID}, local_path {LATE_FILE}", "job_id", json=job)
    view = _settled(stage, _JOB_ID)
    stage.narrator.say(f"""The file could still arrive, so Holdfast looked for it three times. Then the job became a
        dead letter. This is the dead letter in the queue {_DEAD_LETTERS}:""")
    letter_id = _letter(stage)

    def look() -> list[Body]:  # it is published a moment after the ledger has it
        return [each for each in stage.queued(_DEAD_LETTERS) if each.get("job_id") == _JOB_ID]

    published = stage.poll(look, bool, f"not in {_DEAD_LETTERS}")[0]
    schema = {name: published[name] for name in _DEAD_LETTER if name in published}
    for line in json.dumps(schema, indent=2, ensure_ascii=False).splitlines():
        stage.narrator.show(shown(line), 6)
    stage.narrator.facts({"more fields": ", ".join(name for name in published if name not in schema)})
    stage.narrator.command("or", stage.cli(f"dlq show {letter_id}"))
    wrong = [name for name, value in _DEAD_LETTER.items() if value is not None and published.get(name) != value]
    truth = f"not the truth about {', '.join(wrong)}" if wrong else "the whole truth"
    return f"202, {view['status']} after {published['attempts']} attempts, {truth} in {_DEAD_LETTERS}"


@chapter(
    "its replay as a new job",
    "a new job COMPLETED, every word as printed, the first still FAILED, dead letter closed",
)
def replayed(stage: Stage) -> str:
    """Ana reviews the dead letter, and finds the file in another folder."""
    letter_id = _letter(stage)
    stage.decide(letter_id, "review", "somebody put the file elsewhere")
    (stage.folder / INBOX / LATE_FILE).write_bytes(printed_page(LETTER))
    stage.narrator.line("**", f"The cause is repaired: {INBOX}/{LATE_FILE} is there.")
    stage.decide(letter_id, "replay", "the file is there")
    job_id = str(stage.read(stage.tenant, f"{_PATH}/{_JOB_ID}")["replayed_as"])
    stage.narrator.facts({f"{_JOB_ID} is replayed as": job_id})
    stage.narrator.say(f"The replay is a new job. {_JOB_ID} stays FAILED. This PDF has text: no picture is read.")
    new = _settled(stage, job_id)
    text = _read(stage, job_id, LETTER)
    closed = stage.decide(letter_id, "close", "the letter is read")["reviewStatus"]
    another = "a new job" if new["job_id"] != _JOB_ID and new["replay_of"] == _JOB_ID else "not a new job"
    first = stage.read(stage.tenant, f"{_PATH}/{_JOB_ID}")["status"]
    return f"{another} {new['status']}, {text}, the first still {first}, dead letter {closed}"


DOCUMENTS: Final = Part(
    "documents",
    (scanned, missing, replayed),
    shortened={"DOCUMENT_RETRY_BASE_MS": 300},
    settings={"DOCUMENT_ROOTS": INBOX, "DOCUMENT_LOCAL_PATH_OVER_HTTP": "true"},  # the server runs in the demo's folder
    look={"the documents": ["documents list"]},
    libraries=LIBRARIES,
)


def _letter(stage: Stage) -> str:
    # Not by the key: a job_id is the tenant's own, and another tenant may have the same.
    return str(stage.letter_of("documents", by="workload")["id"])


def _settled(stage: Stage, job_id: str) -> Body:
    def told(view: Body) -> Iterable[str]:
        error = view["error"] and "{error_type}, {code}: {message}".format_map(view["error"])
        yield f"{view['status']}, attempt {view['attempts']} of {view['max_attempts']}  {error or ''}"

    return stage.watch(stage.tenant, f"{_PATH}/{job_id}", told, _ENDS)


def _followed(stage: Stage, job_id: str) -> str:
    """Follow the progress stream and show every change. Returns the last status."""
    began, last = time.monotonic(), ("unknown", "")
    path = f"{_PATH}/{job_id}/events"
    with stage.http.stream("GET", path, headers=stage.tenant, timeout=_STREAM_SECONDS) as response:
        for line in response.iter_lines():
            since = time.monotonic() - began
            name, _, value = line.partition(":")
            if name == "data":
                view = json.loads(value)
                pages = "" if view["pages"] is None else f"page {view['pages_done']} of {view['pages']}"
                change = (view["status"], f"{view['stage']:12}  {view['progress']:3.0f} %  {pages}")
                if change != last:
                    stage.narrator.show(shown(f"{since:+6.1f} s  {change[0]:10}  {change[1]}"), 6)
                last = change
            if since > _READING_SECONDS:
                break
    if last[0] not in _ENDS:
        message = f"still {last[0]} after {time.monotonic() - began:.0f} s"
        raise Unexpected(message)
    return last[0]


def _read(stage: Stage, job_id: str, lines: Sequence[str], *names: str) -> str:
    """Show the text beside the printed one, these fields of the result, and its files. Returns how much is the same."""
    reply = stage.http.get(f"{_PATH}/{job_id}/text", headers=stage.tenant)
    text = reply.text if reply.is_success else ""
    result = stage.read(stage.tenant, f"{_PATH}/{job_id}/result")
    facts: dict[str, object] = {"printed on the page": "\n".join(lines), "read by Holdfast": text}
    facts |= {name: result.get(name) for name in (*names, "duration_sec", "output_path")}
    if result.get("output_path"):
        facts["files there"] = ", ".join(sorted(file.name for file in Path(result["output_path"]).iterdir()))
    stage.narrator.facts(facts)
    stage.narrator.command("or", stage.cli(f"documents text {job_id}"))
    words, found = " ".join(lines).split(), text.split()
    same = sum(block.size for block in SequenceMatcher(None, words, found, autojunk=False).get_matching_blocks())
    return "every word as printed" if words == found else f"{same} of {len(words)} words as printed"


# --- pages, made without font files: with text, as a program writes them, or as a scanned picture ---------------------


def printed_page(lines: Sequence[str]) -> bytes:
    """A PDF of one page with these lines as text."""
    from pypdfium2 import PdfDocument, raw  # noqa: PLC0415 - only the chapters on documents need it

    with PdfDocument.new() as sheet:
        page = sheet.new_page(_WIDTH, _HEIGHT)
        for number, line in enumerate(lines):
            text = raw.FPDFPageObj_NewTextObj(sheet, b"Helvetica", _SIZE)
            letters = ctypes.create_string_buffer(line.encode("utf-16-le") + b"\0")
            raw.FPDFText_SetText(text, ctypes.cast(letters, raw.FPDF_WIDESTRING))
            raw.FPDFPageObj_Transform(text, 1, 0, 0, 1, _LEFT, _TOP - number * _LEADING)
            raw.FPDFPage_InsertObject(page, text)
        page.gen_content()
        saved = io.BytesIO()
        sheet.save(saved)
    return saved.getvalue()


def scanned_page(lines: Sequence[str]) -> bytes:
    """The same page as a scanner makes it: slightly tilted, and only a picture."""
    from pypdfium2 import PdfDocument  # noqa: PLC0415 - only the chapters on documents need it

    with PdfDocument(printed_page(lines)) as sheet:
        picture = sheet[0].render(scale=_DOTS_PER_INCH / 72, grayscale=True).to_pil()
    saved = io.BytesIO()
    tilted = picture.rotate(_ASKEW_DEGREES, resample=_BICUBIC, fillcolor="white")
    tilted.save(saved, "PDF", resolution=_DOTS_PER_INCH)
    return saved.getvalue()
