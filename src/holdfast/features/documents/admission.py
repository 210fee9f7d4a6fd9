"""Admission: a tenant's request becomes a job. A fault that can be seen at once is refused at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, WithJsonSchema

from holdfast import (
    Admitted,
    Effect,
    FieldProblem,
    InvalidContent,
    NotAcceptable,
    described,
    find_personal_data,
    sentence_of,
    usable_job_id,
)
from holdfast.feature import HEAD, FileMissing, Store, Stored
from holdfast.views import add_example

from .contract import (
    FITTING,
    JOB_ID,
    LANGUAGE,
    MOST_METADATA,
    DocumentJob,
    DocumentPayload,
    InputType,
    JobType,
    Upload,
)
from .engines import Engine
from .failures import Code, DocumentFailure
from .files import Files
from .job_records import cached_result
from .local_paths import LocalPaths
from .sniffing import mismatch
from .workload import Documents, new_job_id

_PRINTABLE: Final = described(r"^[^\x00-\x1f\x7f]+$", "must not contain control characters")
_SOURCES: Final = ("url", "local_path")
_LONGEST_NAME: Final = 255


class DocumentFields(BaseModel):
    """How to read a file, wherever it is."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=add_example)

    job_type: JobType
    input_type: InputType
    job_id: Annotated[str, Field(pattern=JOB_ID)] | None = Field(
        default=None,
        description="Your name for the job; made when absent. The same job again is a duplicate.",
        examples=["ocr-009"],
    )
    language: Annotated[str, Field(pattern=LANGUAGE)] | None = Field(
        default=None, description="The language of the content, such as pt or en.", examples=["pt"]
    )
    engine: Engine | None = Field(default=None, description="What reads the file; otherwise what the operator chose.")
    metadata: dict[str, JsonValue] | None = Field(
        default=None,
        description="Yours: given back with the job. No personal data, no secrets.",
        examples=[{"case": "2026-17"}],
    )
    callback_url: Annotated[str, Field(min_length=1, max_length=2_000)] | None = Field(
        default=None, description="Called, signed as Standard Webhooks, when the job has ended."
    )
    cache: Annotated[bool, Field(strict=True)] | None = Field(
        default=None, description="false: read the file anew, even if the same was read before."
    )
    strict: Annotated[bool, Field(strict=True)] | None = Field(
        default=None, description="true: refuse a damaged PDF, instead of reading what can be read with warnings."
    )


class DocumentRequest(DocumentFields):
    """A tenant's request to read a file. The file is in the request, at ``url`` or at ``local_path``: exactly one."""

    url: Annotated[str, Field(min_length=1, max_length=4_000)] | None = Field(
        default=None,
        description="Where the file can be fetched: http or https.",
        examples=["https://example.com/contract.pdf"],
    )
    local_path: Annotated[str, Field(min_length=1, max_length=1_000, pattern=_PRINTABLE)] | None = Field(
        default=None, description="A file in one of the folders that the operator opened (DOCUMENT_ROOTS)."
    )


class DocumentForm(DocumentFields):
    """A file, and how to read it. Each part is given once, in any order."""

    file: Annotated[str, WithJsonSchema({"type": "string", "format": "binary", "description": "The file itself."})] = (
        Field(examples=["%PDF-1.7 ..."])
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionOptions:
    """The requests that an operator allows."""

    max_upload_bytes: int
    local_paths: bool = False
    callbacks: bool = False


@dataclass(frozen=True, slots=True)
class AdmittedDocument(Admitted):
    """A file to read. ``cached`` is the finished result, if the same file was read with the same settings before."""

    data: DocumentJob
    cached: Mapping[str, Any] | None = None


class DocumentAdmission:
    """Admits requests to read a file."""

    def __init__(
        self,
        workload: Documents,
        store: Store,
        files: Files,
        paths: LocalPaths,
        options: AdmissionOptions,
    ) -> None:
        self._workload = workload
        self._store = store
        self._files = files
        self._paths = paths
        self._options = options

    @property
    def workload(self) -> Documents:
        """The workload that the jobs are for."""
        return self._workload

    @property
    def max_upload_bytes(self) -> int:
        """The largest file that may come with a request."""
        return self._options.max_upload_bytes

    async def keep(self, content: AsyncIterator[bytes], upload_id: str | None = None) -> Stored:
        """Keep a file while it arrives. Raises ``UploadTooLarge`` or ``FilesUnavailable``."""
        return await self._files.keep(content, self._options.max_upload_bytes, upload_id)

    async def discard(self, upload: Stored, upload_id: str) -> None:
        """Delete a file whose job was not accepted."""
        await self._files.delete_upload(upload.sha256, upload_id)

    async def admit(  # noqa: PLR0913 - the parts of a request
        self,
        fields: Mapping[str, object],
        *,
        company_id: str,
        received_at: datetime,
        upload: Stored | None = None,
        upload_id: str | None = None,
        filename: str | None = None,
    ) -> AdmittedDocument:
        """The job of a request. Raises :class:`InvalidContent` or :class:`NotAcceptable`, which list every fault."""
        del received_at
        try:
            request = DocumentRequest.model_validate(fields)
        except ValidationError as error:
            raise InvalidContent(list(_problems(error))) from None
        wrong = [*_wrong_source(request, upload), *_wrong_kind(request), *_personal_data(request)]
        if wrong:
            raise InvalidContent(wrong)
        refused = [*self._unavailable(request), *await self._wrong_content(request, company_id, upload)]
        if refused:
            raise NotAcceptable(refused)
        data = _job_of(request, company_id, _upload_of(upload, upload_id, filename))
        if request.job_id is not None and not await self._has_plain_key(request.job_id, company_id):
            data = data.model_copy(update={"scoped": True})
        cached, effects = await self._cached(data)
        return AdmittedDocument(data, effects=effects, cached=cached)

    async def output(self, result: Mapping[str, Any], name: str) -> bytes:
        """An output file of a finished job, whole. Raises ``FileMissing`` or ``FilesUnavailable``."""
        return await self._files.read(_output_path(result), name)

    def opened_output(self, result: Mapping[str, Any], name: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The same in pieces, read as they are asked for."""
        return self._files.opened(_output_path(result), name)

    async def _has_plain_key(self, job_id: str, company_id: str) -> bool:
        """Whether the id itself is the key of a job of this tenant: an older version took it, or a queue brought it.

        A job of another tenant does not count, so its existence changes nothing for this tenant.
        """
        entry = await self._store.entry(self._workload.name, job_id)
        return entry is not None and entry.labels.get("company_id") == company_id

    def _unavailable(self, request: DocumentRequest) -> Iterator[FieldProblem]:
        """Fields that this installation cannot serve."""
        if request.local_path is not None and not self._options.local_paths:
            yield FieldProblem("local_path", "is not open over HTTP here (DOCUMENT_LOCAL_PATH_OVER_HTTP)")
        if request.callback_url is not None and not self._options.callbacks:
            yield FieldProblem("callback_url", "cannot be called: there is no DOCUMENT_CALLBACK_SECRET here")
        key = None if request.engine is None else self._workload.options.missing_key(request.engine)
        if key is not None:
            yield FieldProblem("engine", f"{request.engine} is not set up here ({key})")

    async def _wrong_content(
        self, request: DocumentRequest, company_id: str, upload: Stored | None
    ) -> list[FieldProblem]:
        """Problems that the file's first bytes show. The content of a URL is not known yet."""
        if upload is not None:
            problem = mismatch(request.input_type, upload.head)
            return [] if problem is None else [FieldProblem("file", problem)]
        if request.local_path is None or not self._options.local_paths:
            return []
        try:
            head = await asyncio.to_thread(_head_of, self._paths.of(company_id), request.local_path)
        except DocumentFailure as failure:
            # A missing file may still arrive. The worker tries again, and then writes a dead letter (D4).
            permanent = failure.code is Code.PATH_NOT_ALLOWED
            return [FieldProblem("local_path", failure.message)] if permanent else []
        problem = mismatch(request.input_type, head)
        return [] if problem is None else [FieldProblem("local_path", problem)]

    async def _cached(self, data: DocumentJob) -> tuple[Mapping[str, Any] | None, tuple[Effect, ...]]:
        """The finished result and the effects that record it. Only an upload's content is known now."""
        workload = self._workload
        if data.payload.upload is None or data.payload.cache is False:
            return None, ()
        content = data.payload.upload.sha256
        found = await cached_result(self._store.get, self._files, data, content, workload.options)
        if found is None:
            return None, ()
        effects = workload.records.from_cache(data, workload.options.engine_of(data), found)
        return found, tuple(effects)


def _output_path(result: Mapping[str, Any]) -> str:
    path = result.get("output_path")
    if not isinstance(path, str):
        raise FileMissing
    return path


def _head_of(paths: LocalPaths, local_path: str) -> bytes:
    with paths.opened(local_path) as file:
        return file.read(HEAD)


def _upload_of(stored: Stored | None, upload_id: str | None, filename: str | None) -> Upload | None:
    if stored is None:
        return None
    name = None if filename is None else _plain_name(filename)
    return Upload(sha256=stored.sha256, size=stored.size, upload_id=upload_id, filename=name)


def _job_of(request: DocumentRequest, company_id: str, upload: Upload | None) -> DocumentJob:
    payload = request.model_dump(exclude={"job_id", "job_type", "input_type"}, exclude_none=True)
    if upload is not None:
        payload["upload"] = upload
    return DocumentJob(
        job_id=request.job_id or new_job_id(),
        job_type=request.job_type,
        input_type=request.input_type,
        payload=DocumentPayload(**payload),
        company_id=company_id,
    )


def _plain_name(filename: str) -> str | None:
    """The last part of a file's name. Control characters are removed; a name with personal data is dropped."""
    last = filename.replace("\\", "/").rpartition("/")[2]
    kept = "".join(character for character in last if character.isprintable())[:_LONGEST_NAME]
    return None if not kept or find_personal_data(kept) is not None else kept


def _problems(error: ValidationError) -> Iterator[FieldProblem]:
    for each in error.errors(include_url=False, include_input=False):
        yield FieldProblem(".".join(map(str, each["loc"])) or "document", sentence_of(each))


def _wrong_source(request: DocumentRequest, upload: Stored | None) -> Iterator[FieldProblem]:
    given = [name for name in _SOURCES if getattr(request, name) is not None]
    if len(given) + (upload is not None) != 1:
        yield FieldProblem("document", "must have exactly one of a file, url and local_path")
    for name in ("url", "callback_url"):
        address = getattr(request, name)
        if address is not None and not _is_web_address(address):
            yield FieldProblem(name, "must be an http:// or https:// address, without a user name or a password")


def _is_web_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return (
            parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and parts.username is None
            and parts.password is None
            and parts.port != 0
            and address.isprintable()
            and " " not in address
        )
    except ValueError:
        return False


def _wrong_kind(request: DocumentRequest) -> Iterator[FieldProblem]:
    if request.input_type not in FITTING[request.job_type]:
        fitting = " or ".join(sorted(each.value for each in FITTING[request.job_type]))
        yield FieldProblem("input_type", f"{request.job_type.value} needs {fitting}")


def _personal_data(request: DocumentRequest) -> Iterator[FieldProblem]:
    """Personal data and secrets do not go into a queue (I14)."""
    if request.metadata is not None:
        text = json.dumps(request.metadata, ensure_ascii=False)
        if len(text.encode(errors="surrogatepass")) > MOST_METADATA:
            yield FieldProblem("metadata", f"must have at most {MOST_METADATA} bytes as JSON")
        kind = find_personal_data(text)
        if kind is not None:
            yield FieldProblem("metadata", f"must not hold a {kind.value}")
    if request.job_id is None:
        return
    if find_personal_data(request.job_id) is not None:
        yield FieldProblem("job_id", "must not hold personal data")
    if not usable_job_id(request.job_id):
        yield FieldProblem("job_id", "is a name that queues reserve for themselves")
