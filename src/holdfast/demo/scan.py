"""Pages for the demo, made without font files: with text, as a program writes them, or as a scanned picture."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Sequence
from typing import Final

_WIDTH, _HEIGHT = 420, 298  # A6 on its side, in points
_LEFT, _TOP = 36, 250
_SIZE: Final = 15
_LEADING: Final = 30
_DOTS_PER_INCH: Final = 200
_ASKEW_DEGREES: Final = 0.6
_BICUBIC: Final = 3  # of Pillow: smooth edges


def printed(lines: Sequence[str]) -> bytes:
    """A PDF of one page with these lines as text."""
    from pypdfium2 import PdfDocument, raw  # noqa: PLC0415 - only the chapters on documents need it

    with PdfDocument.new() as sheet:
        page = sheet.new_page(_WIDTH, _HEIGHT)
        for number, line in enumerate(lines):
            text = raw.FPDFPageObj_NewTextObj(sheet, b"Helvetica", _SIZE)
            letters = ctypes.create_string_buffer(line.encode("utf-16-le") + b"\0")
            raw.FPDFText_SetText(text, ctypes.cast(letters, raw.FPDF_WIDESTRING))
            raw.FPDFPageObj_Transform(text, 1, 0, 0, 1, _LEFT, _TOP - number * _LEADING)
            raw.FPDFPage_InsertObject(page, text)
        page.gen_content()
        saved = io.BytesIO()
        sheet.save(saved)
    return saved.getvalue()


def scanned(lines: Sequence[str]) -> bytes:
    """The same page as a scanner makes it: slightly tilted, and only a picture."""
    from pypdfium2 import PdfDocument  # noqa: PLC0415 - only the chapters on documents need it

    with PdfDocument(printed(lines)) as sheet:
        picture = sheet[0].render(scale=_DOTS_PER_INCH / 72, grayscale=True).to_pil()
    saved = io.BytesIO()
    tilted = picture.rotate(_ASKEW_DEGREES, resample=_BICUBIC, fillcolor="white")
    tilted.save(saved, "PDF", resolution=_DOTS_PER_INCH)
    return saved.getvalue()
