"""Pages that say which they are, and a model that writes down each page that it is asked to read.

The server outlives every worker and child, and can keep a child waiting in the midst of a page.
"""

from __future__ import annotations

import io
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Final

from PIL import Image, ImageDraw

from .gemini_server import Answer, GeminiServer, Request, hang, text
from .pages import image_pdf

# --- pages that say which they are ----------------------------------------------------------------------------------

_CELL: Final = 8
_BITS: Final = 10
_CELLS: Final = 1 + 2 * _BITS


def numbered_pdf(document: int, pages: int) -> bytes:
    """A scan of so many pages. Each is a strip of cells, black for 1: a mark, the document's number, the page's."""
    return image_pdf([_strip(document, page) for page in range(pages)], dpi=72)


def _strip(document: int, page: int) -> Image.Image:
    image = Image.new("L", (_CELLS * _CELL, 3 * _CELL), 255)
    draw = ImageDraw.Draw(image)
    for cell, bit in enumerate([1, *_bits(document), *_bits(page)]):
        if bit:
            draw.rectangle((cell * _CELL, 0, (cell + 1) * _CELL - 1, 3 * _CELL), fill=0)
    return image


def _bits(number: int) -> list[int]:
    assert number < 1 << _BITS
    return [number >> place & 1 for place in range(_BITS)]


def numbers_on(picture: bytes) -> tuple[int, int]:
    """The document and the page of a picture, whatever its size."""
    image = Image.open(io.BytesIO(picture)).convert("L")
    width, height = image.width / _CELLS, image.height // 2
    dark = [image.getpixel((int((cell + 0.5) * width), height)) < 128 for cell in range(_CELLS)]
    assert dark[0], "not one of our pages"
    document, page = (sum(bit << place for place, bit in enumerate(dark[1 + at : 1 + at + _BITS])) for at in (0, _BITS))
    return document, page


# --- the model ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """One page that one child asked for. ``number`` is unique among all readings."""

    number: int
    document: int
    page: int

    @property
    def place(self) -> tuple[int, int]:
        return self.document, self.page

    @property
    def words(self) -> str:
        """What the model says that the page says."""
        return f"document {self.document} page {self.page} reading {self.number}"

    @classmethod
    def of(cls, words: str) -> Reading:
        """The reading whose words these are."""
        _, document, _, page, _, number = words.split()
        return cls(int(number), int(document), int(page))


class Hold:
    """Keeps the next child waiting that asks for a page, until it is released or nobody waits any more."""

    def __init__(self) -> None:
        self.reading: Reading | None = None
        self._released = threading.Event()

    @property
    def taken(self) -> bool:
        """Whether a child waits, or waited."""
        return self.reading is not None

    def release(self) -> None:
        self._released.set()

    def wait(self, stopping: threading.Event) -> bool:
        """Whether there is an answer."""
        while not self._released.wait(0.02):
            if stopping.is_set():
                return False
        return True


class PageServer(GeminiServer):
    """Reads the pages of :func:`numbered_pdf`, and remembers each time that it was asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.readings: list[Reading] = []
        self._holds: dict[tuple[int, int], Hold] = {}

    def hold(self, document: int, page: int) -> Hold:
        """Keep the next child waiting that asks for this page. The one after it is answered."""
        with self._lock:
            return self._holds.setdefault((document, page), Hold())

    def times(self, document: int) -> Counter[int]:
        """How often each page of a document was asked for."""
        return Counter(each.page for each in list(self.readings) if each.document == document)

    def _take(self, request: Request) -> Answer:
        ((_, picture),) = request.blobs
        document, page = numbers_on(picture)
        with self._lock:
            reading = Reading(len(self.readings), document, page)
            self.readings.append(reading)
            hold = self._holds.pop((document, page), None)
        if hold is not None:
            hold.reading = reading
            if not hold.wait(self._stopping):
                return hang()
        return text(reading.words)
