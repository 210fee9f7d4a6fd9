"""The chapters on documents: a scanned page, and a missing file that arrives later."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from . import scan
from .chapters import ACTOR, Chapter, letter_of, must_decide
from .clients import DOCUMENTS_PATH, Reply
from .leftovers import INBOX, LATE_FILE
from .narration import stages_of, status_of_document
from .stage import Stage, Unexpected
from .tenant import api_key

DEAD_LETTERS: Final = "doc_jobs_dead"
JOB_ID: Final = "ocr-009"

SCAN: Final = "logbook.pdf"
LOGBOOK: Final = (
    "The keeper's log, 14 March 1897",
    "The wind has turned to the north-west.",
    "Two fishing boats passed close to the rocks.",
    "The lamp has burned 3.5 litres of oil.",
    "My daughter polished the lenses.",
)
LETTER: Final = (
    "Harbour Office, 2 April 1897",
    "The oil for the lamp comes on Tuesday,",
    "and the new wicks with it.",
)

_ENDS: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
_WHAT: Final = {"job_type": "OCR", "input_type": "PDF"}
_SCHEMA: Final = (
    *("job_id", "job_type", "input_type", "payload", "status", "error", "error_type", "attempts", "max_attempts"),
    *("failed_at", "worker_id", "schema_version"),
)
"""The fields of a dead letter, schema v1. Programs that read the queue can rely on them."""
_EXPECTED: Final[Mapping[str, object]] = {
    "job_id": JOB_ID,
    "job_type": "OCR",
    "input_type": "PDF",
    "payload": {"local_path": LATE_FILE},
    "status": "FAILED",
    "error": f"File not found: {LATE_FILE}",
    "error_type": "IO",
    "attempts": 3,
    "max_attempts": 3,
    "schema_version": "v1",
}
_READING_SECONDS: Final = 90.0
"""The longest that one page may take, also on a busy machine."""


# --- the chapters -------------------------------------------------------------------------------------------------


def _scanned(stage: Stage) -> str:
    stage.narrator.say(
        "Holdfast reads documents, too. The demo prints a page and scans it, slightly tilted. The result is a PDF with "
        "one picture and without any text."
    )
    key = api_key(stage)
    content = scan.scanned(LOGBOOK)
    stage.narrator.request(f"POST {DOCUMENTS_PATH}  {SCAN}, {len(content) // 1000} kB")
    reply = _accepted(stage, stage.clients.upload(SCAN, content, _WHAT, key))
    stage.narrator.say(
        "202 is the same promise as before. A separate process reads the page, so that a file that crashes this "
        "process harms nothing else. Meanwhile the tenant follows the job's progress stream:"
    )
    view = _followed(stage, reply.body["job_id"])
    text = stage.clients.text(view["job_id"], key)
    stage.narrator.beside(("printed on the page", "\n".join(LOGBOOK)), ("read in the picture", text))
    _show_result(stage, view["job_id"], "engine", "model", "confidence")
    return f"{reply.status}, {view['status']}, {_compared(text, LOGBOOK)}"


def _missing(stage: Stage) -> str:
    key = api_key(stage)
    stage.narrator.say(
        "A job may also name a file on the server's machine, in folders that the operator has allowed. Here that is "
        f"the folder {INBOX}. But the file is missing."
    )
    (stage.folder.inbox / LATE_FILE).parent.mkdir(parents=True, exist_ok=True)
    stage.narrator.request(f"POST {DOCUMENTS_PATH}  job_id {JOB_ID}, local_path {LATE_FILE}")
    job = {**_WHAT, "job_id": JOB_ID, "local_path": LATE_FILE}
    reply = _accepted(stage, stage.clients.submit(job, key))
    view = _settled(stage, JOB_ID)
    stage.narrator.say(
        "The file could still arrive, so Holdfast looked for it three times. Then the job became a dead letter. This "
        f"is the dead letter in the queue {DEAD_LETTERS}:"
    )
    letter = letter_of(stage, JOB_ID)
    published = _dead_letter(stage)
    stage.narrator.document({name: published[name] for name in _SCHEMA if name in published})
    stage.narrator.facts({"more fields": ", ".join(name for name in published if name not in _SCHEMA)})
    stage.narrator.command(stage.cli(f"dlq show {letter['id']}"))
    wrong = [name for name, value in _EXPECTED.items() if published.get(name) != value]
    truth = f"not the truth about {', '.join(wrong)}" if wrong else "the whole truth"
    return f"{reply.status}, {view['status']} after {published['attempts']} attempts, {truth} in {DEAD_LETTERS}"


def _replayed(stage: Stage) -> str:
    key = api_key(stage)
    letter_id = letter_of(stage, JOB_ID)["id"]
    stage.narrator.say(f"{ACTOR.capitalize()} reviews the dead letter, and finds the file in another folder.")
    must_decide(stage, letter_id, "review", "somebody put the file elsewhere")
    (stage.folder.inbox / LATE_FILE).write_bytes(scan.printed(LETTER))
    stage.narrator.event(f"The cause is repaired: {INBOX}/{LATE_FILE} is there.")
    must_decide(stage, letter_id, "replay", "the file is there")
    failed = _document(stage, JOB_ID)
    stage.narrator.facts({f"{JOB_ID} is replayed as": failed["replayed_as"]})
    stage.narrator.say(
        f"The replay is a new job with a new id. {JOB_ID} stays FAILED. This PDF contains its text, so no picture has "
        "to be read."
    )
    new = _settled(stage, str(failed["replayed_as"]))
    text = stage.clients.text(new["job_id"], key)
    stage.narrator.beside(("printed on the page", "\n".join(LETTER)), ("read in the file", text))
    _show_result(stage, new["job_id"])
    must_decide(stage, letter_id, "close", "the letter is read")
    first = _document(stage, JOB_ID)["status"]
    another = "a new job" if new["job_id"] != JOB_ID and new["replay_of"] == JOB_ID else "not a new job"
    closed = stage.clients.letter(letter_id).body["reviewStatus"]
    return f"{another} {new['status']}, {_compared(text, LETTER)}, the first still {first}, dead letter {closed}"


DOCUMENT_CHAPTERS: Final[Sequence[Chapter]] = (
    Chapter("A scanned page", "a scanned page", "202, COMPLETED, every word as printed", _scanned),
    Chapter(
        "A file that is not there",
        "a missing file",
        f"202, FAILED after 3 attempts, the whole truth in {DEAD_LETTERS}",
        _missing,
    ),
    Chapter(
        "Repaired, and replayed as a new job",
        "its replay as a new job",
        "a new job COMPLETED, every word as printed, the first still FAILED, dead letter closed",
        _replayed,
    ),
)
"""The last chapters of every tour, if the libraries for documents are installed."""


# --- results ------------------------------------------------------------------------------------------------------


def _accepted(stage: Stage, reply: Reply) -> Reply:
    stage.narrator.reply(reply, "errorCode" if "errorCode" in reply.body else "job_id")
    if reply.status != HTTPStatus.ACCEPTED:
        message = f"not accepted: {reply}"
        raise Unexpected(message)
    return reply


def _followed(stage: Stage, job_id: str) -> Mapping[str, Any]:
    """Follow the progress stream and show every stage. Returns the last event."""
    began = time.monotonic()
    seen: list[Mapping[str, Any]] = []
    with stage.narrator.watching() as show:
        for view in stage.clients.progress(job_id, api_key(stage)):
            since = time.monotonic() - began
            if view and _changed(view, seen):
                seen.append({**view, "since": since})
                show(stages_of(seen))
            if since > _READING_SECONDS:
                break
    if not seen or seen[-1]["status"] not in _ENDS:
        message = f"still {seen[-1]['status'] if seen else 'unknown'} after {time.monotonic() - began:.0f} s"
        raise Unexpected(message)
    return seen[-1]


def _changed(view: Mapping[str, Any], seen: Sequence[Mapping[str, Any]]) -> bool:
    compared = ("status", "stage", "progress", "pages")
    return not seen or any(view[name] != seen[-1][name] for name in compared)


def _settled(stage: Stage, job_id: str) -> Mapping[str, Any]:
    return stage.watch(lambda: _document(stage, job_id), status_of_document, until=_ENDS)


def _document(stage: Stage, job_id: str) -> Mapping[str, Any]:
    reply = stage.clients.document(job_id, api_key(stage))
    if reply.status != HTTPStatus.OK:
        message = f"cannot read the job: {reply}"
        raise Unexpected(message)
    return reply.body


def _show_result(stage: Stage, job_id: str, *names: str) -> None:
    """Show these fields of the result, its duration, and its output files."""
    result = stage.clients.document(job_id, api_key(stage), "/result").body
    facts = {name: result.get(name) for name in (*names, "duration_sec", "output_path")}
    if result.get("output_path"):
        facts["files there"] = ", ".join(sorted(file.name for file in Path(result["output_path"]).iterdir()))
    stage.narrator.facts(facts)
    stage.narrator.command(stage.cli(f"documents text {job_id}"))


def _dead_letter(stage: Stage) -> Mapping[str, Any]:
    """The dead letter in the queue. It is published a moment after the ledger has it."""
    found: list[Mapping[str, Any]] = []

    def arrived() -> bool:
        found[:] = [each for each in stage.queued(DEAD_LETTERS) if each.get("job_id") == JOB_ID]
        return bool(found)

    stage.wait_for(arrived, f"not in {DEAD_LETTERS}")
    return found[0]


def _compared(text: str, lines: Sequence[str]) -> str:
    words, found = " ".join(lines).split(), text.split()
    if words == found:
        return "every word as printed"
    same = sum(block.size for block in SequenceMatcher(None, words, found, autojunk=False).get_matching_blocks())
    return f"{same} of {len(words)} words as printed"
