"""The chapters on documents: a scanned page, and a missing file that arrives later."""

from __future__ import annotations

import ctypes
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.features.documents.feature import LIBRARIES

from .stage import Body, Part, Stage, Unexpected, chapter

FOLDER: Final = "documents"  # the documents of the demo and their results
INBOX: Final = "inbox"  # files that jobs of the demo may name
LATE_FILE: Final = "samples/missing.pdf"  # in the inbox; missing at first

_PATH: Final = "/v1/documents"
_DEAD_LETTERS: Final = "doc_jobs_dead"
_JOB_ID: Final = "ocr-009"
_ENDS: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
_WHAT: Final = {"job_type": "OCR", "input_type": "PDF"}
_STREAM_SECONDS: Final = 30.0  # longer than the time between two keep-alive lines of the stream

_POINTS_PER_INCH: Final = 72
_DOTS_PER_INCH: Final = 200
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
    stage.say("""A separate process reads the page, so that a file that crashes this process harms nothing
        else. Meanwhile the tenant follows the job's progress stream:""")
    view = stage.watch(partial(next, _streamed(stage, job_id)), _lines, _ENDS)
    return f"202, {view['status']}, {_read(stage, job_id, LOGBOOK, 'engine', 'model', 'confidence')}"


@chapter("a missing file", f"202, FAILED after 3 attempts, the whole truth in {_DEAD_LETTERS}")
def missing(stage: Stage) -> str:
    """A job may also name a file in a folder that the operator has allowed, here inbox. But the file is missing."""
    (stage.folder / INBOX / LATE_FILE).parent.mkdir(parents=True, exist_ok=True)
    job = {**_WHAT, "job_id": _JOB_ID, "local_path": LATE_FILE}
    stage.submitted(_PATH, f"job_id {_JOB_ID}, local_path {LATE_FILE}", "job_id", json=job)
    view = _settled(stage, _JOB_ID)
    stage.say(f"""The file could still arrive, so Holdfast looked for it three times. Then the job became a
        dead letter. This is the dead letter in the queue {_DEAD_LETTERS}:""")
    letter_id = stage.letter_of("documents")["id"]

    def look() -> list[Body]:  # it is published a moment after the ledger has it
        return [each for each in stage.queued(_DEAD_LETTERS) if each.get("job_id") == _JOB_ID]

    published = stage.poll(look, f"not in {_DEAD_LETTERS}")[0]
    schema = {name: published[name] for name in _DEAD_LETTER if name in published}
    for line in json.dumps(schema, indent=2, ensure_ascii=False).splitlines():
        stage.show(line)
    stage.facts({"more fields": ", ".join(name for name in published if name not in schema)})
    stage.command("or", stage.cli(f"dlq show {letter_id}"))
    wrong = [name for name, value in _DEAD_LETTER.items() if value is not None and published.get(name) != value]
    truth = f"not the truth about {', '.join(wrong)}" if wrong else "the whole truth"
    return f"202, {view['status']} after {published['attempts']} attempts, {truth} in {_DEAD_LETTERS}"


@chapter(
    "its replay as a new job",
    "a new job COMPLETED, every word as printed, the first still FAILED, dead letter closed",
)
def replayed(stage: Stage) -> str:
    """Ana reviews the dead letter, and finds the file in another folder."""
    letter_id = stage.letter_of("documents")["id"]
    stage.decide(letter_id, "review", "somebody put the file elsewhere")
    (stage.folder / INBOX / LATE_FILE).write_bytes(printed_page(LETTER))
    stage.line("**", f"The cause is repaired: {INBOX}/{LATE_FILE} is there.")
    stage.decide(letter_id, "replay", "the file is there")
    job_id = str(stage.read(stage.tenant, f"{_PATH}/{_JOB_ID}")["replayed_as"])
    stage.facts({f"{_JOB_ID} is replayed as": job_id})
    stage.say(f"The replay is a new job. {_JOB_ID} stays FAILED. This PDF has text: no picture is read.")
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
    look=("documents list",),
    libraries=LIBRARIES,
)


def _settled(stage: Stage, job_id: str) -> Body:
    return stage.watch(lambda: stage.read(stage.tenant, f"{_PATH}/{job_id}"), _lines, _ENDS)


def _lines(view: Body) -> Iterable[str]:
    pages = "" if view["pages"] is None else f"page {view['pages_done']} of {view['pages']}"
    error = view["error"] and f"attempt {view['attempts']} of {view['max_attempts']}: {view['error']['code']}"
    yield f"{view['status']:10}  {view['stage'] or '':10}  {view['progress']:3.0f} %  {error or pages}"


def _streamed(stage: Stage, job_id: str) -> Iterator[Body]:
    """The job in its progress stream."""
    view = None
    path = f"{_PATH}/{job_id}/events"
    with stage.http.stream("GET", path, headers=stage.tenant, timeout=_STREAM_SECONDS) as response:
        for line in response.iter_lines():
            if line.startswith("data:"):
                view = json.loads(line.removeprefix("data:"))
            if view is not None:  # also when a keep-alive line comes: the wait must end at some time
                yield view
    message = "the progress stream ended before the job"
    raise Unexpected(message)


def _read(stage: Stage, job_id: str, lines: Sequence[str], *names: str) -> str:
    """Show the text beside the printed one, these fields of the result, and its files. Returns how much is the same."""
    reply = stage.http.get(f"{_PATH}/{job_id}/text", headers=stage.tenant)
    text = reply.text if reply.is_success else ""
    result = stage.read(stage.tenant, f"{_PATH}/{job_id}/result")
    facts: dict[str, object] = {"printed on the page": "\n".join(lines), "read by Holdfast": text}
    facts |= {name: result.get(name) for name in (*names, "duration_sec", "output_path")}
    if result.get("output_path"):
        facts["files there"] = ", ".join(sorted(file.name for file in Path(result["output_path"]).iterdir()))
    stage.facts(facts)
    stage.command("or", stage.cli(f"documents text {job_id}"))
    words, found = " ".join(lines).split(), text.split()
    same = sum(block.size for block in SequenceMatcher(None, words, found, autojunk=False).get_matching_blocks())
    return "every word as printed" if words == found else f"{same} of {len(words)} words as printed"


# --- pages, made without font files: with text, as a program writes them, or as a scanned picture ---------------------


def printed_page(lines: Sequence[str]) -> bytes:
    """A PDF of one page with these lines as text."""
    from pypdfium2 import PdfDocument, raw  # noqa: PLC0415 - only the chapters on documents need it

    with PdfDocument.new() as sheet:
        page = sheet.new_page(420, 298)  # A6 on its side, in points
        for number, line in enumerate(lines):
            text = raw.FPDFPageObj_NewTextObj(sheet, b"Helvetica", 15)
            letters = ctypes.create_string_buffer(line.encode("utf-16-le") + b"\0")
            raw.FPDFText_SetText(text, ctypes.cast(letters, raw.FPDF_WIDESTRING))
            raw.FPDFPageObj_Transform(text, 1, 0, 0, 1, 36, 250 - 30 * number)
            raw.FPDFPage_InsertObject(page, text)
        page.gen_content()
        saved = io.BytesIO()
        sheet.save(saved)
    return saved.getvalue()


def scanned_page(lines: Sequence[str]) -> bytes:
    """The same page as a scanner makes it: slightly tilted, and only a picture."""
    from pypdfium2 import PdfDocument  # noqa: PLC0415 - only the chapters on documents need it

    with PdfDocument(printed_page(lines)) as sheet:
        picture = sheet[0].render(scale=_DOTS_PER_INCH / _POINTS_PER_INCH, grayscale=True).to_pil()
    saved = io.BytesIO()
    tilted = picture.rotate(0.6, resample=_BICUBIC, fillcolor="white")
    tilted.save(saved, "PDF", resolution=_DOTS_PER_INCH)
    return saved.getvalue()
