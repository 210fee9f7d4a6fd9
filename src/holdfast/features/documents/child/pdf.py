"""PDFs, page by page: the text layer is copied if it is usable, otherwise an engine reads the page.

A text layer is usable if its characters are those that the page shows (:mod:`.text_layer`), and if it is more than a
stamp. A stamp is a few letters that a scanner or an archive wrote over a page that is otherwise a picture or outlines.
The engine reads such a page as a whole, including the stamp.

A damaged PDF is read as far as pdfium can read it, with warnings about the damage. It is refused if no page can be
read, or if the job is strict.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import pypdfium2
import pypdfium2.raw as pdfium

from holdfast.features.documents.failures import Code, DocumentFailure

from . import ocr
from .port import PageEngine, engine_class
from .protocol import Message, Page, Plan, Spec, Stage, Unit
from .text_layer import Legibility, TextLayer, agree, text_layer

if TYPE_CHECKING:
    from PIL import Image
    from pypdfium2 import PdfDocument, PdfPage

# Fewer letters and digits than this are a stamp, if the page is a picture.
_FEW_LETTERS: Final = 50
_PICTURE: Final = 0.5
_DRAWING: Final = 100
"""A picture covers at least this share of a page; a drawing has at least this many strokes."""

_DOTS_PER_POINT: Final = 200 / 72
_FEWEST_DOTS: Final = 1_600
"""Along the longer side, so that a page with a wrong size, such as a scan of one inch, is still read."""
_MOST_DOTS: Final = 16_000_000
_LONGEST_SIDE: Final = 10_000
_MOST_UNPACKED: Final = 1 << 30
"""Bytes of one image in a page. pdfium leaves larger images out without an error."""

_INK: Final = 32
_SPECKS: Final = 4
"""Ink differs from the page by this many of 256 shades. Fewer dots of ink than this (at 50 dpi) are dust."""

_LAST_PART: Final = 1 << 20
_TAIL: Final = 2_048
"""Bytes. A file may end with much white space; the end mark is in the last bytes before the white space."""
_ENCRYPTED: Final = frozenset({4, 5})
"""FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY."""


class _PageFailure(DocumentFailure):
    """One page cannot be read. ``warning`` goes into the result with the other pages."""

    def __init__(self, code: Code, number: int, what: str) -> None:
        self.warning = f"Page {number} {what}."
        super().__init__(code, self.warning[:-1] if code is Code.TOO_LARGE else None, detail=self.warning)


def read_pdf(spec: Spec, send: Callable[[Message], None], engine: Callable[[], PageEngine]) -> None:
    """Send the plan, then each page from ``spec.done`` on, in order.

    ``engine`` is called at most once, and only when a page needs it. Raises DocumentFailure.
    """
    with _opened(spec.path) as (document, damage):
        if damage is not None and spec.strict:
            raise DocumentFailure(Code.PDF_CORRUPT, detail=damage)
        pages = len(document)
        if pages > spec.max_pages:
            raise DocumentFailure(Code.TOO_LARGE, f"The PDF has {pages} pages; {spec.max_pages} are the most")
        model = engine_class(spec).model_of(spec)
        warnings = () if damage is None else (damage,)
        send(Plan(units=pages, unit="page", engine=spec.engine, model=model, warnings=warnings))
        reader = _Reader(document, spec, send, engine)
        # Unreadable pages are held back until a page can be read. If no page can be read, none is sent: a later attempt
        # would take them for finished work.
        held: list[Unit] = []
        first_failure: _PageFailure | None = None
        any_read = spec.done > 0
        for index in range(spec.done, pages):
            try:
                page = reader.page(index)
                any_read = True
            except _PageFailure as failure:
                if spec.strict:
                    raise
                first_failure = first_failure or failure
                page = Page(number=index + 1, text="", source="unreadable", warning=failure.warning)
            held.append(Unit(index=index, result=asdict(page)))
            if any_read:
                for unit in held:
                    send(unit)
                held.clear()
        if first_failure is not None and not any_read:
            raise first_failure


class _Reader:
    """Reads pages of one document."""

    def __init__(
        self,
        document: PdfDocument,
        spec: Spec,
        send: Callable[[Message], None],
        engine: Callable[[], PageEngine],
    ) -> None:
        self._document = document
        self._spec = spec
        self._send = send
        self._load = engine
        self._engine: PageEngine | None = None

    def page(self, index: int) -> Page:
        """Read one page. The time to load the engine is not counted for the page that needed it first.

        Raises :class:`_PageFailure` if pdfium cannot read the page, and DocumentFailure if the engine fails.
        """
        number = index + 1
        begun = time.monotonic()
        page = _page(self._document, index)
        try:
            layer = text_layer(page)
            usable = layer.letters > 0 and layer.legibility is not Legibility.RUBBISH
            if usable and layer.letters < _FEW_LETTERS and _is_pictured(page):
                usable = False
            if usable and layer.legibility is Legibility.LEGIBLE:
                return _copied(layer, number, _since(begun))
            scale = _scale(*page.get_size())
            image, whole = _rendered(page, number, scale)
        except pypdfium2.PdfiumError as error:
            raise _PageFailure(Code.PDF_CORRUPT, number, "could not be read") from error
        finally:
            page.close()
        shown = _has_ink(image)
        if not whole and (self._spec.strict or not shown):
            raise _PageFailure(Code.PDF_CORRUPT, number, "could not be drawn: an image on it is damaged")
        if not shown:
            # The page shows nothing that the text layer could be compared with.
            blank = Page(number=number, text="", source="blank", seconds=_since(begun))
            return _copied(layer, number, _since(begun)) if usable else blank
        spent = _since(begun)
        engine = self._ready()
        begun = time.monotonic()
        reading = engine.read(image, scale=scale, language=self._spec.language)
        spent = round(spent + _since(begun), 3)
        if usable and agree(layer.text, reading.text):
            return _copied(layer, number, spent)
        return Page(
            number=number,
            text=reading.text,
            source="ocr" if engine.name == ocr.ENGINE else "model",
            confidence=reading.confidence,
            rotation=reading.rotation,
            seconds=spent,
            lines=tuple(reading.lines),
            warning=None if whole else f"An image on page {number} is damaged, and was not read.",
        )

    def _ready(self) -> PageEngine:
        if self._engine is None:
            self._send(Stage(stage="loading"))
            self._engine = self._load()
        return self._engine


def _copied(layer: TextLayer, number: int, seconds: float) -> Page:
    return Page(number=number, text=layer.text, source="text_layer", seconds=seconds, lines=layer.lines)


@contextmanager
def _opened(path: str) -> Iterator[tuple[PdfDocument, str | None]]:
    """The document, closed at the end, and the file's damage in words. Raises DocumentFailure if it does not open."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the path is a string already
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _LAST_PART))
            end = file.read().rstrip(b"\0\t\r\n ")
    except FileNotFoundError as error:
        raise DocumentFailure(Code.FILE_NOT_FOUND) from error
    except OSError as error:
        raise DocumentFailure(Code.FILE_UNREADABLE, detail=type(error).__name__) from error
    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        if error.err_code in _ENCRYPTED:
            raise DocumentFailure(Code.PDF_ENCRYPTED) from error
        if _damage(end) is None and _declares_no_pages(path):
            raise DocumentFailure(Code.PDF_NO_PAGES) from error
        raise DocumentFailure(Code.PDF_CORRUPT) from error
    try:
        if len(document) == 0:
            raise DocumentFailure(Code.PDF_NO_PAGES)
        yield document, _damage(end)
    finally:
        document.close()


def _damage(end: bytes) -> str | None:
    """What is missing at the end of a file. None: the file ends as a PDF must.

    pdfium repairs a file that was cut off, and shows the rest: pages may be missing or empty without an error.
    """
    _, mark, rest = end[-_TAIL:].rpartition(b"%%EOF")
    # Changes are appended to a PDF with their own end mark: an end mark before them is not the end.
    if mark and not re.search(rb"\b(?:obj|xref|trailer)\b", rest):
        return None
    if re.search(rb"startxref\s+\d+$", rest):
        return None
    missing = "The end mark is missing"
    if not re.search(rb"\bxref\b|startxref|/XRef\b", end):
        missing = "The end mark and the cross-reference table are missing"
    return f"{missing}: the file may have been cut off, and pages may be missing."


def _declares_no_pages(path: str) -> bool:
    """Whether a PDF declares a page count of zero. pdfium reports such a file as damaged."""
    with open(path, "rb") as file:  # noqa: PTH123 - the path is a string already
        content = file.read(1 << 20)
    return bool(re.search(rb"/Count\s+0\b", content)) and not re.search(rb"/Type\s*/Page\b", content)


def _page(document: PdfDocument, index: int) -> PdfPage:
    try:
        return document[index]
    except pypdfium2.PdfiumError as error:
        raise _PageFailure(Code.PDF_CORRUPT, index + 1, "could not be read") from error


def _is_pictured(page: PdfPage) -> bool:
    """Whether a page is mostly an image, or full of strokes."""
    width, height = page.get_size()
    strokes = 0
    for item in page.get_objects():
        if item.type == pdfium.FPDF_PAGEOBJ_IMAGE:
            # An image without a place is not shown.
            with suppress(pypdfium2.PdfiumError):
                left, bottom, right, top = item.get_bounds()
                if (right - left) * (top - bottom) >= _PICTURE * width * height:
                    return True
        elif item.type == pdfium.FPDF_PAGEOBJ_PATH:
            strokes += 1
            if strokes >= _DRAWING:
                return True
    return False


def _scale(width: float, height: float) -> float:
    """Dots per point for a page of this size: enough to be read, within the limits of memory."""
    longer = max(width, height, 1.0)
    wanted = max(_DOTS_PER_POINT, _FEWEST_DOTS / longer)
    return min(wanted, _LONGEST_SIDE / longer, math.sqrt(_MOST_DOTS / max(width * height, 1.0)))


def _rendered(page: PdfPage, number: int, scale: float) -> tuple[Image.Image, bool]:
    """The page as a picture, and whether all its images could be drawn: pdfium leaves damaged images out."""
    whole = True
    for item in page.get_objects(filter=[pdfium.FPDF_PAGEOBJ_IMAGE]):
        width, height = item.get_px_size()
        # pdfium gives no depth for an image that it cannot unpack. Its size is computed as if it had colours.
        bits = item.get_metadata().bits_per_pixel
        if width * height * (bits or 24) // 8 > _MOST_UNPACKED:
            raise _PageFailure(Code.TOO_LARGE, number, "could not be drawn: an image on it is too large")
        whole = whole and bits > 0
    try:
        bitmap = page.render(scale=scale, rev_byteorder=True, prefer_bgrx=False)
        image: Image.Image = bitmap.to_pil().convert("RGB")
    except pypdfium2.PdfiumError as error:
        # pdfium gives no reason for a missing bitmap. If memory is short, this line raises MemoryError.
        width, height = page.get_size()
        bytearray(math.ceil(width * scale) * math.ceil(height * scale) * 4)
        raise _PageFailure(Code.PDF_CORRUPT, number, "could not be drawn") from error
    bitmap.close()
    return image, whole


def _has_ink(image: Image.Image) -> bool:
    """Whether a page shows more than its background and a little dust."""
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
