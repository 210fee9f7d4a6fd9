"""Reading a form with a file in it, while it arrives.

The file goes on as it comes: whoever keeps it asks for the next bytes, and only then are they read from the connection.
So there is never more of it in memory than one message of the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.contracts.admission import FieldProblem
from holdfast.contracts.files import Stored
from holdfast.contracts.redaction import scrub

from .errors import Code, Refusal
from .reading import Disconnected, Message, Receive

FILE: Final = "file"
"""The name of the part that is the file."""
MAX_FIELD: Final = 64 * 1024
ROOM: Final = 2 * 1024 * 1024
"""How much larger than its file a form may be: the other fields, and the headers of all parts."""

_MAX_BOUNDARY: Final = 70  # RFC 2046
_MAX_NAME_TOLD: Final = 200
_AS_THEY_ARE: Final = frozenset({b"", b"7bit", b"8bit", b"binary"})
_SILENT: Final = logging.getLogger(f"{__name__}.silent")
# The parser would tell the log about every malformed body, with bytes of it (I14).
_SILENT.disabled = True

Check = Callable[[Mapping[str, str]], Mapping[str, object]]
Keep = Callable[[AsyncIterator[bytes]], Awaitable[Stored]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a form must be: no larger than ``limit``, with no other fields than ``names``, and well in all of them.

    ``check`` gets the fields as text and returns their values; it raises a refusal. ``patience`` is how long the sender
    may be silent: one that vanished without a word would leave half a file here for ever.
    """

    names: frozenset[str]
    limit: int
    patience: timedelta
    check: Check


@dataclass(frozen=True, slots=True)
class Form:
    """A form that is complete, and whose file is kept. ``filename`` is the sender's word, as it came."""

    fields: Mapping[str, object]
    upload: Stored
    filename: str | None


def boundary_of(content_type: bytes) -> bytes | None:
    """What separates the parts, where this declares a form with parts; None where it declares something else.

    Raises a refusal for a form without a usable boundary.
    """
    from python_multipart.multipart import parse_options_header  # noqa: PLC0415 - of the `documents` extra

    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data":
        return None
    boundary: bytes = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= _MAX_BOUNDARY or not boundary.isascii():
        raise Refusal(Code.INVALID_PAYLOAD, "The form's Content-Type names no usable boundary.")
    return boundary


async def read_form(receive: Receive, boundary: bytes, expected: Expected, keep: Keep) -> Form:
    """The form, whose file is kept by ``keep``.

    The file's content ends when the whole form is there and is well: of a form that is refused, or whose sender goes
    away, nothing is kept. Raises a refusal, :class:`Disconnected`, or what ``keep`` raises.
    """
    form = _Arriving(receive, boundary, expected)
    await form.reach_file()
    async with aclosing(form.content()) as content:
        upload = await keep(content)
    return Form(form.values, upload, form.filename)


class _Arriving:
    """A form of which a part has been read."""

    def __init__(self, receive: Receive, boundary: bytes, expected: Expected) -> None:
        from python_multipart import MultipartParser  # noqa: PLC0415 - of the `documents` extra

        self.values: Mapping[str, object] = {}
        self.filename: str | None = None
        self._receive = receive
        self._expected = expected
        self._fields: dict[str, str] = {}
        self._size = 0
        self._complete = False
        self._ended = False
        self._has_file = False
        self._part = _Part()
        self._pieces: list[bytes] = []
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_begin": self._header,
                "on_header_field": self._header_name,
                "on_header_value": self._header_value,
                "on_headers_finished": self._name_part,
                "on_part_data": self._take,
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
        )
        self._parser.logger = _SILENT

    async def reach_file(self) -> None:
        """Read on until the file begins."""
        while not self._has_file:
            if not await self._read_on():
                raise _wrong(FILE, "is required")

    async def content(self) -> AsyncGenerator[bytes, None]:
        """The file, and behind it, unseen, the rest of the form."""
        while True:
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                yield piece
            if not await self._read_on():
                return

    async def _read_on(self) -> bool:
        """Read and parse what comes next; False when there is nothing more."""
        from python_multipart.exceptions import FormParserError  # noqa: PLC0415 - of the `documents` extra

        if self._complete:
            return False
        message = await self._next_message()
        chunk: bytes = message.get("body", b"")
        self._size += len(chunk)
        if self._size > self._expected.limit:
            raise Refusal(Code.PAYLOAD_TOO_LARGE)
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise Refusal(Code.INVALID_PAYLOAD, "The body is not a form with the declared boundary.") from error
        if not message.get("more_body", False):
            self._finish()
        return True

    async def _next_message(self) -> Message:
        try:
            async with asyncio.timeout(self._expected.patience.total_seconds()):
                message = await self._receive()
        except TimeoutError as error:
            raise Refusal(Code.REQUEST_TIMEOUT, headers={"connection": "close"}) from error
        if message["type"] == "http.disconnect":
            raise Disconnected
        return message

    def _finish(self) -> None:
        self._complete = True
        if not self._ended:
            raise Refusal(Code.INVALID_PAYLOAD, "The form ends before its last boundary.")
        if self._has_file:
            self.values = self._expected.check(self._fields)

    # --- what the parser finds --------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._part = _Part()

    def _header(self) -> None:
        self._part.headers.append((bytearray(), bytearray()))

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._part.headers[-1][0].extend(data[start:end])

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._part.headers[-1][1].extend(data[start:end])

    def _name_part(self) -> None:
        name, filename = self._part.describe()
        if name == FILE:
            if self._has_file:
                raise _wrong(FILE, "must be given once")
            self._has_file, self.filename = True, filename
        elif name not in self._expected.names:
            raise _wrong(scrub(name)[:_MAX_NAME_TOLD] or "(no name)", "is not a field of this form")
        elif name in self._fields:
            raise _wrong(name, "must be given once")

    def _take(self, data: bytes, start: int, end: int) -> None:
        if self._part.name == FILE:
            self._pieces.append(data[start:end])
            return
        self._part.value.extend(data[start:end])
        if len(self._part.value) > MAX_FIELD:
            raise _wrong(self._part.name, f"must have at most {MAX_FIELD} bytes")

    def _end_part(self) -> None:
        if self._part.name == FILE:
            return
        try:
            self._fields[self._part.name] = self._part.value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _wrong(self._part.name, "must be UTF-8") from error

    def _end(self) -> None:
        self._ended = True


class _Part:
    """The part that is being read."""

    def __init__(self) -> None:
        self.name = ""
        self.headers: list[tuple[bytearray, bytearray]] = []
        self.value = bytearray()

    def describe(self) -> tuple[str, str | None]:
        """Its name, and the name of its file, by its headers. Raises a refusal for one that is encoded."""
        from python_multipart.multipart import parse_options_header  # noqa: PLC0415 - of the `documents` extra

        headers = {bytes(name).lower(): bytes(value) for name, value in self.headers}
        _, options = parse_options_header(headers.get(b"content-disposition"))
        self.name = options.get(b"name", b"").decode("utf-8", "replace")
        if headers.get(b"content-transfer-encoding", b"").strip().lower() not in _AS_THEY_ARE:
            raise Refusal(Code.INVALID_PAYLOAD, "The parts of the form must not be encoded.")
        filename = options.get(b"filename")
        return self.name, None if filename is None else filename.decode("utf-8", "replace")


def _wrong(field: str, problem: str) -> Refusal:
    return Refusal(Code.INVALID_PAYLOAD, details=[FieldProblem(field, problem)])
