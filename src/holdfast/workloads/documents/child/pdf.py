"""PDFs, page by page: the text layer where there is a usable one, an engine where not.

A text layer is usable when its characters are characters (fonts may not say what their signs mean), and when it is more
than a stamp: a few letters on a page that is otherwise a picture, or drawn in outlines, are what a scanner or an
archive wrote over it, and the engine reads such a page as a whole, the stamp included.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import pypdfium2
import pypdfium2.raw as pdfium

from holdfast.workloads.documents.failures import Code, DocumentFailure

from . import ocr
from .port import PageEngine
from .protocol import Message, Page, Plan, Spec, Stage, Unit
from .text_layer import text_layer

if TYPE_CHECKING:
    from PIL import Image
    from pypdfium2 import PdfDocument, PdfPage

# Fewer letters and digits than this are a stamp, if there is a picture to stamp.
_FEW_LETTERS: Final = 50
_PICTURE: Final = 0.5
_DRAWING: Final = 100
"""A picture covers this share of a page; a drawing has so many strokes."""

_DOTS_PER_POINT: Final = 200 / 72
_FEWEST_DOTS: Final = 1_600
"""Along the longer side: pages whose size is nonsense, such as a scan of one inch, are still read."""
_MOST_DOTS: Final = 16_000_000
_LONGEST_SIDE: Final = 10_000
_MOST_UNPACKED: Final = 1 << 30
"""Bytes of one image in a page. pdfium leaves larger ones out without a word."""

_INK: Final = 32
_SPECKS: Final = 4
"""Ink is darker or lighter than its page by so many of 256 shades; fewer dots of it (at 50 dpi) are dust."""

_TAIL: Final = 2_048
_ENCRYPTED: Final = frozenset({4, 5})
"""FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY."""


def read_pdf(spec: Spec, tell: Callable[[Message], None], engine: Callable[[], PageEngine]) -> None:
    """Tell the plan, then each page from ``spec.done`` on, in order.

    ``engine`` is called at most once, and only when a page needs it. Raises DocumentFailure.
    """
    with _opened(spec.path) as document:
        pages = len(document)
        if pages > spec.max_pages:
            raise DocumentFailure(Code.TOO_LARGE, f"The PDF has {pages} pages; {spec.max_pages} are the most")
        model = ocr.MODEL if spec.engine == ocr.ENGINE else spec.gemini_model
        tell(Plan(units=pages, unit="page", engine=spec.engine, model=model))
        reader = _Reader(document, spec, tell, engine)
        for index in range(spec.done, pages):
            tell(Unit(index=index, result=asdict(reader.page(index))))


class _Reader:
    """Reads pages of one document."""

    def __init__(
        self,
        document: PdfDocument,
        spec: Spec,
        tell: Callable[[Message], None],
        engine: Callable[[], PageEngine],
    ) -> None:
        self._document = document
        self._spec = spec
        self._tell = tell
        self._load = engine
        self._engine: PageEngine | None = None

    def page(self, index: int) -> Page:
        """What a page says. Loading the engine does not count as time of the page that needed it first."""
        begun = time.monotonic()
        page = _page(self._document, index)
        try:
            layer = text_layer(page)
            usable = layer.letters > 0 and layer.legible
            if usable and (layer.letters >= _FEW_LETTERS or not _is_pictured(page)):
                return Page(
                    number=index + 1,
                    text=layer.text,
                    source="text_layer",
                    seconds=_since(begun),
                    lines=layer.lines,
                )
            scale = _scale(*page.get_size())
            image = _rendered(page, index, scale)
        finally:
            page.close()
        if not _has_ink(image):
            return Page(number=index + 1, text="", source="blank", seconds=_since(begun))
        spent = _since(begun)
        engine = self._ready()
        begun = time.monotonic()
        reading = engine.read(image, scale=scale, language=self._spec.language)
        return Page(
            number=index + 1,
            text=reading.text,
            source="ocr" if engine.name == ocr.ENGINE else "model",
            confidence=reading.confidence,
            rotation=reading.rotation,
            seconds=round(spent + _since(begun), 3),
            lines=tuple(reading.lines),
        )

    def _ready(self) -> PageEngine:
        if self._engine is None:
            self._tell(Stage(stage="loading"))
            self._engine = self._load()
        return self._engine


@contextmanager
def _opened(path: str) -> Iterator[PdfDocument]:
    """The document, closed at the end. What is wrong with it is told apart here."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the path is a string already
            file.seek(0, 2)
            file.seek(max(0, file.tell() - (1 << 20)))
            tail = file.read().rstrip(b"\0\t\r\n ")[-_TAIL:]
    except FileNotFoundError as error:
        raise DocumentFailure(Code.FILE_NOT_FOUND) from error
    except OSError as error:
        raise DocumentFailure(Code.FILE_UNREADABLE, detail=type(error).__name__) from error
    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        if error.err_code in _ENCRYPTED:
            raise DocumentFailure(Code.PDF_ENCRYPTED) from error
        if _is_whole(tail) and _says_no_pages(path):
            raise DocumentFailure(Code.PDF_NO_PAGES) from error
        raise DocumentFailure(Code.PDF_CORRUPT) from error
    try:
        if len(document) == 0:
            raise DocumentFailure(Code.PDF_NO_PAGES)
        # pdfium mends what it can and shows what is left: pages may be missing, or empty, without a word.
        if not _is_whole(tail):
            raise DocumentFailure(Code.PDF_CORRUPT, detail="the file ends before its end mark")
        yield document
    finally:
        document.close()


def _is_whole(tail: bytes) -> bool:
    """Whether a file ends as a PDF does."""
    return b"%%EOF" in tail or re.search(rb"startxref\s+\d+\s*$", tail) is not None


def _says_no_pages(path: str) -> bool:
    """Whether a PDF says itself that it has no pages. pdfium calls such a file damaged."""
    with open(path, "rb") as file:  # noqa: PTH123 - the path is a string already
        content = file.read(1 << 20)
    return bool(re.search(rb"/Count\s+0\b", content)) and not re.search(rb"/Type\s*/Page\b", content)


def _page(document: PdfDocument, index: int) -> PdfPage:
    try:
        return document[index]
    except pypdfium2.PdfiumError as error:
        raise DocumentFailure(Code.PDF_CORRUPT, detail=f"page {index + 1} cannot be loaded") from error


def _is_pictured(page: PdfPage) -> bool:
    """Whether a page is mostly an image, or full of strokes."""
    width, height = page.get_size()
    strokes = 0
    for item in page.get_objects():
        if item.type == pdfium.FPDF_PAGEOBJ_IMAGE:
            left, bottom, right, top = item.get_bounds()
            if (right - left) * (top - bottom) >= _PICTURE * width * height:
                return True
        elif item.type == pdfium.FPDF_PAGEOBJ_PATH:
            strokes += 1
            if strokes >= _DRAWING:
                return True
    return False


def _scale(width: float, height: float) -> float:
    """Dots per point for a page of this size: enough to be read, and never more than memory is meant for."""
    longer = max(width, height, 1.0)
    wanted = max(_DOTS_PER_POINT, _FEWEST_DOTS / longer)
    return min(wanted, _LONGEST_SIDE / longer, math.sqrt(_MOST_DOTS / max(width * height, 1.0)))


def _rendered(page: PdfPage, index: int, scale: float) -> Image.Image:
    for item in page.get_objects(filter=[pdfium.FPDF_PAGEOBJ_IMAGE]):
        width, height = item.get_px_size()
        # Nothing is known of an image that pdfium finds too large: it is taken for one in colour.
        bits = item.get_metadata().bits_per_pixel or 24
        if width * height * bits // 8 > _MOST_UNPACKED:
            raise DocumentFailure(Code.TOO_LARGE, f"An image on page {index + 1} is too large")
    try:
        bitmap = page.render(scale=scale, rev_byteorder=True, prefer_bgrx=False)
        image: Image.Image = bitmap.to_pil().convert("RGB")
    except pypdfium2.PdfiumError as error:
        raise DocumentFailure(Code.PDF_CORRUPT, detail=f"page {index + 1} cannot be drawn") from error
    bitmap.close()
    return image


def _has_ink(image: Image.Image) -> bool:
    """Whether there is more on a page than its own shade and a little dust."""
    shades = image.convert("L").reduce(4).histogram()
    dots = sum(shades)
    seen, paper = 0, 0
    for paper, count in enumerate(shades):  # noqa: B007 - the median shade is wanted afterwards
        seen += count
        if seen * 2 >= dots:
            break
    ink = sum(count for shade, count in enumerate(shades) if abs(shade - paper) > _INK)
    return ink >= _SPECKS


def _since(begun: float) -> float:
    return round(time.monotonic() - begun, 3)
