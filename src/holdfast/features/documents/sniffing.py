"""The type of a file, by its first bytes. No library is used, and the file's name is not trusted.

Only certain cases are decided. A recording may have a format that is not known here; then the decoder decides.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from holdfast.feature import HEAD

from .contract import InputType

_PDF_MARK: Final = b"%PDF"
"""The mark that pdfium looks for. A version may follow it, with or without a dash."""
_PDF_WITHIN: Final = 1024
_ID3_HEADER: Final = 10


class Family(Enum):
    """The files that can be read here. A CONTAINER may hold pictures, sound or both: the first bytes do not show it."""

    PDF = auto()
    AUDIO = auto()
    CONTAINER = auto()


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of file in words, and its family if it can be read here."""

    description: str
    family: Family | None = None


_PDF: Final = _Kind("a PDF", Family.PDF)
_MP3: Final = _Kind("an MP3 recording", Family.AUDIO)
_AAC: Final = _Kind("an AAC recording", Family.AUDIO)
_WAV: Final = _Kind("a WAV recording", Family.AUDIO)
_MP4: Final = _Kind("an MP4 or QuickTime file", Family.CONTAINER)
_MPEG_TS: Final = _Kind("an MPEG transport stream", Family.CONTAINER)
_TEXT: Final = _Kind("plain text")
_HTML: Final = _Kind("a web page (HTML)")

_BEGINNINGS: Final[tuple[tuple[bytes, _Kind], ...]] = (
    (b"fLaC", _Kind("a FLAC recording", Family.AUDIO)),
    (b"#!AMR", _Kind("an AMR recording", Family.AUDIO)),
    (b"caff", _Kind("a CAF recording", Family.AUDIO)),
    (b".snd", _Kind("an AU recording", Family.AUDIO)),
    (b"wvpk", _Kind("a WavPack recording", Family.AUDIO)),
    (b"MAC ", _Kind("a Monkey's Audio recording", Family.AUDIO)),
    (b"\x1aE\xdf\xa3", _Kind("a Matroska or WebM file", Family.CONTAINER)),
    (b"OggS", _Kind("an Ogg file", Family.CONTAINER)),
    (b"\x00\x00\x01\xba", _Kind("an MPEG program stream", Family.CONTAINER)),
    (b"\x00\x00\x01\xb3", _Kind("an MPEG video", Family.CONTAINER)),
    (b"FLV\x01", _Kind("an FLV file", Family.CONTAINER)),
    (b"0&\xb2u\x8ef\xcf\x11", _Kind("an ASF or WMV file", Family.CONTAINER)),
    (b".RMF", _Kind("a RealMedia file", Family.CONTAINER)),
    (b"\x06\x0e+4\x02\x05\x01\x01", _Kind("an MXF file", Family.CONTAINER)),
    (b"MZ", _Kind("an executable (MZ)")),
    (b"\x7fELF", _Kind("an executable (ELF)")),
    (b"\xcf\xfa\xed\xfe", _Kind("an executable (Mach-O)")),
    (b"\xca\xfe\xba\xbe", _Kind("an executable (Mach-O or Java)")),
    (b"\x89PNG\r\n\x1a\n", _Kind("an image (PNG)")),
    (b"\xff\xd8\xff", _Kind("an image (JPEG)")),
    (b"GIF87a", _Kind("an image (GIF)")),
    (b"GIF89a", _Kind("an image (GIF)")),
    (b"II*\x00", _Kind("an image (TIFF)")),
    (b"MM\x00*", _Kind("an image (TIFF)")),
    (b"\x1f\x8b", _Kind("a compressed file (gzip)")),
    (b"BZh", _Kind("a compressed file (bzip2)")),
    (b"\xfd7zXZ\x00", _Kind("a compressed file (xz)")),
    (b"(\xb5/\xfd", _Kind("a compressed file (zstd)")),
    (b"7z\xbc\xaf'\x1c", _Kind("an archive (7z)")),
    (b"Rar!\x1a\x07", _Kind("an archive (RAR)")),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _Kind("an old Office document (DOC, XLS or PPT)")),
    (b"{\\rtf", _Kind("an RTF document")),
    (b"%!PS", _Kind("a PostScript document")),
    (b"SQLite format 3\x00", _Kind("a database (SQLite)")),
    (b"MThd", _Kind("a MIDI file, which holds no sound")),
)
_OFFICE: Final = ((b"word/", "Word, DOCX"), (b"xl/", "Excel, XLSX"), (b"ppt/", "PowerPoint, PPTX"))
# Files whose type is at the fifth byte; the four bytes before are a length.
_ATOMS: Final = frozenset({b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot"})
_SOUND_BRANDS: Final = frozenset({b"M4A ", b"M4B ", b"M4P ", b"F4A ", b"F4B "})
_IMAGE_BRANDS: Final = frozenset({b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1", b"avif", b"avis", b"crx "})
_HTML_BEGINNINGS: Final = ("<!doctype html", "<html", "<head", "<body", "<script")
_NAMES: Final = {InputType.PDF: "a PDF", InputType.VIDEO: "a video", InputType.AUDIO: "an audio recording"}


def family_of(head: bytes) -> Family | None:
    """The family of a file with these first bytes. None: not known here."""
    kind = _kind_of(head)
    return kind.family if kind else None


def mismatch(input_type: InputType, head: bytes) -> str | None:
    """Why a file with these first bytes cannot have this ``input_type``, in words for people. None: it may have it.

    The words name kinds of files and hold nothing of the content.
    """
    if not head:
        return "The file is empty."
    kind = _kind_of(head)
    match input_type:
        case InputType.PDF:
            fits = kind is not None and kind.family is Family.PDF
        case InputType.AUDIO:
            fits = kind is None or kind.family in {Family.AUDIO, Family.CONTAINER}
        case InputType.VIDEO:
            fits = kind is None or kind.family is Family.CONTAINER
    if fits:
        return None
    if kind is None:
        return f"The file does not begin like {_NAMES[input_type]}."
    return f"The file begins like {kind.description}, not like {_NAMES[input_type]}."


def _kind_of(head: bytes) -> _Kind | None:
    head = head[:HEAD]
    if head.startswith(_PDF_MARK):
        return _PDF
    kind = _binary(head)
    if kind is not None:
        return kind
    # Gateways and web servers put their own lines before a PDF; readers, also pdfium, look this far for its header.
    if _PDF_MARK in head[: _PDF_WITHIN + len(_PDF_MARK)]:
        return _PDF
    return _frames(head) or _text(head)


def _binary(head: bytes) -> _Kind | None:
    """Files with a signature at the beginning."""
    for beginning, kind in _BEGINNINGS:
        if head.startswith(beginning):
            return kind
    if head.startswith(b"ID3") and len(head) >= _ID3_HEADER:
        return _tagged(head)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip(head)
    if head[:4] in {b"RIFF", b"RF64", b"BW64", b"FORM"}:
        return _chunks(head)
    if head[4:8] == b"ftyp":
        return _mp4(head)
    return _MP4 if head[4:8] in _ATOMS else None


def _tagged(head: bytes) -> _Kind | None:
    """The kind of a file with an ID3 tag. Decoders skip the tag, so the bytes after it decide, if they are known."""
    size = 0
    for byte in head[6:_ID3_HEADER]:
        size = size << 7 | byte & 0x7F
    rest = head[_ID3_HEADER + size :].lstrip(b"\x00")
    return (_kind_of(rest) if rest else None) or _MP3


def _zip(head: bytes) -> _Kind:
    for part, name in _OFFICE:
        if part in head:
            return _Kind(f"an Office document ({name})")
    return _Kind("an archive (ZIP; DOCX and XLSX begin so, too)")


def _chunks(head: bytes) -> _Kind | None:
    match head[:4], head[8:12]:
        case ((b"RIFF" | b"RF64" | b"BW64"), b"WAVE"):
            return _WAV
        case b"RIFF", b"AVI ":
            return _Kind("an AVI file", Family.CONTAINER)
        case b"RIFF", b"WEBP":
            return _Kind("an image (WebP)")
        case b"FORM", (b"AIFF" | b"AIFC"):
            return _Kind("an AIFF recording", Family.AUDIO)
        case _:
            return None


def _mp4(head: bytes) -> _Kind:
    brand = head[8:12]
    if brand in _SOUND_BRANDS:
        return _Kind("an M4A recording", Family.AUDIO)
    if brand in _IMAGE_BRANDS:
        return _Kind("an image (HEIF or AVIF)")
    return _MP4


# --- formats without a signature: one frame after the other -----------------------------------------------------------


def _frames(head: bytes) -> _Kind | None:
    """Formats that are only frames. The mark of a frame is short, so the next frame must be at its place too."""
    if head.startswith(b"\xff\xfe") and _text(head) is not None:
        return None
    if _follows(head, _mp3_frame):
        return _MP3
    if _follows(head, _aac_frame):
        return _AAC
    # Packets of 188 bytes; those of Blu-ray discs have a time of four bytes before each.
    for first, packet in ((0, 188), (4, 192)):
        marks = head[first::packet][:5]
        if len(marks) > 1 and not marks.strip(b"G"):
            return _MPEG_TS
    return None


_Frame = Callable[[bytes], tuple[int, tuple[int, ...]] | None]
"""Reads a header: the length of its frame, and the values that all frames of a file share. None: not a header."""

_LONGEST_HEADER: Final = 7
_KBPS: Final = {
    (1, 1): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (1, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (1, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (2, 1): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (2, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (2, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""By version (2 also means 2.5) and layer: the rates of a frame, from index 1."""
_HERTZ: Final = (44_100, 48_000, 32_000)
_AAC_RATES: Final = 13


def _follows(head: bytes, frame: _Frame) -> bool:
    """Whether there is a frame, and right after it another frame of its kind, or the end of the head."""
    found = frame(head)
    if found is None:
        return False
    length, shared = found
    rest = head[length:]
    if len(rest) < _LONGEST_HEADER:
        return True
    following = frame(rest)
    return following is not None and following[1] == shared


def _mp3_frame(head: bytes) -> tuple[int, tuple[int, ...]] | None:
    if len(head) < _LONGEST_HEADER or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:  # noqa: PLR2004 - eleven ones
        return None
    version = {0: 3, 2: 2, 3: 1}.get(head[1] >> 3 & 3)
    layer = {1: 3, 2: 2, 3: 1}.get(head[1] >> 1 & 3)
    rate, hertz = head[2] >> 4, head[2] >> 2 & 3
    if version is None or layer is None or not 0 < rate <= len(_KBPS[1, 1]) or hertz >= len(_HERTZ):
        return None
    bits = _KBPS[min(version, 2), layer][rate - 1] * 1000
    frequency = _HERTZ[hertz] >> version - 1
    padding = head[2] >> 1 & 1
    if layer == 1:
        length = (12 * bits // frequency + padding) * 4
    else:
        samples = 72 if layer == 3 and version > 1 else 144  # noqa: PLR2004 - layer III of MPEG 2: frames half as long
        length = samples * bits // frequency + padding
    return length, (version, layer, hertz)


def _aac_frame(head: bytes) -> tuple[int, tuple[int, ...]] | None:
    if len(head) < _LONGEST_HEADER or head[0] != 0xFF or head[1] & 0xF6 != 0xF0:  # noqa: PLR2004 - twelve ones, layer 0
        return None
    hertz = head[2] >> 2 & 15
    length = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    if hertz >= _AAC_RATES or length < _LONGEST_HEADER:
        return None
    return length, (head[1], hertz)


# --- text -------------------------------------------------------------------------------------------------------------

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x9f]")


def _text(head: bytes) -> _Kind | None:
    """Text for people or programs. Playlists are text, too: a decoder would open the files that they name."""
    encoding = "utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        # An incremental decoder, because the head may end within a character.
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return None
    if _CONTROLS.search(text):
        return None
    beginning = text.lstrip()[:20].lower()
    return _HTML if beginning.startswith(_HTML_BEGINNINGS) else _TEXT
