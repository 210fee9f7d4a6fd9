"""Pages for the demo, made without font files: with text, as a program writes them, or as a scanned picture."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Sequence
from math import cos, radians, sin
from typing import Any, Final

_WIDTH, _HEIGHT = 420, 298  # A6 on its side, in points
_LEFT, _TOP = 36, 250
_SIZE: Final = 15
_LEADING: Final = 30
_SCALE: Final = 200 / 72
"""Pixels of the scan per point."""
_ASKEW_DEGREES: Final = 0.6


def printed(lines: Sequence[str], askew: float = 0) -> bytes:
    """A PDF of one page with these lines as text."""
    import pypdfium2 as pdfium  # noqa: PLC0415 - only the chapters on documents need it
    from pypdfium2 import raw  # noqa: PLC0415 - likewise

    turned, across = cos(radians(askew)), sin(radians(askew))
    with pdfium.PdfDocument.new() as sheet:
        page = sheet.new_page(_WIDTH, _HEIGHT)
        for number, line in enumerate(lines):
            text = raw.FPDFPageObj_NewTextObj(sheet, b"Helvetica", _SIZE)
            letters = ctypes.create_string_buffer(line.encode("utf-16-le") + b"\0")
            raw.FPDFText_SetText(text, ctypes.cast(letters, raw.FPDF_WIDESTRING))
            down = number * _LEADING
            raw.FPDFPageObj_Transform(
                text, turned, across, -across, turned, _LEFT + down * across, _TOP - down * turned
            )
            raw.FPDFPage_InsertObject(page, text)
        return _saved(sheet, page)


def scanned(lines: Sequence[str]) -> bytes:
    """The same page as a scanner makes it: slightly tilted, and only a picture."""
    import pypdfium2 as pdfium  # noqa: PLC0415 - only the chapters on documents need it

    with pdfium.PdfDocument(printed(lines, _ASKEW_DEGREES)) as sheet, pdfium.PdfDocument.new() as scan:
        picture = pdfium.PdfImage.new(scan)
        picture.set_bitmap(sheet[0].render(scale=_SCALE, grayscale=True))
        picture.set_matrix(pdfium.PdfMatrix().scale(_WIDTH, _HEIGHT))
        page = scan.new_page(_WIDTH, _HEIGHT)
        page.insert_obj(picture)
        return _saved(scan, page)


def _saved(document: Any, page: Any) -> bytes:  # noqa: ANN401 - pypdfium2 has no types
    page.gen_content()
    saved = io.BytesIO()
    document.save(saved)
    return saved.getvalue()
