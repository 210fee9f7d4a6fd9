"""Real PDFs for tests, the bench and the demo, made on the spot: no font files, nothing random that is not seeded.

Born-digital pages are written by hand with the standard fonts; a "scan" is such a page, rendered and put into a PDF as
nothing but an image. The same arguments always give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import random
import zlib
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final

import numpy as np
import pypdfium2 as pdfium
from PIL import Image, ImageFilter

SAMPLES: Final = {
    "en": (
        "The lighthouse keeper wrote in his log every evening, whatever the weather. On the 14th of March "
        "1897 he noted that the wind had turned to the north-west, that two fishing boats had passed close to"
        " the rocks, and that the lamp had burned 3.5 litres of oil.\n"
        "His daughter, who was twelve, helped him to polish the lenses. She asked why a ship should need a "
        'light when it had a compass. "A compass tells you where north is," he said; "it does not tell you '
        'where the rocks are."\n'
        "Many years later she became an engineer, and designed the first automatic lamp on that coast. It "
        "cost 1,250 pounds, worked for 41 years without a fault, and was replaced only because nobody could "
        "be found who knew how to repair it. The old log is kept in the town museum, open at the page of that"
        " evening."
    ),
    "pt": (
        "A estação ficava à beira do rio, entre o armazém de açúcar e a praça da matriz. Às sete da manhã, "
        "quando o trem das sete não vinha atrasado, o chefe da estação já tinha varrido o chão e posto o café"
        " no fogão.\n"
        "Naquele dia, 9 de junho de 1932, houve uma exceção: três vagões de laranjas saíram dos trilhos na "
        "curva do pântano. Ninguém se feriu, mas as crianças da região encheram os bolsos, e por um mês "
        "inteiro não se falou de outra coisa. O prejuízo foi de 4.780 réis, segundo o relatório que a "
        "companhia enviou à capital.\n"
        "Avó Conceição contava a história com pequenas variações: às vezes eram cinco vagões, às vezes os "
        "bombons também vinham no comboio. Então alguém perguntava se era verdade, e ela respondia: é tão "
        "verdade quanto a saudade, que ninguém vê e todos têm. Lá fora, o sino da igreja batia as horas; "
        "ninguém tinha pressa."
    ),
}
"""A text of three paragraphs in English, and one in Portuguese with many accents. Each fills about a third of a page.
"""

WIDTH, HEIGHT, MARGIN, GUTTER = 595, 842, 56, 28
"""A4 in points."""

PASSWORD: Final = "open sesame"
"""What opens :func:`encrypted_pdf`."""

# The widths of Helvetica in thousandths, from the space to the tilde. Times is narrower, so that they fit it too.
_WIDTHS: Final = (
    "278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 "
    "278 278 584 584 584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 667 778 722 667 "
    "611 722 667 944 667 667 611 278 278 278 469 556 333 556 556 500 556 556 278 556 556 222 222 500 222 833 "
    "556 556 556 556 333 500 278 556 500 722 500 500 500 334 260 334 584"
)
_HELVETICA: Final = dict(zip(map(chr, range(32, 127)), map(int, _WIDTHS.split()), strict=True))


def text_pdf(
    pages: Sequence[str | Sequence[str]],
    *,
    columns: int = 1,
    font: str = "Helvetica",
    size: float = 11,
    interleaved: bool = False,
    turned: int = 0,
) -> bytes:
    """A born-digital PDF. A page is a text, or its paragraphs; an empty one stays blank.

    Long lines are wrapped at words, never hyphenated. With several columns the text runs down the first, then the next,
    as even as it goes; ``interleaved`` writes them into the file row by row across the columns all the same, as some
    programs do. ``turned`` is the pages' /Rotate. Raises ValueError for a text that a page has no room for.
    """
    file = _File(turned=turned)
    fonts = file.add(f"<< /Type /Font /Subtype /Type1 /BaseFont /{font} /Encoding /WinAnsiEncoding >>")
    for page in pages:
        content = file.add_stream("", _set(_paragraphs(page), columns, size, interleaved=interleaved))
        file.add_page(content, f"<< /Font << /F1 {fonts} 0 R >> >>")
    return file.finished()


def swelling_pdf(pages: int, characters: int) -> bytes:
    """A small file with much text: all pages share one packed content of so many characters, in lines of a hundred."""
    file = _File()
    fonts = file.add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    line = "0 -1 Td (" + "Holdfast never lets go of a job. " * 3 + ") Tj\n"
    text = "BT /F1 1 Tf 10 830 Td\n" + line * (characters // 100) + "ET"
    packed = zlib.compress(text.encode(), 9)
    content = file.add_stream("/Filter /FlateDecode", packed)
    for _ in range(pages):
        file.add_page(content, f"<< /Font << /F1 {fonts} 0 R >> >>")
    return file.finished()


def scanned_pdf(
    pages: Sequence[str | Sequence[str]],
    *,
    columns: int = 1,
    dpi: int = 200,
    degrade: bool = False,
    rotate: int = 0,
    turned: int = 0,
    font: str = "Helvetica",
    size: float = 11,
) -> bytes:
    """A PDF of nothing but images, as a scanner makes it.

    ``rotate`` is by how many degrees each sheet lay turned, clockwise: 90, 180 or 270; ``turned`` is the page's
    /Rotate, by which a reader turns it on showing. ``degrade`` gives a poor scan: a little askew, blurred, noisy, with
    the artefacts of a strong compression.
    """
    images = page_images(text_pdf(pages, columns=columns, font=font, size=size), dpi=dpi)
    if degrade:
        images = [_degraded(image, seed) for seed, image in enumerate(images)]
    if rotate:
        images = [image.rotate(-rotate, expand=True) for image in images]
    return image_pdf(images, dpi=dpi, quality=40 if degrade else 90, turned=turned)


def mixed_pdf(born: str, scanned: str) -> bytes:
    """A PDF whose first page has a text layer, and whose second is a scan."""
    file = _File()
    fonts = file.add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    file.add_page(file.add_stream("", _set(_paragraphs(born), 1, 11)), f"<< /Font << /F1 {fonts} 0 R >> >>")
    (image,) = page_images(text_pdf([scanned]), dpi=200)
    _add_image_page(file, image, dpi=200, quality=90)
    return file.finished()


def stamped_pdf(scanned: str, stamp: str) -> bytes:
    """A scan over which a program wrote a few words of text layer: a page number, or a mark of its own."""
    file = _File()
    fonts = file.add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    (image,) = page_images(text_pdf([scanned]), dpi=200)
    over = f"BT /F1 9 Tf 1 0 0 1 {MARGIN} 20 Tm ({_escaped(stamp)}) Tj ET".encode("cp1252")
    _add_image_page(file, image, dpi=200, quality=90, over=over, fonts=f"/Font << /F1 {fonts} 0 R >>")
    return file.finished()


def misnamed_pdf(text: str, *, how: str) -> bytes:
    """A page that shows ``text``, while its text layer says something else, as fonts of careless programs do.

    Each letter is written as the character 29 places before it ("T" as "7", "t" as "W"): the number of the letter in
    many fonts. ``how``: "wrong" has a table of characters (ToUnicode) that says so, "missing" has none, and names for
    its letters that nobody knows.
    """
    file = _File()
    helvetica = file.add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    if how == "wrong":
        pairs = "\n".join(f"<{code:02x}> <{code - _APART:04x}>" for code in range(_APART + 33, 127))
        codes = (
            f"1 begincodespacerange <00> <ff> endcodespacerange\n{127 - _APART - 33} beginbfchar\n{pairs}\nendbfchar"
        )
        mapping = file.add_stream("", f"begincmap\n{codes}\nendcmap".encode())
        fonts = file.add(
            "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding "
            f"/ToUnicode {mapping} 0 R >>"
        )
        content = _set(_paragraphs(text), 1, 11)
    else:
        fonts, content = _type3(file, helvetica), _set(_paragraphs(text), 1, 11, letter=_before)
    file.add_page(file.add_stream("", content), f"<< /Font << /F1 {fonts} 0 R >> >>")
    return file.finished()


def image_pdf(images: Sequence[Image.Image], *, dpi: int = 200, quality: int = 90, turned: int = 0) -> bytes:
    """A PDF with one image to a page, each as large as its pixels at ``dpi``."""
    file = _File(turned=turned)
    for image in images:
        _add_image_page(file, image, dpi=dpi, quality=quality)
    return file.finished()


def page_images(content: bytes, *, dpi: int = 200) -> list[Image.Image]:
    """The pages of a PDF as grey images."""
    with pdfium.PdfDocument(content) as document:
        return [page.render(scale=dpi / 72, grayscale=True).to_pil().convert("L") for page in document]


def encrypted_pdf() -> bytes:
    """A PDF that opens with :data:`PASSWORD` only (RC4 with 40 bits, the oldest handler: every reader knows it)."""
    identity = bytes(range(16))
    permissions = -4
    owner = _rc4(_md5(_padded("owner"))[:5], _padded(PASSWORD))
    seed = _padded(PASSWORD) + owner + permissions.to_bytes(4, "little", signed=True) + identity
    key = _md5(seed)[:5]
    user = _rc4(key, _padded(""))
    file = _File(key)
    fonts = file.add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    content = file.add_stream("", _set(["Nobody reads this without the word."], 1, 11))
    file.add_page(content, f"<< /Font << /F1 {fonts} 0 R >> >>")
    lock = file.add(f"<< /Filter /Standard /V 1 /R 2 /O <{owner.hex()}> /U <{user.hex()}> /P {permissions} >>")
    return file.finished(f"/Encrypt {lock} 0 R /ID [<{identity.hex()}> <{identity.hex()}>]")


def truncated_pdf(pages: int = 5, *, kept: float = 0.6) -> bytes:
    """A PDF of which only the first part arrived."""
    whole = text_pdf([SAMPLES["en"]] * pages)
    return whole[: int(len(whole) * kept)]


def zero_page_pdf() -> bytes:
    """A PDF that is in order, and has no pages."""
    return _File().finished()


def bomb_pdf(side: int = 40_000) -> bytes:
    """A file of some kilobytes whose one page, as large as a page may be, is an image of ``side`` squared pixels.

    Its pixels are compressed twice; unpacked, they take 3 bytes each: 4.8 GB as it is.
    """
    file = _File()
    inner = _deflated_zeros(side * side * 3)
    picture = file.add_stream(
        f"/Type /XObject /Subtype /Image /Width {side} /Height {side} /BitsPerComponent 8 /ColorSpace /DeviceRGB "
        "/Filter [/FlateDecode /FlateDecode]",
        zlib.compress(inner, 9),
    )
    content = file.add_stream("", b"q 14400 0 0 14400 0 0 cm /Im1 Do Q")
    file.add_page(content, f"<< /XObject << /Im1 {picture} 0 R >> >>", width=14_400, height=14_400)
    return file.finished()


def vast_pdf(text: str = "A page as large as a barn") -> bytes:
    """A page of 14400 points on each side, the most that the format knows, with one huge line of text as an outline."""
    file = _File()
    fonts = file.add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    content = f"BT /F1 900 Tf 1 0 0 1 600 7000 Tm ({_escaped(text)}) Tj ET".encode("cp1252")
    file.add_page(file.add_stream("", content), f"<< /Font << /F1 {fonts} 0 R >> >>", width=14_400, height=14_400)
    return file.finished()


_APART: Final = 29
"""How far the number of a letter in a TrueType font usually is from its code in ASCII."""


def _before(letter: str) -> str:
    earlier = ord(letter) - _APART
    return chr(earlier) if 32 < earlier < 127 else letter


def _type3(file: _File, helvetica: int) -> int:
    """A font whose characters are drawn by little programs: each draws the letter 29 places behind its own code."""
    nothing = file.add_stream("", f"{_HELVETICA[' ']} 0 d0".encode())
    programs, names, widths = [f"/g32 {nothing} 0 R"], ["/g32"], [str(_HELVETICA[" "])]
    for code in range(33, 127 - _APART):
        letter = chr(code + _APART)
        show = f"{_HELVETICA[letter]} 0 d0 BT /H 1000 Tf ({_escaped(letter)}) Tj ET"
        programs.append(f"/g{code} {file.add_stream('', show.encode())} 0 R")
        names.append(f"/g{code}")
        widths.append(str(_HELVETICA[letter]))
    return file.add(
        "<< /Type /Font /Subtype /Type3 /FontBBox [0 -300 1100 1000] /FontMatrix [0.001 0 0 0.001 0 0] "
        f"/Resources << /Font << /H {helvetica} 0 R >> >> /CharProcs << {' '.join(programs)} >> "
        f"/Encoding << /Type /Encoding /Differences [32 {' '.join(names)}] >> "
        f"/FirstChar 32 /LastChar {126 - _APART} /Widths [{' '.join(widths)}] >>"
    )


class _File:
    """A PDF as it is written. Objects 1 and 2 are the catalogue and the tree of pages."""

    def __init__(self, key: bytes | None = None, *, turned: int = 0) -> None:
        self._objects: list[bytes] = [b"<< /Type /Catalog /Pages 2 0 R >>", b""]
        self._pages: list[int] = []
        self._key = key
        self._turned = turned

    def add(self, body: str | bytes) -> int:
        """Its number."""
        self._objects.append(body.encode("cp1252") if isinstance(body, str) else body)
        return len(self._objects)

    def add_stream(self, entries: str, content: bytes) -> int:
        if self._key:
            number = len(self._objects) + 1
            own = _md5(self._key + number.to_bytes(3, "little") + b"\0\0")[: len(self._key) + 5]
            content = _rc4(own, content)
        head = f"<< {entries} /Length {len(content)} >>\nstream\n".encode("cp1252")
        return self.add(head + content + b"\nendstream")

    def add_page(self, content: int, resources: str, *, width: float = WIDTH, height: float = HEIGHT) -> None:
        page = f"/Type /Page /Parent 2 0 R /MediaBox [0 0 {width:g} {height:g}] /Rotate {self._turned}"
        self._pages.append(self.add(f"<< {page} /Resources {resources} /Contents {content} 0 R >>"))

    def finished(self, trailer: str = "") -> bytes:
        kids = " ".join(f"{number} 0 R" for number in self._pages)
        self._objects[1] = f"<< /Type /Pages /Kids [{kids}] /Count {len(self._pages)} >>".encode()
        written = io.BytesIO()
        written.write(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
        places = []
        for number, body in enumerate(self._objects, start=1):
            places.append(written.tell())
            written.write(b"%d 0 obj\n%b\nendobj\n" % (number, body))
        table = written.tell()
        size = len(self._objects) + 1
        written.write(b"xref\n0 %d\n0000000000 65535 f \n" % size)
        written.writelines(b"%010d 00000 n \n" % place for place in places)
        written.write(b"trailer\n<< /Size %d /Root 1 0 R %b >>\n" % (size, trailer.encode()))
        written.write(b"startxref\n%d\n%%%%EOF\n" % table)
        return written.getvalue()


def _paragraphs(page: str | Sequence[str]) -> list[str]:
    given = [page] if isinstance(page, str) else list(page)
    return [line for text in given for line in text.splitlines()]


def _set(
    paragraphs: Sequence[str],
    columns: int,
    size: float,
    *,
    interleaved: bool = False,
    letter: Callable[[str], str] = str,
) -> bytes:
    """The content stream of a page of text; ``letter`` says how the font writes a letter."""
    leading = size * 1.35
    room = int((HEIGHT - 2 * MARGIN) / leading)
    width = (WIDTH - 2 * MARGIN - (columns - 1) * GUTTER) / columns
    lines = [line for paragraph in paragraphs for line in _wrapped(paragraph, width, size)]
    share = -(-len(lines) // columns)
    if share > room:
        message = f"a page has no room for {share} lines"
        raise ValueError(message)
    said = []
    for column in range(columns):
        left = MARGIN + column * (width + GUTTER)
        for row, line in enumerate(lines[column * share : (column + 1) * share]):
            top = HEIGHT - MARGIN - size - row * leading
            written = _escaped("".join(map(letter, line)))
            show = f"BT /F1 {size:g} Tf 1 0 0 1 {left:.2f} {top:.2f} Tm ({written}) Tj ET"
            said.append((row if interleaved else 0, show))
    return "\n".join(show for _, show in sorted(said, key=itemgetter(0))).encode("cp1252")


def _wrapped(paragraph: str, width: float, size: float) -> list[str]:
    lines, line = [], ""
    for word in paragraph.split():
        longer = f"{line} {word}".strip()
        if line and _width(longer) * size / 1000 > width:
            lines.append(line)
            line = word
        else:
            line = longer
    return [*lines, line]


def _width(text: str) -> int:
    return sum(_HELVETICA.get(letter, 600) for letter in text)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")


def _add_image_page(
    file: _File, image: Image.Image, *, dpi: int, quality: int, over: bytes = b"", fonts: str = ""
) -> None:
    packed = io.BytesIO()
    image.convert("L").save(packed, "JPEG", quality=quality)
    picture = file.add_stream(
        f"/Type /XObject /Subtype /Image /Width {image.width} /Height {image.height} /BitsPerComponent 8 "
        "/ColorSpace /DeviceGray /Filter /DCTDecode",
        packed.getvalue(),
    )
    width, height = image.width * 72 / dpi, image.height * 72 / dpi
    content = f"q {width:.2f} 0 0 {height:.2f} 0 0 cm /Im1 Do Q\n".encode() + over
    resources = f"<< {fonts} /XObject << /Im1 {picture} 0 R >> >>"
    file.add_page(file.add_stream("", content), resources, width=round(width, 2), height=round(height, 2))


def _degraded(image: Image.Image, seed: int) -> Image.Image:
    chance = random.Random(seed)
    askew = image.rotate(chance.uniform(-0.7, 0.7), resample=Image.Resampling.BICUBIC, fillcolor=255)
    blurred = askew.filter(ImageFilter.GaussianBlur(0.8))
    grey = np.asarray(blurred, dtype=np.float32)
    faded = 40 + grey * (200 / 255)
    noisy = faded + np.random.default_rng(seed).normal(0, 12, grey.shape)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def _deflated_zeros(size: int) -> bytes:
    """What zlib makes of so many zeros, without ever having them: one packed piece, over and over."""
    piece = 1 << 20
    packer = zlib.compressobj(9)
    first = packer.compress(bytes(piece)) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(bytes(piece)) + packer.flush(zlib.Z_FULL_FLUSH)
    many, rest = divmod(size, piece)
    tail = zlib.compressobj(9, wbits=-15)
    last = tail.compress(bytes(rest)) + tail.flush()
    return first + again * (many - 1) + last + ((size % 65_521) << 16 | 1).to_bytes(4, "big")


_PAD: Final = bytes.fromhex("28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a")


def _padded(password: str) -> bytes:
    return (password.encode("latin-1") + _PAD)[:32]


def _md5(content: bytes) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).digest()


def _rc4(key: bytes, content: bytes) -> bytes:
    state = list(range(256))
    j = 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    i = j = 0
    changed = bytearray()
    for byte in content:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        changed.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(changed)
