"""Reading a form with a file while it arrives.

The file is passed on as it arrives. The next bytes are read from the connection only when the file store asks for them.
So the memory never holds more of the file than one message of the server.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from holdfast import FieldProblem, scrub
from holdfast.feature import Stored
from holdfast.http import Code, Disconnected, Message, Receive, Refusal

FILE: Final = "file"
"""The name of the part that is the file."""
MAX_FIELD: Final = 64 * 1024
FORM_OVERHEAD: Final = 2 * 1024 * 1024
"""How much larger than its file a form may be: the other fields, and the headers of all parts."""

_MAX_BOUNDARY: Final = 70  # RFC 2046
_MAX_NAME_SHOWN: Final = 200
_UNENCODED: Final = frozenset({b"", b"7bit", b"8bit", b"binary"})
_DISABLED_LOG: Final = logging.getLogger(f"{__name__}.silent")
# The parser would log every malformed body, with some of its bytes (I14).
_DISABLED_LOG.disabled = True

Check = Callable[[Mapping[str, str]], Mapping[str, object]]
Keep = Callable[[AsyncIterator[bytes]], Awaitable[Stored]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormRules:
    """The rules for a form: no larger than ``limit``, no fields other than ``names``, and each field valid.

    ``check`` gets the fields as text and returns their values, or raises a refusal. The server ends a form that comes
    too slowly, or stops (API_LEAST_RATE).
    """

    names: frozenset[str]
    limit: int
    check: Check


@dataclass(frozen=True, slots=True)
class Form:
    """A complete form with its stored file. ``filename`` is what the sender wrote, unchecked."""

    fields: Mapping[str, object]
    upload: Stored
    filename: str | None


def boundary_of(content_type: bytes) -> bytes | None:
    """The boundary between the parts of a form; None if the content type is not a form.

    Raises a refusal for a form without a valid boundary.
    """
    from python_multipart.multipart import parse_options_header  # noqa: PLC0415 - of the `documents` extra

    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data":
        return None
    boundary: bytes = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= _MAX_BOUNDARY or not boundary.isascii():
        raise Refusal(Code.INVALID_PAYLOAD, "The form's Content-Type has no valid boundary.")
    return boundary


async def read_form(receive: Receive, boundary: bytes, rules: FormRules, keep: Keep) -> Form:
    """Read the form. ``keep`` stores its file.

    The content of the file ends only when the whole form has arrived and is valid. So nothing is stored when the form
    is refused or the sender disconnects. Raises a refusal, :class:`Disconnected`, or what ``keep`` raises.
    """
    form = _FormReader(receive, boundary, rules)
    await form.read_to_file()
    async with aclosing(form.content()) as content:
        upload = await keep(content)
    return Form(form.values, upload, form.filename)


class _FormReader:
    """Reads a form step by step."""

    def __init__(self, receive: Receive, boundary: bytes, rules: FormRules) -> None:
        from python_multipart import MultipartParser  # noqa: PLC0415 - of the `documents` extra

        self.values: Mapping[str, object] = {}
        self.filename: str | None = None
        self._receive = receive
        self._rules = rules
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
                "on_part_begin": self._begin_part,
                "on_header_begin": self._begin_header,
                "on_header_field": self._header_name,
                "on_header_value": self._header_value,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._add_data,
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
        )
        self._parser.logger = _DISABLED_LOG

    async def read_to_file(self) -> None:
        """Read until the file begins."""
        while not self._has_file:
            if not await self._read_message():
                raise _field_refusal(FILE, "is required")

    async def content(self) -> AsyncGenerator[bytes, None]:
        """The content of the file. It also reads the rest of the form."""
        while True:
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                yield piece
            if not await self._read_message():
                return

    async def _read_message(self) -> bool:
        """Read and parse the next message; False when there is nothing more."""
        from python_multipart.exceptions import FormParserError  # noqa: PLC0415 - of the `documents` extra

        if self._complete:
            return False
        message = await self._next_message()
        chunk: bytes = message.get("body", b"")
        self._size += len(chunk)
        if self._size > self._rules.limit:
            raise Refusal(Code.PAYLOAD_TOO_LARGE)
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise Refusal(Code.INVALID_PAYLOAD, "The body is not a form with the declared boundary.") from error
        if not message.get("more_body", False):
            self._finish()
        return True

    async def _next_message(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        return message

    def _finish(self) -> None:
        self._complete = True
        if not self._ended:
            raise Refusal(Code.INVALID_PAYLOAD, "The form ends before its last boundary.")
        if self._has_file:
            self.values = self._rules.check(self._fields)

    # --- callbacks of the parser ------------------------------------------------------------------------------

    def _begin_part(self) -> None:
        self._part = _Part()

    def _begin_header(self) -> None:
        self._part.headers.append((bytearray(), bytearray()))

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._part.headers[-1][0].extend(data[start:end])

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._part.headers[-1][1].extend(data[start:end])

    def _end_headers(self) -> None:
        name, filename = self._part.describe()
        if name == FILE:
            if self._has_file:
                raise _field_refusal(FILE, "must be given once")
            self._has_file, self.filename = True, filename
        elif name not in self._rules.names:
            raise _field_refusal(scrub(name)[:_MAX_NAME_SHOWN] or "(no name)", "is not a field of this form")
        elif name in self._fields:
            raise _field_refusal(name, "must be given once")

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self._part.name == FILE:
            self._pieces.append(data[start:end])
            return
        self._part.value.extend(data[start:end])
        if len(self._part.value) > MAX_FIELD:
            raise _field_refusal(self._part.name, f"must have at most {MAX_FIELD} bytes")

    def _end_part(self) -> None:
        if self._part.name == FILE:
            return
        try:
            self._fields[self._part.name] = self._part.value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _field_refusal(self._part.name, "must be UTF-8") from error

    def _end(self) -> None:
        self._ended = True


class _Part:
    """The part that is being read."""

    def __init__(self) -> None:
        self.name = ""
        self.headers: list[tuple[bytearray, bytearray]] = []
        self.value = bytearray()

    def describe(self) -> tuple[str, str | None]:
        """The name of the part and of its file, from its headers. Raises a refusal for an encoded part."""
        from python_multipart.multipart import parse_options_header  # noqa: PLC0415 - of the `documents` extra

        headers = {bytes(name).lower(): bytes(value) for name, value in self.headers}
        _, options = parse_options_header(headers.get(b"content-disposition"))
        self.name = options.get(b"name", b"").decode("utf-8", "replace")
        if headers.get(b"content-transfer-encoding", b"").strip().lower() not in _UNENCODED:
            raise Refusal(Code.INVALID_PAYLOAD, "The parts of the form must not be encoded.")
        filename = options.get(b"filename")
        return self.name, None if filename is None else filename.decode("utf-8", "replace")


def _field_refusal(field: str, problem: str) -> Refusal:
    return Refusal(Code.INVALID_PAYLOAD, details=[FieldProblem(field, problem)])
