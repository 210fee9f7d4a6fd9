"""The output files for people and programs. Pure functions: the units of the child in, text out.

``pages`` are dicts like ``Page`` of :mod:`.child.protocol`, ``chunks`` are dicts like its ``Chunk``. Engines are not
trusted: times may be wrong, and text may hold anything. The files are well-formed for every input.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final

from .contract import JobType
from .tally import Unit, characters_of, confidence_of, segments_of

LINE: Final = 42
LINES: Final = 2
"""The size of a subtitle: characters per line, and lines."""

_TEXT: Final = "text.txt"
_MARKDOWN: Final = "document.md"
_WHOLE: Final = "result.json"
_PAGE_END: Final = "\n\f"
_LONGEST_WORD: Final = 1_000
"""A longer word in a subtitle is divided first: breaking it line by line would take the square of its length."""

_PAUSE: Final = 2.0
"""Seconds of silence that begin a new paragraph."""
_SHORTEST: Final = 200
"""The shortest time of a subtitle, in milliseconds."""
_LONGEST_RECORDING: Final = 360_000
"""Seconds: a hundred hours. A later time is an error of the engine."""
_GAP: Final = 0.7
"""Of a line's height: a larger gap between two lines begins a new paragraph."""

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
_LINE_ENDS: Final = re.compile(r"\r\n|[\r\x0c\x85\u2028\u2029]")
_ARROW: Final = re.compile(r"(?<!-)--++>")
_SURROGATES: Final = re.compile(r"[\ud800-\udfff]")
_ITEM: Final = re.compile(r"(?:[\u2022\u2023\u25e6\u25aa\u25cf\u00b7*\u2013\u2014-]|\(?\d{1,3}[.)])\s")
_LONG_WORD: Final = re.compile(rf"\S{{{_LONGEST_WORD}}}")
_RESULT: Final = (
    "job_id",
    "job_type",
    "input_type",
    "engine",
    "model",
    "language",
    "duration_sec",
    "media_seconds",
    "characters",
    "confidence",
    "warnings",
)


def outputs_of(job_type: JobType, units: Sequence[Unit], result: Mapping[str, Any]) -> dict[str, bytes]:
    """The output files by name: ``text.txt`` and ``result.json``; ``document.md`` for a PDF, subtitles for a recording.

    ``result`` holds the other fields of ``result.json``, and ``filename``, the title of ``document.md``. If it has no
    ``characters`` or ``confidence``, they are counted here.
    """
    counted = {"characters": characters_of(job_type, units), "confidence": confidence_of(job_type, units)}
    given = {name: value for name, value in result.items() if value is not None}
    files: dict[str, list[bytes]] = {}
    for name, piece in pieces_of(job_type, units, counted | given):
        files.setdefault(name, []).append(piece)
    return {name: b"".join(pieces) for name, pieces in files.items()}


def pieces_of(job_type: JobType, units: Iterable[Unit], result: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """The same files piece by piece: the name of a file, and what comes next in it.

    ``units`` is read once. Of a PDF, one page is in memory at a time. The segments of a recording are sorted, so all of
    them are.
    """
    facts = {"warnings": [], **{name: value for name, value in result.items() if value is not None}}
    facts["job_type"] = job_type.value
    head = {name: facts.get(name) for name in _RESULT}
    match job_type:
        case JobType.OCR:
            title = str(result.get("filename") or result.get("job_id") or "Document")
            pieces = _pieces_of_pages(units, head, title)
        case JobType.TRANSCRIPTION:
            pieces = _pieces_of_chunks(list(units), head)
    for name, text in pieces:
        yield name, _encoded(text)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text).encode()


def _pieces_of_pages(pages: Iterable[Unit], head: Mapping[str, Any], title: str) -> Iterator[tuple[str, str]]:
    yield _TEXT, ""
    yield _MARKDOWN, _title(title)
    yield _WHOLE, _opened(head, "pages")
    first = True
    for page in pages:
        yield _TEXT, ("" if first else _PAGE_END) + _text_of_page(page)
        yield _MARKDOWN, _markdown_of_page(page)
        yield _WHOLE, _item(_without(page, "seconds"), first=first)
        first = False
    yield _TEXT, "\n"
    yield _MARKDOWN, "\n"
    yield _WHOLE, _closed(empty=first)


def _pieces_of_chunks(chunks: Sequence[Unit], head: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield _TEXT, text_of_chunks(chunks)
    yield "transcript.srt", srt_of(chunks)
    yield "transcript.vtt", vtt_of(chunks)
    yield _WHOLE, _opened(head, "segments")
    first = True
    for segment in segments_of(chunks):
        yield _WHOLE, _item(dict(segment), first=first)
        first = False
    yield _WHOLE, _closed(empty=first)


# --- text -------------------------------------------------------------------------------------------------------------


def _text_of_page(page: Unit) -> str:
    """The text of the page with its line breaks. A form feed ends each page but the last."""
    return _clean(page["text"]).strip("\n")


def text_of_chunks(chunks: Sequence[Unit]) -> str:
    """The speech in paragraphs. A longer silence begins a new paragraph."""
    paragraphs: list[list[str]] = []
    silent_since = -math.inf
    for segment in segments_of(chunks):
        said = _one_line(segment["text"])
        if not said:
            continue
        if not paragraphs or segment["start"] - silent_since >= _PAUSE:
            paragraphs.append([])
        paragraphs[-1].append(said)
        silent_since = segment["end"]
    return "\n\n".join(map(" ".join, paragraphs)) + "\n"


def _clean(text: str) -> str:
    """The text without control characters, with plain line ends."""
    return _CONTROLS.sub("", _LINE_ENDS.sub("\n", text))


def _one_line(text: str) -> str:
    return " ".join(_clean(text).split())


# --- Markdown ---------------------------------------------------------------------------------------------------------


def _title(title: str) -> str:
    return f"# {_escaped(_one_line(title))}"


def _markdown_of_page(page: Unit) -> str:
    """The text as Markdown that can be searched: a heading for the page with an anchor, and whole paragraphs.

    A word that was divided at the end of a line is joined again. The text is escaped: none of it is Markdown or HTML.
    """
    blocks = [f'\n\n<a id="page-{page["number"]}"></a>\n\n## Page {page["number"]}']
    blocks += map(_escaped, _paragraphs(page))
    return "\n\n".join(blocks)


def _paragraphs(page: Unit) -> Iterator[str]:
    """The paragraphs of a page, each in one line. If the text has no empty lines, the gaps between lines decide."""
    lines = [" ".join(line.split()) for line in _clean(page["text"]).strip().split("\n")]
    begins = [False] * len(lines)
    if "" not in lines:
        begins = _after_gap(page, lines)
    # In parts: a page may be one paragraph of very many lines.
    paragraph: list[str] = []
    for line, begin in zip(lines, begins, strict=True):
        if paragraph and (begin or not line or _ITEM.match(line)):
            yield "".join(paragraph)
            paragraph = []
        if line:
            _join(paragraph, line)
    if paragraph:
        yield "".join(paragraph)


def _after_gap(page: Unit, lines: Sequence[str]) -> list[bool]:
    """For each line, whether there is a gap before it. Without boxes, no line has a gap."""
    boxes = [line.get("box") for line in page.get("lines", ())]
    if len(boxes) != len(lines) or not all(boxes):
        return [False] * len(lines)
    apart = [False]
    for (_, top, _, bottom), (_, next_top, _, _) in pairwise(boxes):
        # A line that is higher than the one before it is in the next column: the sentence may continue there.
        apart.append(next_top - bottom > _GAP * (bottom - top))
    return apart


def _join(before: list[str], line: str) -> None:
    """Add a line to the parts of a paragraph. A word that was divided at the end of the last line is joined again."""
    end = "".join(before[-3:])[-2:]
    if end.endswith("\u00ad") or (end.endswith("-") and end[:-1].isalpha() and line[:1].islower()):
        before[-1] = before[-1][:-1]
    elif before:
        before.append(" ")
    before.append(line)


_SPECIAL: Final = re.compile(r"[\\`*#\[\]<>~&$]|(?<![^\W_])_|_(?![^\W_])")
_AT_THE_START: Final = re.compile(r"^(?:([+-])|(\d{1,9})([.)]))")


def _escaped(line: str) -> str:
    """One line of text as Markdown that shows exactly this text."""
    line = _SPECIAL.sub(r"\\\g<0>", line)
    return _AT_THE_START.sub(lambda found: f"{found[2] or ''}\\{found[1] or found[3]}", line)


# --- subtitles --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Stretch:
    """Text that is shown from ``start`` to ``end``, in milliseconds, as one or more subtitles."""

    start: int
    end: int
    shown: list[list[str]]

    @property
    def least(self) -> int:
        return _SHORTEST * len(self.shown)


def srt_of(chunks: Sequence[Unit]) -> str:
    """SubRip. It has no escapes, so an arrow in the text is made shorter than the arrow between times."""
    return "".join(
        f"{number}\n{_time(start, ',')} --> {_time(end, ',')}\n{_ARROW.sub('->', text)}\n\n"
        for number, (start, end, text) in enumerate(_subtitles(chunks), start=1)
    )


def vtt_of(chunks: Sequence[Unit]) -> str:
    """WebVTT."""
    return "WEBVTT\n\n" + "".join(
        f"{_time(start, '.')} --> {_time(end, '.')}\n{_entities(text)}\n\n" for start, end, text in _subtitles(chunks)
    )


def _subtitles(chunks: Sequence[Unit]) -> Iterator[tuple[int, int, str]]:
    """Start, end and text of each subtitle: in order, none empty, none while another is shown."""
    for stretch in _apart(_stretches(chunks)):
        characters = list(accumulate(sum(map(len, lines)) for lines in stretch.shown))
        spare = stretch.end - stretch.start - stretch.least
        start = stretch.start
        for index, lines in enumerate(stretch.shown, start=1):
            # The time of a subtitle is in proportion to its share of the text.
            read = characters[index - 1] / characters[-1]
            end = stretch.start + _SHORTEST * index + int(spare * read)
            yield start, end, "\n".join(lines)
            start = end


def _stretches(chunks: Sequence[Unit]) -> list[_Stretch]:
    stretches = []
    for segment in segments_of(chunks):
        said = _one_line(segment["text"])
        if said:
            lines = textwrap.wrap(_LONG_WORD.sub(r"\g<0> ", said), LINE, break_on_hyphens=False)
            shown = [lines[first : first + LINES] for first in range(0, len(lines), LINES)]
            stretches.append(_Stretch(_milliseconds(segment["start"]), _milliseconds(segment["end"]), shown))
    return sorted(stretches, key=lambda stretch: stretch.start)


def _apart(stretches: Iterable[_Stretch]) -> Iterator[_Stretch]:
    """The stretches without overlap: the earlier one ends sooner, or if it is too short, the later one waits."""
    before: _Stretch | None = None
    for stretch in stretches:
        if before is not None:
            if before.start + before.least <= stretch.start:
                before.end = min(before.end, stretch.start)
            else:
                before.end = before.start + before.least
                stretch.start = before.end
            yield before
        stretch.end = max(stretch.end, stretch.start + stretch.least)
        before = stretch
    if before is not None:
        yield before


def _milliseconds(seconds: float) -> int:
    if math.isnan(seconds):
        return 0
    return round(min(max(seconds, 0), _LONGEST_RECORDING) * 1000)


def _time(milliseconds: int, point: str) -> str:
    seconds, thousandths = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{point}{thousandths:03d}"


def _entities(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# --- JSON -------------------------------------------------------------------------------------------------------------


def _opened(head: Mapping[str, Any], items: str) -> str:
    """The beginning of ``result.json``, up to its list of items."""
    return f'{_json(head).removesuffix(chr(10) + "}")},\n "{items}": ['


def _item(item: Mapping[str, Any], *, first: bool) -> str:
    # JSON has no line ends within its texts, so every line end is one of the layout.
    return ("" if first else ",") + "\n  " + _json(item).replace("\n", "\n  ")


def _closed(*, empty: bool) -> str:
    return ("]" if empty else "\n ]") + "\n}\n"


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(_finite(content), ensure_ascii=False, allow_nan=False, indent=1)


def _without(page: Unit, *names: str) -> dict[str, Any]:
    return {name: value for name, value in page.items() if name not in names}


def _finite(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The same value; numbers that JSON does not have become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
