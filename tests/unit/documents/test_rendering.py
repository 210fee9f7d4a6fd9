"""What was read, as files: whatever the engines say, the files are well-formed and say the same."""

from __future__ import annotations

import html
import json
import re
from dataclasses import asdict
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from holdfast.features.documents.child.protocol import Chunk, Line, Page, Segment
from holdfast.features.documents.contract import JobType
from holdfast.features.documents.rendering import (
    outputs_of,
    srt_of,
    text_of_chunks,
    vtt_of,
)
from holdfast.features.documents.tally import MOST_WARNINGS, Tally, characters_of, confidence_of, warnings_of


def page(text, number=1, lines=(), **more):
    return asdict(Page(number=number, text=text, source="ocr", lines=tuple(lines), **more))


def chunk(*segments):
    """A stretch; segments are start, end, text and maybe confidence."""
    return asdict(Chunk(start=0.0, end=60.0, segments=tuple(_segment(*facts) for facts in segments)))


def _segment(start, end, text, confidence=None):
    return Segment(start=start, end=end, text=text, confidence=confidence)


# --- strict readers ---------------------------------------------------------------------------------------------------

STAMP = r"(\d{2,}):([0-5]\d):([0-5]\d)POINT(\d{3})"


def _cue(block, point):
    times, *lines = block
    stamp = STAMP.replace("POINT", re.escape(point))
    found = re.fullmatch(f"{stamp} --> {stamp}", times)
    assert found, times
    hours, minutes, seconds, thousandths, *until = map(int, found.groups())
    start = ((hours * 60 + minutes) * 60 + seconds) * 1000 + thousandths
    hours, minutes, seconds, thousandths = until
    return start, ((hours * 60 + minutes) * 60 + seconds) * 1000 + thousandths, lines


def parse_srt(text):
    """Numbers from 1, one line of times, one or two lines of text, an empty line after each."""
    if not text:
        return []
    assert text.endswith("\n\n")
    cues = []
    for number, block in enumerate(text.removesuffix("\n\n").split("\n\n"), start=1):
        first, *rest = block.split("\n")
        assert first == str(number)
        assert "-->" not in "\n".join(rest[1:])
        cues.append(_cue(rest, ","))
    return cues


def parse_vtt(text):
    """As the standard has it: nothing in a cue's text but text and known entities."""
    head, body = text.split("\n\n", 1)
    assert head == "WEBVTT"
    cues = []
    for block in body.removesuffix("\n\n").split("\n\n") if body else []:
        start, end, lines = _cue(block.split("\n"), ".")
        raw = "\n".join(lines)
        assert not re.search(r"[<>]|-->|&(?!amp;|lt;|gt;)", raw)
        cues.append((start, end, [html.unescape(line) for line in lines]))
    return cues


def check_cues(cues):
    for start, end, lines in cues:
        assert 0 <= start < end
        assert 1 <= len(lines) <= 2
        assert all(line.strip() and len(line) <= 42 for line in lines)
    for (_, end, _), (start, _, _) in pairwise(cues):
        assert end <= start


# --- subtitles --------------------------------------------------------------------------------------------------------


def test_subtitles_are_written_to_the_letter():
    chunks = [chunk((0.0, 1.5, " Tom & Jerry <i>say</i> -->"), (3661.042, 3662.0, "Olá.")), chunk()]
    assert srt_of(chunks) == (
        "1\n00:00:00,000 --> 00:00:01,500\nTom & Jerry <i>say</i> ->\n\n2\n01:01:01,042 --> 01:01:02,000\nOlá.\n\n"
    )
    assert vtt_of(chunks) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nTom &amp; Jerry &lt;i&gt;say&lt;/i&gt; --&gt;\n\n"
        "01:01:01.042 --> 01:01:02.000\nOlá.\n\n"
    )


def test_a_long_segment_is_wrapped_and_shared_out_over_its_time():
    said = " ".join(f"word{number:02d}" for number in range(36))
    cues = parse_srt(srt_of([chunk((10.0, 30.0, said))]))
    check_cues(cues)
    assert len(cues) == 3
    assert " ".join(line for _, _, lines in cues for line in lines) == said
    assert cues[0][0] == 10_000
    assert cues[-1][1] == 30_000
    assert [end for _, end, _ in cues[:-1]] == [start for start, _, _ in cues[1:]]
    for start, end, lines in cues:
        # By their part of the text.
        assert end - start == pytest.approx(20_000 * len(" ".join(lines)) / len(said), abs=300)


def test_a_segment_that_runs_into_the_next_ends_sooner():
    cues = parse_vtt(vtt_of([chunk((0.0, 5.0, "a"), (2.0, 4.0, "b")), chunk((4.0, 3.0, "c"), (4.1, 9.0, "d"))]))
    assert cues == [
        (0, 2000, ["a"]),
        (2000, 4000, ["b"]),
        (4000, 4200, ["c"]),
        (4200, 9000, ["d"]),
    ]


def test_subtitles_come_in_the_order_of_their_time():
    cues = parse_srt(srt_of([chunk((5.0, 6.0, "b"), (1.0, 2.0, "a"))]))
    assert cues == [(1000, 2000, ["a"]), (5000, 6000, ["b"])]


def test_nothing_said_is_an_empty_but_whole_file():
    for chunks in ([], [chunk()], [chunk((0.0, 1.0, " \n\x00"))]):
        assert srt_of(chunks) == ""
        assert vtt_of(chunks) == "WEBVTT\n\n"
        assert text_of_chunks(chunks) == "\n"


_ANY = st.text(st.characters(), max_size=30)
_NASTY = st.sampled_from(
    [
        "-->",
        "--->",
        "<b>",
        "&lt;",
        "\n\n",
        "\r",
        "\x00",
        "\u2028",
        "1\n00:00:00,000 --> 00:00:01,000",
        "NOTE",
        "\ud800",
        "x" * 200,
    ]
)
_TEXTS = st.lists(_ANY | _NASTY, max_size=6).map(" ".join)
_TIMES = st.floats(-5, 20) | st.floats()
_CHUNKS = st.lists(
    st.lists(st.tuples(_TIMES, _TIMES, _TEXTS), max_size=6).map(lambda segments: chunk(*segments)), max_size=3
)


def _words(text):
    return re.sub(r"\s", "", text)


@given(_CHUNKS)
@example([chunk((1.0, 1.0, "a " * 400), (1.0, 1.0, "b"), (1.05, 1.1, "c"), (float("nan"), float("inf"), "d"))])
def test_subtitles_can_always_be_read_back_and_say_everything(chunks):
    srt = parse_srt(srt_of(chunks))
    vtt = parse_vtt(vtt_of(chunks))
    check_cues(srt)
    check_cues(vtt)
    assert [cue[:2] for cue in srt] == [cue[:2] for cue in vtt]
    said = sorted(_words("".join(lines for _, _, cue in vtt for lines in cue)))
    assert said == sorted(_words(text_of_chunks(chunks)))
    outputs = outputs_of(JobType.TRANSCRIPTION, chunks, {"job_id": "tr-1"})
    assert set(outputs) == {"text.txt", "result.json", "transcript.srt", "transcript.vtt"}
    for content in outputs.values():
        content.decode()
    read = json.loads(outputs["result.json"], parse_constant=pytest.fail)
    assert len(read["segments"]) == sum(len(one["segments"]) for one in chunks)


# --- text -------------------------------------------------------------------------------------------------------------


def test_the_text_of_a_recording_has_a_paragraph_after_each_longer_silence():
    chunks = [
        chunk((0, 1, " Hello "), (1.5, 2, "there.")),
        chunk((3.9, 5, "Well,"), (7.0, 8, "good"), (8, 9, "night.")),
    ]
    assert text_of_chunks(chunks) == "Hello there. Well,\n\ngood night.\n"


def text_of_pages(pages):
    return outputs_of(JobType.OCR, pages, {})["text.txt"].decode()


def markdown_of_pages(pages, title):
    return outputs_of(JobType.OCR, pages, {"filename": title})["document.md"].decode()


def test_the_text_of_pages_keeps_lines_and_marks_where_pages_end():
    pages = [page("one\r\ntwo\x00\x1b\n\n"), page("", 2), page("a\fb\tc", 3)]
    assert text_of_pages(pages) == "one\ntwo\n\f\n\fa\nb\tc\n"
    assert text_of_pages([]) == "\n"


# --- Markdown ---------------------------------------------------------------------------------------------------------


def shown(markdown):
    """What a reader of CommonMark sees: headings and paragraphs. Fails for anything else, but anchors."""
    blocks = []
    tokens = iter(MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown))
    for token in tokens:
        if token.type in {"heading_open", "paragraph_open"}:
            inline = next(tokens)
            assert not [child for child in inline.children if child.type not in {"text", "text_special", "html_inline"}]
            blocks.append((token.tag, "".join(child.content for child in inline.children)))
            next(tokens)
        else:
            pytest.fail(f"{token.type} in {markdown!r}")
    return blocks


def test_a_pdf_becomes_markdown_with_a_heading_and_an_anchor_for_each_page():
    pages = [page("The exam-\nple goes\non well-\nKnown.\n\nNext\u00ad\nto 3 * 4"), page("", 2), page("# not *one*", 3)]
    assert markdown_of_pages(pages, title="a_b #1.pdf #") == (
        "# a_b \\#1.pdf \\#\n\n"
        '<a id="page-1"></a>\n\n## Page 1\n\n'
        "The example goes on well- Known.\n\nNextto 3 \\* 4\n\n"
        '<a id="page-2"></a>\n\n## Page 2\n\n'
        '<a id="page-3"></a>\n\n## Page 3\n\n\\# not \\*one\\*\n'
    )


def test_white_between_lines_begins_a_paragraph_and_a_new_column_does_not():
    texts = ["a", "b", "c", "d"]
    tops = [10, 22, 60, 10]
    lines = [Line(text=text, box=(0, top, 50, top + 10)) for text, top in zip(texts, tops, strict=True)]
    markdown = markdown_of_pages([page("\n".join(texts), lines=lines)], title="t")
    assert [text for tag, text in shown(markdown) if tag == "p"][1:] == ["a b", "c d"]


def test_items_of_a_list_stand_alone():
    markdown = markdown_of_pages([page("Needed:\n- one\nmore\n\u2022 two\n3. three\n+ four")], title="t")
    assert [text for tag, text in shown(markdown) if tag == "p"][1:] == [
        "Needed:",
        "- one more",
        "\u2022 two",
        "3. three + four",
    ]


_MARKS = st.text(st.sampled_from("ab1 .)-+=_*`~#<>[]()!&;:|\\/$\t\n\"'^{}"), max_size=40)
_BITS = st.sampled_from(
    ["<script>", "&amp;", "[a](b)", "![x](y)", "---", "***", "```", "~~~", "<http://a>", "1. ", "> ", "    x", "[a]: b"]
)


@given(st.lists(_MARKS | _BITS | _ANY, max_size=6).map("\n".join), _MARKS)
def test_markdown_shows_the_text_and_nothing_but_the_text(text, title):
    text = re.sub("[\ud800-\udfff\u00ad]", "", text)
    blocks = shown(markdown_of_pages([page(text)], title=title or "t"))
    first, anchor, heading, *paragraphs = blocks
    assert first == ("h1", " ".join(title.split()) or ("t" if not title else ""))
    assert anchor == ("p", '<a id="page-1"></a>')
    assert heading == ("h2", "Page 1")
    assert {tag for tag, _ in paragraphs} <= {"p"}
    # Divided words were joined: hyphens apart, all is there.
    seen = _words("".join(said for _, said in paragraphs)).replace("-", "")
    assert seen == _words(text_of_pages([page(text)])).replace("-", "")


# --- the files --------------------------------------------------------------------------------------------------------

RESULT = {
    "job_id": "ocr-1",
    "input_type": "PDF",
    "engine": "local",
    "model": "m",
    "language": "pt",
    "duration_sec": 1.25,
    "company_id": "secret",
    "filename": "nota.pdf",
    "confidence": None,
}


def test_the_files_of_a_pdf():
    line = Line(text="São", box=(1.0, 2.0, 3.0, 4.0), confidence=0.5)
    pages = [page("São", lines=[line], confidence=0.5, seconds=3.0), page("b c d", 2, confidence=0.9)]
    pages.append(page("x", 3, warning="Page 3 could not be drawn."))
    plain = {"source": "ocr", "confidence": None, "rotation": 0, "lines": [], "warning": None}
    outputs = outputs_of(JobType.OCR, pages, RESULT | {"warnings": warnings_of((), pages)})
    assert set(outputs) == {"text.txt", "result.json", "document.md"}
    assert outputs["text.txt"].decode() == "São\n\fb c d\n\fx\n"
    assert outputs["document.md"].decode().startswith('# nota.pdf\n\n<a id="page-1"></a>\n\n## Page 1\n\nSão\n')
    assert json.loads(outputs["result.json"]) == {
        "job_id": "ocr-1",
        "job_type": "OCR",
        "input_type": "PDF",
        "engine": "local",
        "model": "m",
        "language": "pt",
        "duration_sec": 1.25,
        "media_seconds": None,
        "characters": 7,
        "confidence": 0.75,
        "warnings": ["Page 3 could not be drawn."],
        "pages": [
            {
                "number": 1,
                "text": "São",
                "source": "ocr",
                "confidence": 0.5,
                "rotation": 0,
                "lines": [{"text": "São", "box": [1.0, 2.0, 3.0, 4.0], "confidence": 0.5}],
                "warning": None,
            },
            plain | {"number": 2, "text": "b c d", "confidence": 0.9},
            plain | {"number": 3, "text": "x", "warning": "Page 3 could not be drawn."},
        ],
    }
    assert "São" in outputs["result.json"].decode()


def test_the_files_of_a_recording():
    chunks = [chunk((0.0, 1.0, "um", 0.25)), chunk((1.0, 2.0, "dois dois", float("nan")), (2.0, 3.0, "três xx", 1.0))]
    outputs = outputs_of(JobType.TRANSCRIPTION, chunks, {"job_id": "t", "media_seconds": 3.0, "characters": 99})
    assert outputs["transcript.srt"].decode() == srt_of(chunks)
    assert outputs["transcript.vtt"].decode() == vtt_of(chunks)
    assert outputs["text.txt"].decode() == "um dois dois três xx\n"
    result = json.loads(outputs["result.json"])
    assert result["segments"][1] == {"start": 1.0, "end": 2.0, "text": "dois dois", "confidence": None}
    assert (result["characters"], result["confidence"], result["media_seconds"]) == (99, 0.8333, 3.0)


def test_warnings_of_the_file_come_before_those_of_its_pages():
    pages = [page("a"), page("", 2, warning="Page 2 could not be read."), {"number": 3, "text": "of an older version"}]
    assert warnings_of(("The end mark is missing.",), pages) == [
        "The end mark is missing.",
        "Page 2 could not be read.",
    ]
    assert json.loads(outputs_of(JobType.OCR, [page("a")], RESULT)["result.json"])["warnings"] == []


def test_no_result_has_more_warnings_than_people_read():
    pages = [page("", number, warning=f"Page {number} could not be read.") for number in range(1, 2_001)]
    found = warnings_of(("The end mark is missing.",), pages)
    assert len(found) == MOST_WARNINGS + 1
    assert found[-2:] == ["Page 99 could not be read.", "There are 1901 more warnings, on the pages of result.json."]
    assert len(warnings_of((), pages[:MOST_WARNINGS])) == MOST_WARNINGS


def test_nothing_read_has_no_confidence():
    assert confidence_of(JobType.OCR, [page("")]) is None
    assert confidence_of(JobType.TRANSCRIPTION, []) is None
    assert characters_of(JobType.OCR, [page(" \n")]) == 0


def test_what_a_child_says_about_a_page_has_no_more_than_its_length():
    tally = Tally(JobType.OCR)
    tally.add(page("a", warning="w" * 2_000_000) | {"language": "x" * 2_000_000})
    tally.add(page("b") | {"language": ["pt"]})
    assert tally.language is None
    assert max(map(len, tally.warnings(["v" * 2_000_000]))) == 500
    tally.add(page("c") | {"language": "pt-BR"})
    assert tally.language == "pt-BR"
