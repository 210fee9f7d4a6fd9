"""The messages between the worker and its child processes: JSON, one message per line.

The worker writes one :class:`Spec` to the child's standard input and keeps the input open. When the input closes, the
worker is gone, and the child ends itself. The child writes messages to its standard output: one :class:`Plan`, a
:class:`Unit` for each page or chunk of sound in order, and at the end :class:`Finished` or :class:`Failed`. Its
standard error is for people.

The child that reads has neither the network nor a key. For an engine that is a model on the network it writes a
:class:`Question`. The worker passes the line on to a second child, the caller, which knows the key and sees no file.
The caller's :class:`Answer` goes back the same way.

Worker and child import this module, so it imports nothing heavy.

:class:`Connection` is the child's side of the pipes.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import signal
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from holdfast.features.documents.engines import Engine, EngineOptions

from .limits import end_with_parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What to read, and how.

    ``done`` units are known from earlier attempts: the child skips them and sends no message for them. ``memory`` is
    the most bytes that the child may use; None: no limit. ``strict``: a PDF with any damage is refused.
    """

    path: str
    job_type: Literal["OCR", "TRANSCRIPTION"]
    input_type: Literal["PDF", "VIDEO", "AUDIO"]
    engine: Engine = "local"
    options: EngineOptions = field(default_factory=dict)
    """Of the engine. Its key comes in the environment of the caller, never in here."""
    language: str | None = None
    done: int = 0
    strict: bool = False
    memory: int | None = None
    processor_seconds: int | None = None
    """The most time of all processors together."""
    threads: int = 2
    max_pages: int = 2_000
    max_seconds: int = 6 * 3600
    """The longest recording."""
    chunk_seconds: float = 60.0
    """About how much sound is one unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The work to do: the number of units in the file. ``duration`` is that of a recording, in seconds.

    ``engine`` and ``model`` are the names that the result shows. ``warnings`` describe damage of the file.
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
    """The child begins a step that takes a while: ``loading`` a model, for example."""

    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A page or a chunk of sound for the model. ``content`` is in base64."""

    kind: Literal["page", "speech"]
    media_type: str
    content: str
    language: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The text of the model's answer to a question."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The attempt failed. ``code`` is one of :class:`~holdfast.features.documents.failures.Code`."""

    code: str
    message: str | None = None
    detail: str | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """All units are done."""


Message = Plan | Unit | Stage | Question | Answer | Failed | Finished
_KINDS: Final[dict[str, type[Message]]] = {
    "plan": Plan,
    "unit": Unit,
    "stage": Stage,
    "question": Question,
    "answer": Answer,
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
    """The text of a page. ``number`` counts from 1; ``rotation`` is by how many degrees the page was rotated.

    ``warning`` is a sentence about damage of the page. An ``unreadable`` page has no text.
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
    """The speech in one chunk of the recording."""

    start: float
    end: float
    language: str | None = None
    seconds: float = 0.0
    segments: tuple[Segment, ...] = field(default=())


def encoded(message: Message) -> bytes:
    """A message as one line."""
    return json.dumps({"is": _NAMES[type(message)], **asdict(message)}, ensure_ascii=False).encode() + b"\n"


def decoded(line: bytes) -> Message:
    """The message of a line. Raises ValueError for anything else."""
    content = json.loads(line)
    if not isinstance(content, dict) or content.get("is") not in _KINDS:
        message = "not a message of the child"
        raise ValueError(message)
    kind = _KINDS[content.pop("is")]
    try:
        return kind(**content)
    except TypeError as error:
        message = "not a message of the child"
        raise ValueError(message) from error


def spec_line(spec: Spec) -> bytes:
    """The spec as one line."""
    return json.dumps(asdict(spec), ensure_ascii=False).encode() + b"\n"


def spec_of(line: bytes) -> Spec:
    """The spec of a line."""
    return Spec(**json.loads(line))


_AT_ONCE = 65_536


class Connection:
    """The pipes from and to the worker. Only we use them: what a library prints goes to standard error."""

    def __init__(self) -> None:
        end_with_parent()
        # Ctrl-C is for the worker, which ends its children.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # A crash in a native library prints the names of functions, without their values.
        faulthandler.enable()
        self._orders, self._answers = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        self._rest = bytearray()
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def spec(self) -> Spec:
        """The first line. This waits without a thread: threads are started when the process is confined."""
        while not (lines := self._read_lines()):
            pass
        first, *others = lines
        for line in others:
            self._lines.put(line)
        return spec_of(first)

    def listen(self) -> None:
        """Begin to take lines, and end this process when the worker closes its side or is gone."""
        threading.Thread(target=self._end_with_worker, daemon=True).start()

    def next_line(self) -> bytes:
        """The next line of the worker."""
        return self._lines.get()

    def ask(self, question: Question) -> str:
        """The text of the model's answer. If there is none, the worker ends this process."""
        self.send(question)
        answer = decoded(self.next_line())
        if not isinstance(answer, Answer):
            message = "not an answer"
            raise TypeError(message)
        return answer.text

    def send(self, message: Message) -> None:
        """Write a message."""
        left = memoryview(encoded(message))
        try:
            while left:
                left = left[os.write(self._answers, left) :]
        except BrokenPipeError:
            # The worker is gone.
            os._exit(1)

    def _end_with_worker(self) -> None:
        while True:
            for line in self._read_lines():
                self._lines.put(line)

    def _read_lines(self) -> list[bytes]:
        data = os.read(self._orders, _AT_ONCE)
        if not data:
            # Also in the middle of the work.
            os._exit(1)
        self._rest += data
        if b"\n" not in data:
            return []
        *lines, self._rest = self._rest.split(b"\n")
        return [bytes(line) for line in lines]
