"""Documents: send files to be read, follow the progress, fetch the text."""

from __future__ import annotations

import json
import mimetypes
import secrets
import stat
import uuid
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, Literal

from holdfast.contracts.times import Duration

from .content import json_bytes, part, query_of
from .errors import JobCancelled, JobFailed
from .exchange import Exchange
from .lists import pages
from .steps import Emit, Items, Request, Sent, Steps, Upload
from .streams import events
from .views import DocumentReceipt, DocumentResult, DocumentState

_PATH: Final = "/v1/documents"
_NAME: Final = "documents"
_LARGE_FILE: Final = 300.0
"""How much longer the answer to a file may take: it comes when the file is durable."""
_JOB_TYPES: Final = {"PDF": "OCR", "AUDIO": "TRANSCRIPTION", "VIDEO": "TRANSCRIPTION"}

Output = Literal["text", "markdown", "srt", "vtt"]
Reference = DocumentReceipt | DocumentState | DocumentResult | str
"""A document: what a verb returned, or its ``job_id``."""


class DocumentVerbs:
    """The requests of ``/v1/documents``."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def submit(
        self,
        source: str | PathLike[str],
        *,
        job_id: str | None = None,
        input_type: str | None = None,
        language: str | None = None,
        engine: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        callback_url: str | None = None,
        strict: bool | None = None,
        cache: bool | None = None,
        progress: Sent | None = None,
    ) -> Steps[DocumentReceipt]:
        """Submit a local file, or the ``https://`` address of a file. When this returns, the job is on disk.

        A file is sent in pieces, and never is in memory as a whole; ``progress`` is called with the bytes that were
        sent and the size. ``input_type`` is ``PDF``, ``AUDIO`` or ``VIDEO``; otherwise the name shows it. The job
        keeps its ``job_id`` in every try; otherwise a new one is made.
        """
        name = fspath(source)
        kind = (input_type or _kind_of(name)).upper()
        fields: dict[str, Any] = {
            "job_id": job_id or f"doc-{uuid.uuid4()}",
            "job_type": _JOB_TYPES.get(kind, "OCR"),
            "input_type": kind,
            "language": language,
            "engine": engine,
            "metadata": None if metadata is None else dict(metadata),
            "callback_url": callback_url,
            "strict": strict,
            "cache": cache,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        if name.startswith(("http://", "https://")):
            request = Request(method="POST", path=_PATH, body=json_bytes({**given, "url": name}))
        else:
            request = _form(Path(name), given, progress)
        document = yield from self._exchange.json(request)
        return DocumentReceipt.read(document)

    def wait(
        self,
        document: Reference,
        timeout: Duration | None = None,
        *,
        progress: Callable[[DocumentState], None] | None = None,
    ) -> Steps[DocumentResult]:
        """Wait until a document was read, and return its result with the content.

        ``progress`` is called with each new state. Raises :class:`JobFailed`, :class:`JobCancelled` or
        ``TimeoutError``.
        """
        until = self._exchange.deadline(timeout)
        ended = isinstance(document, DocumentReceipt) and document.cached
        if not ended:
            for step in events(self._exchange, f"{_path(document)}/events", until=until):
                if not isinstance(step, Emit):
                    yield step
                elif progress is not None:
                    progress(DocumentState.read(step.item))
        return (yield from self.result(document))

    def result(self, document: Reference) -> Steps[DocumentResult]:
        """The result of a document that has ended. Raises :class:`Conflict` if it has not."""
        answer = yield from self._exchange.json(
            Request(method="GET", path=f"{_path(document)}/result", patience=_LARGE_FILE)
        )
        result = DocumentResult.read(answer)
        if result.status == "CANCELLED":
            raise JobCancelled(_NAME, result.job_id, "CANCELLED", "The document was cancelled.")
        if result.status != "COMPLETED":
            code = "FAILED" if result.error is None else result.error.code
            message = "The document could not be read." if result.error is None else result.error.message
            raise JobFailed(_NAME, result.job_id, code, message)
        return result

    def text(self, document: Reference, output: Output = "text") -> Steps[str]:
        """The text of a document that was read: as ``text``, ``markdown`` (PDF), ``srt`` or ``vtt`` (recordings)."""
        answer = yield from self._exchange.call(
            Request(
                method="GET",
                path=f"{_path(document)}/{part(output)}",
                headers={"accept": "*/*"},
                patience=_LARGE_FILE,
            )
        )
        return answer.content.decode(errors="replace")

    def show(self, document: Reference) -> Steps[DocumentState]:
        """The state of a document. Raises :class:`NotFound`."""
        answer = yield from self._exchange.json(Request(method="GET", path=_path(document)))
        return DocumentState.read(answer)

    def list(self, *, status: str | None = None, page: int | None = None) -> Items[DocumentState]:
        """Your documents, the newest first. ``page`` is how many one request brings."""
        return pages(self._exchange, _PATH, query_of(status=status, limit=page), DocumentState.read)

    def events(self, document: Reference, timeout: Duration | None = None) -> Items[DocumentState]:
        """The state of a document at once, after each change, and at its end. Raises ``TimeoutError``."""
        until = self._exchange.deadline(timeout)
        for step in events(self._exchange, f"{_path(document)}/events", until=until):
            yield Emit(DocumentState.read(step.item)) if isinstance(step, Emit) else step

    def cancel(self, document: Reference) -> Steps[DocumentState]:
        """Cancel a document, and return its state: a document that is being read stops soon.

        Raises :class:`Conflict` if it is too late.
        """
        answer = yield from self._exchange.json(Request(method="POST", path=f"{_path(document)}/cancel"))
        return DocumentState.read(answer)


def _path(document: Reference) -> str:
    return f"{_PATH}/{part(document if isinstance(document, str) else document.job_id)}"


def _kind_of(name: str) -> str:
    media_type = mimetypes.guess_type(name)[0] or ""
    if media_type == "application/pdf":
        return "PDF"
    family = media_type.partition("/")[0].upper()
    if family not in _JOB_TYPES:
        message = "The name does not show what the file is: give input_type PDF, AUDIO or VIDEO."
        raise ValueError(message)
    return family


def _form(path: Path, fields: Mapping[str, Any], sent: Sent | None) -> Request:
    """A form with the fields and the file. Raises ``OSError`` if there is no such file."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # a pipe has no size, and opening it may block for ever
        message = "This is not a file."
        raise ValueError(message)
    boundary = secrets.token_hex(16)
    parts = [
        f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n'
        f"{value if isinstance(value, str) else json.dumps(value)}\r\n"
        for name, value in fields.items()
    ]
    filename = "".join("_" if each in '"\\' or not each.isprintable() else each for each in path.name)
    parts.append(
        f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="{filename}"\r\n'
        "content-type: application/octet-stream\r\n\r\n"
    )
    upload = Upload(
        before="".join(parts).encode(errors="replace"),
        path=path,
        size=found.st_size,
        after=f"\r\n--{boundary}--\r\n".encode(),
        sent=sent,
    )
    headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
    return Request(method="POST", path=_PATH, body=upload, headers=headers, patience=_LARGE_FILE)
