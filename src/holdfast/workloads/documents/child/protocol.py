"""What the worker and its child process say to each other: JSON, one line each.

The worker writes one :class:`Spec` to the child's standard input and keeps it open: when it closes, the worker is gone,
and the child ends itself. The child writes messages to its standard output: one :class:`Plan`, a :class:`Unit` for each
page or stretch of sound in order, and at the end :class:`Finished` or :class:`Failed`. Its standard error is
for people.

This module is imported by both sides and imports nothing heavy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What to read, and how.

    ``done`` units are known from earlier attempts: the child does not do them again, nor tell of them. ``memory`` is
    the most bytes that the child may have; None: as many as there are. ``strict``: a PDF with any damage is refused.
    """

    path: str
    job_type: Literal["OCR", "TRANSCRIPTION"]
    input_type: Literal["PDF", "VIDEO", "AUDIO"]
    engine: Literal["local", "gemini"] = "local"
    language: str | None = None
    done: int = 0
    strict: bool = False
    memory: int | None = None
    threads: int = 2
    max_pages: int = 2_000
    max_seconds: int = 6 * 3600
    """The longest recording."""
    chunk_seconds: float = 60.0
    """About how much sound is one unit."""
    whisper_model_dir: str | None = None
    gemini_model: str = "gemini-2.5-flash"
    gemini_base_url: str | None = None
    gemini_timeout: float = 120.0
    """Seconds. The key comes in the environment, GEMINI_API_KEY, never in here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What there is to do: how many units, of which ``done`` are known. ``duration`` is a recording's, in seconds.

    ``engine`` and ``model`` are the names that the result shows. ``warnings`` say what is wrong with the file.
    """

    units: int
    unit: Literal["page", "chunk"]
    engine: str
    model: str
    duration: float | None = None
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One unit is read. ``index`` counts from 0; ``result`` is a :class:`Page` or a :class:`Chunk` as a dict."""

    index: int
    result: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What the child is about to do, where it takes a while: ``loading`` a model, for instance."""

    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """It cannot be done. ``code`` is one of :class:`~holdfast.workloads.documents.failures.Code`."""

    code: str
    message: str | None = None
    detail: str | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """All units are done."""


Message = Plan | Unit | Stage | Failed | Finished
_KINDS: Final[dict[str, type[Plan | Unit | Stage | Failed | Finished]]] = {
    "plan": Plan,
    "unit": Unit,
    "stage": Stage,
    "failed": Failed,
    "finished": Finished,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of text on a page: where it is, in points from the top left corner, and how sure the engine is."""

    text: str
    box: tuple[float, float, float, float] | None = None
    confidence: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page says. ``number`` counts from 1; ``rotation`` is by how many degrees it was turned to be read.

    ``warning`` says in a sentence what is wrong with it; an ``unreadable`` page has no text.
    """

    number: int
    text: str
    source: Literal["text_layer", "ocr", "model", "blank", "unreadable"]
    confidence: float | None = None
    rotation: int = 0
    seconds: float = 0.0
    lines: tuple[Line, ...] = ()
    warning: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What was said from ``start`` to ``end``, in seconds from the beginning of the recording."""

    start: float
    end: float
    text: str
    confidence: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What was said in a stretch of the recording."""

    start: float
    end: float
    language: str | None = None
    seconds: float = 0.0
    segments: tuple[Segment, ...] = field(default=())


def encoded(message: Message) -> bytes:
    """A message as its line."""
    return json.dumps({"is": _NAMES[type(message)], **asdict(message)}, ensure_ascii=False).encode() + b"\n"


def decoded(line: bytes) -> Message:
    """The message of a line. Raises ValueError for anything else."""
    document = json.loads(line)
    if not isinstance(document, dict) or document.get("is") not in _KINDS:
        message = "not a message of the child"
        raise ValueError(message)
    kind = _KINDS[document.pop("is")]
    try:
        return kind(**document)
    except TypeError as error:
        message = "not a message of the child"
        raise ValueError(message) from error


def spec_line(spec: Spec) -> bytes:
    """The spec as its line."""
    return json.dumps(asdict(spec), ensure_ascii=False).encode() + b"\n"


def spec_of(line: bytes) -> Spec:
    """The spec of a line."""
    return Spec(**json.loads(line))
