"""The local engine reads real pages: both languages, poor scans, columns, and sheets that lay the wrong way round."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pypdfium2 as pdfium
import pytest
from PIL import Image

from holdfast.features.documents.child.ocr import LocalPages
from holdfast.features.documents.child.port import Reading
from holdfast.features.documents.failures import Code, DocumentFailure
from tests.support import pages
from tests.support.pages import SAMPLES

SCALE = 200 / 72


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalPages]:
    """One engine for all, loaded and used where no connection can be made."""
    with pytest.MonkeyPatch.context() as patch:

        def refuse(*_: object) -> None:
            message = "the engine tried the network"
            raise AssertionError(message)

        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        yield LocalPages(threads=2)


def image_of(content: bytes) -> Image.Image:
    with pdfium.PdfDocument(content) as document:
        return document[0].render(scale=SCALE).to_pil().convert("RGB")


def read(engine: LocalPages, content: bytes) -> Reading:
    return engine.read(image_of(content), scale=SCALE, language=None)


def error_rate(found: str, wanted: str) -> float:
    """The character error rate: edits to get from one to the other, where line ends count as spaces."""
    a, b = " ".join(found.split()), " ".join(wanted.split())
    above = list(range(len(b) + 1))
    for i, sign in enumerate(a, 1):
        row = [i]
        for j, other in enumerate(b, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (sign != other)))
        above = row
    return above[-1] / len(b)


@pytest.mark.parametrize(
    ("language", "scan"),
    [("en", {"degrade": True}), ("pt", {"columns": 2, "degrade": True, "font": "Times-Roman"})],
    ids=["English", "Portuguese in two columns"],
)
def test_a_poor_scan_is_read_with_at_most_one_wrong_character_in_two_hundred(
    engine: LocalPages, language: str, scan: dict
) -> None:
    found = read(engine, pages.scanned_pdf([SAMPLES[language]], **scan))
    assert error_rate(found.text, SAMPLES[language]) <= 0.005
    assert found.rotation == 0
    assert found.confidence is not None
    assert 0.95 < found.confidence <= 1


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
def test_a_sheet_that_lies_any_way_is_read_and_its_lines_stand_where_they_are(engine: LocalPages, rotate: int) -> None:
    # Three lines at the top left of a flat sheet; each way of lying puts them elsewhere.
    text = "À beira do rio ficava a estação.\nAlém dela, o armazém de açúcar.\nNinguém tinha pressa."
    wide, high = pages.WIDTH, 200
    (sheet,) = pages.page_images(pages.text_pdf([text]))
    sheet = sheet.crop((0, 0, sheet.width, round(high * SCALE))).rotate(-rotate, expand=True)
    found = engine.read(sheet, scale=SCALE, language="pt")
    assert found.text == text
    assert found.rotation == (360 - rotate) % 360
    left, top, right, bottom = 56, 56, 56 + 155, 56 + 13
    expected = {
        0: (left, top, right, bottom),
        90: (high - bottom, left, high - top, right),
        180: (wide - right, high - bottom, wide - left, high - top),
        270: (top, wide - right, bottom, wide - left),
    }
    assert found.lines[0].text == text.splitlines()[0]
    assert found.lines[0].box == pytest.approx(expected[rotate], abs=6)


def test_confidence_weighs_lines_by_their_characters(engine: LocalPages) -> None:
    found = read(engine, pages.scanned_pdf([["A1", "Some more words than that"]], dpi=100))
    total = sum(line.confidence * len(line.text) for line in found.lines)
    assert found.confidence == pytest.approx(total / sum(len(line.text) for line in found.lines), abs=0.001)


def test_a_picture_without_text_gives_none_and_no_word_in_the_log(engine: LocalPages) -> None:
    said: list[logging.LogRecord] = []
    listener = logging.Handler()
    listener.emit = said.append
    logger = logging.getLogger("RapidOCR")
    logger.addHandler(listener)
    try:
        found = engine.read(Image.linear_gradient("L").resize((800, 800)), scale=SCALE, language="en")
    finally:
        logger.removeHandler(listener)
    assert (found.text, found.confidence, found.lines, found.rotation) == ("", None, (), 0)
    assert said == []


def test_models_that_are_missing_or_damaged_are_named(
    engine: LocalPages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rapidocr.__file__", str(tmp_path / "__init__.py"))
    (tmp_path / "models").mkdir()
    with pytest.raises(DocumentFailure) as caught:
        LocalPages(threads=1)
    assert caught.value.code is Code.MODEL_FILES_DAMAGED
    assert "PP-OCRv6_det_small.onnx" in (caught.value.detail or "")
    for name in ("det", "rec"):
        (tmp_path / "models" / f"PP-OCRv6_{name}_small.onnx").write_bytes(b"not a model")
    with pytest.raises(DocumentFailure) as caught:
        LocalPages(threads=1)
    assert caught.value.code is Code.MODEL_FILES_DAMAGED
