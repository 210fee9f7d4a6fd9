"""Pages for the demo, made without font files: with text, as a program writes them, or as a scanned picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from math import cos, radians, sin
from typing import Final

_WIDTH, _HEIGHT = 420, 298  # A6 on its side, in points
_LEFT, _TOP = 36, 250
_SIZE: Final = 15
_LEADING: Final = 30
_SCALE: Final = 200 / 72
"""Pixels of the scan per point."""
_ASKEW_DEGREES: Final = 0.6


def printed(lines: Sequence[str]) -> bytes:
    """A PDF of one page with these lines as text."""
    return _page(lines, 0)


def scanned(lines: Sequence[str]) -> bytes:
    """The same page as a scanner makes it: slightly tilted, and only a picture."""
    import pypdfium2 as pdfium  # noqa: PLC0415 - only the chapters on documents need it

    with pdfium.PdfDocument(_page(lines, _ASKEW_DEGREES)) as sheet, pdfium.PdfDocument.new() as scan:
        picture = pdfium.PdfImage.new(scan)
        picture.set_bitmap(sheet[0].render(scale=_SCALE, grayscale=True))
        picture.set_matrix(pdfium.PdfMatrix().scale(_WIDTH, _HEIGHT))
        page = scan.new_page(_WIDTH, _HEIGHT)
        page.insert_obj(picture)
        page.gen_content()
        saved = io.BytesIO()
        scan.save(saved)
    return saved.getvalue()


def _page(lines: Sequence[str], askew: float) -> bytes:
    turned, across = cos(radians(askew)), sin(radians(askew))
    head = f"BT /F1 {_SIZE} Tf {_LEADING} TL {turned:.5f} {across:.5f} {-across:.5f} {turned:.5f} {_LEFT} {_TOP} Tm"
    shown = "\n".join(f"({_escaped(line)}) Tj T*" for line in lines)
    content = f"{head}\n{shown}\nET".encode("cp1252")
    return _file(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {_WIDTH} {_HEIGHT}] /Contents 5 0 R "
        "/Resources << /Font << /F1 4 0 R >> >> >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(content), content),
    )


def _file(*objects: bytes) -> bytes:
    """A PDF file with these objects, numbered from 1, and the cross-reference table."""
    written = bytearray(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(objects, start=1):
        places.append(len(written))
        written += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table, size = len(written), len(objects) + 1
    written += b"xref\n0 %d\n0000000000 65535 f \n" % size
    written += b"".join(b"%010d 00000 n \n" % place for place in places)
    written += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, table)
    return bytes(written)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
