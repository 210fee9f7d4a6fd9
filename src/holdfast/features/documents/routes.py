"""``/v1/documents``: tenants send files to be read, watch the progress, and fetch the results.

The API key is checked before the body is read. For a tenant, the jobs of other tenants do not exist. Of a stored file,
one piece is in memory at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from holdfast import FieldProblem, HoldfastError, NotFound, Page, RecordQuery
from holdfast.feature import Principal, Services
from holdfast.http import (
    INTAKE_CODES,
    JSON_TYPE,
    Code,
    FeatureRoutes,
    Frame,
    Progress,
    ProgressStream,
    Receive,
    Refusal,
    Routes,
    Send,
    Streams,
    event_schema,
    intake_refusal_of,
    refusals,
    tenant_of,
    unread_body,
)
from holdfast.http import Scope as AsgiScope

from .contract import key_of
from .feature import DOCUMENTS_PATH, DocumentService, Scope
from .intake import CONTENTS, DocumentIntake
from .records import JOBS, RESULTS, DocumentStatus
from .views import (
    CachedDocument,
    DocumentCancel,
    DocumentContent,
    DocumentList,
    DocumentReceipt,
    DocumentView,
    status_of,
)

OpenedFile = AbstractAsyncContextManager[AsyncIterator[bytes]]


class StoredResponse(Response):
    """Sends ``before``, the file, and ``after``. A missing file is refused before the answer begins.

    A file that cannot be read to its end breaks the connection off, so that nobody takes a part for the whole.
    """

    def __init__(self, file: OpenedFile, media_type: str, *, before: bytes = b"", after: bytes = b"") -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self._file = file
        self._before = before
        self._after = after

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Send the answer. The next piece is read when the last one is on its way."""
        del scope, receive
        async with self._file as pieces:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self._before, "more_body": True})
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": self._after})


JOB_PATH: Final = f"{DOCUMENTS_PATH}/{{job_id}}"

_ABOUT: Final = "Files that tenants send to be read. Needs an API key. The jobs of other tenants count as not found."
_MAX_PAGE: Final = 200
_WHOLE: Final = "result.json"
_NO_CONTENT: Final = ":null}"
"""How a :class:`DocumentContent` without content ends: its content is its last field."""

JobId = Annotated[str, Path(examples=["ocr-009"])]


@dataclass(frozen=True, slots=True)
class Output:
    """One of the output files of a job: its route, and the input types that have it."""

    path: str
    file: str
    media_type: str
    summary: str
    input_types: frozenset[str]
    input_name: str


_ANY: Final = frozenset({"PDF", "AUDIO", "VIDEO"})
_PDF: Final = frozenset({"PDF"})
_RECORDING: Final = frozenset({"AUDIO", "VIDEO"})

OUTPUTS: Final = (
    Output("text", "text.txt", "text/plain", "The text that was read", _ANY, ""),
    Output("markdown", "document.md", "text/markdown", "The text of a PDF as Markdown", _PDF, "PDFs"),
    Output("srt", "transcript.srt", "application/x-subrip", "A transcript as SRT subtitles", _RECORDING, "recordings"),
    Output("vtt", "transcript.vtt", "text/vtt", "A transcript as WebVTT subtitles", _RECORDING, "recordings"),
)
_OUTPUT_EXAMPLES: Final = {
    "text": "Contrato de prestação de serviço\n",
    "markdown": "## Page 1\n\nContrato de prestação de serviço\n",
    "srt": "1\n00:00:00,000 --> 00:00:02,400\nGood morning, everybody.\n",
    "vtt": "WEBVTT\n\n00:00:00.000 --> 00:00:02.400\nGood morning, everybody.\n",
}


class DocumentListing(BaseModel):
    """A page of the tenant's jobs."""

    model_config = ConfigDict(extra="forbid")

    status: DocumentStatus | None = None
    limit: int = Field(default=50, ge=1, le=_MAX_PAGE)
    cursor: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        default=None, description="The `next` of the page before."
    )


def document_routes(documents: DocumentService, frame: Frame) -> FeatureRoutes:
    """Submit a file, read jobs, watch progress, fetch results, cancel."""
    routes, services = Routes("documents", _ABOUT), documents.services
    streams = Streams(documents.limits.streams, services.limits)
    reading = [frame.tenants_only(Scope.DOCUMENTS_READ)]
    writing = [frame.tenants_only(Scope.DOCUMENTS_WRITE)]
    records = _Records(services, documents)
    _add_intake(routes, DocumentIntake(services, documents), writing)
    _add_reading(routes, services, records, reading)
    _add_watching(routes, documents, records, streams, reading)
    _add_outputs(routes, records, reading)
    _add_cancelling(routes, documents, records, writing)
    return FeatureRoutes([routes], leave=streams.stop)


def _add_intake(routes: Routes, intake: DocumentIntake, guarded: list[Any]) -> None:
    @routes.post(
        DOCUMENTS_PATH,
        status_code=202,
        dependencies=guarded,
        summary="Submit a file",
        description=_SUBMIT,
        response_model=DocumentReceipt,
        responses={
            200: {"model": CachedDocument, "description": "The same file was read before. This is the result."},
            **refusals(Code.REQUEST_TIMEOUT, Code.NOT_ACCEPTABLE, *INTAKE_CODES),
        },
    )
    async def submit_document(request: Request = unread_body(CONTENTS)) -> Response:
        try:
            answer = await intake.accept(request)
        except HoldfastError as error:
            raise intake_refusal_of(error) from error
        status = 200 if isinstance(answer, CachedDocument) else 202
        return Response(answer.model_dump_json(), status, media_type="application/json")


# --- reading ----------------------------------------------------------------------------------------------------


class _Records:
    """Reads the records of a tenant's jobs. A job of another tenant counts as not found."""

    def __init__(self, services: Services, documents: DocumentService) -> None:
        self._store = services.store
        self._admission = documents.admission

    async def own(self, who: Principal, job_id: str) -> Mapping[str, Any]:
        """The tenant's job. Raises :class:`NotFound`."""
        # A job of an older version and a job from the queue have the id itself as their key.
        for key in (key_of(job_id, who.company_id), job_id):
            record = await self._store.get(JOBS, key)
            if record is not None and record.get("company_id") == who.company_id:
                return record
        raise NotFound

    async def result(self, job: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of a job, or its record if it has no result. Raises a refusal for a job that is not finished."""
        status = status_of(job)
        if not status.final:
            message = f"The job is {status.value}: there is no result yet."
            raise Refusal(Code.NOT_FINISHED, message, details=[FieldProblem("status", status.value)])
        return await self._store.get(RESULTS, job["job_id"]) or job

    def content(self, result: Mapping[str, Any], file: str) -> OpenedFile | None:
        """One file of a result; None if the job was not completed. Raises ``FileMissing``."""
        if status_of(result) is not DocumentStatus.COMPLETED:
            return None
        return self._admission.opened_output(result, file)


def _add_reading(routes: Routes, services: Services, records: _Records, guarded: list[Any]) -> None:
    @routes.get(DOCUMENTS_PATH, dependencies=guarded, summary="List your jobs, newest first")
    async def list_documents(request: Request, listing: Annotated[DocumentListing, Query()]) -> DocumentList:
        where: dict[str, Any] = {"company_id": tenant_of(request).company_id}
        if listing.status is not None:
            where["status"] = listing.status.value
        query = RecordQuery(collection=JOBS, where=where, newest_by="accepted_at")
        found = await services.store.find_records(query, Page(listing.limit, listing.cursor))
        return DocumentList(items=[DocumentView.of(each) for each in found.items], next=found.next)

    @routes.get(JOB_PATH, dependencies=guarded, summary="Show the status of one of your jobs")
    async def show_document(request: Request, job_id: JobId) -> DocumentView:
        return DocumentView.of(await records.own(tenant_of(request), job_id))

    @routes.get(
        f"{JOB_PATH}/result",
        dependencies=guarded,
        summary="Show the result of a job, with all content",
        description=_RESULT,
        response_model=DocumentContent,
        responses=refusals(Code.NOT_FINISHED, Code.GONE),
    )
    async def show_result(request: Request, job_id: JobId) -> Response:
        result = await records.result(await records.own(tenant_of(request), job_id))
        view = DocumentContent.of(result, content=None).model_dump_json()
        content = records.content(result, _WHOLE)
        if content is None:
            return Response(view, media_type=JSON_TYPE)
        # The content is JSON already, and may be long: it is put in as it is, in the place of the null at the end.
        before = view.removesuffix(_NO_CONTENT).encode() + b":"
        return StoredResponse(content, JSON_TYPE, before=before, after=b"}")


def _add_outputs(routes: Routes, records: _Records, guarded: list[Any]) -> None:
    for output in OUTPUTS:
        _add_output(routes, records, guarded, output)


def _add_output(routes: Routes, records: _Records, guarded: list[Any], output: Output) -> None:
    content = {"schema": {"type": "string"}, "example": _OUTPUT_EXAMPLES[output.path]}

    @routes.get(
        f"{JOB_PATH}/{output.path}",
        name=f"show_{output.path}",
        dependencies=guarded,
        summary=output.summary,
        response_class=Response,
        responses={200: {"content": {output.media_type: content}}, **refusals(Code.NOT_FINISHED, Code.GONE)},
    )
    async def show_output(request: Request, job_id: JobId) -> Response:
        job = await records.own(tenant_of(request), job_id)
        if job["input_type"] not in output.input_types:
            message = f"Only {output.input_name} have {output.path}; this job has another input_type."
            raise Refusal(Code.NOT_FOUND, message)
        result = await records.result(job)
        content = records.content(result, output.file)
        if content is None:
            raise Refusal(Code.NOT_FOUND, f"The job is {status_of(result).value}: nothing was read. See its result.")
        return StoredResponse(content, f"{output.media_type}; charset=utf-8")


# --- watching and cancelling ------------------------------------------------------------------------------------


def _add_watching(
    routes: Routes,
    documents: DocumentService,
    records: _Records,
    streams: Streams,
    guarded: list[Any],
) -> None:
    @routes.get(
        f"{JOB_PATH}/events",
        dependencies=guarded,
        summary="Watch a job: server-sent events",
        description=_EVENTS,
        response_class=Response,
        responses={
            200: {
                "content": {
                    ProgressStream.media_type: {"schema": event_schema("DocumentView"), "example": _EVENT_EXAMPLE}
                }
            },
            **refusals(Code.TOO_MANY_REQUESTS, Code.TOO_MANY_STREAMS),
        },
    )
    async def watch_document(request: Request, job_id: JobId) -> Response:
        who = tenant_of(request)
        await records.own(who, job_id)

        async def read_progress() -> Progress | None:
            try:
                if not await documents.services.tenants.still_allowed(who):
                    return None
                view = DocumentView.of(await records.own(who, job_id))
            except NotFound:
                return None
            return Progress(view.model_dump_json(), view.status.final)

        return ProgressStream(
            streams,
            who.sender,
            read_progress,
            interval=documents.limits.stream_interval,
            keep_alive=documents.limits.stream_keep_alive,
        )


def _add_cancelling(routes: Routes, documents: DocumentService, records: _Records, guarded: list[Any]) -> None:
    @routes.post(
        f"{JOB_PATH}/cancel",
        dependencies=guarded,
        summary="Cancel a job that is not finished",
        description=_CANCEL,
        responses={
            202: {"model": DocumentCancel, "description": "The job is running, and will stop soon."},
            **refusals(Code.TOO_LATE_TO_CANCEL),
        },
    )
    async def cancel_document(request: Request, response: Response, job_id: JobId) -> DocumentCancel:
        who = tenant_of(request)
        record = await records.own(who, job_id)
        status = status_of(record)
        if not status.final:
            await documents.services.cancellation.cancel(documents.admission.workload, record["job_id"])
            status = status_of(await records.own(who, job_id))
        # Cancelling twice is allowed: the second answer equals the first.
        if status is DocumentStatus.CANCELLED:
            return DocumentCancel(job_id=job_id, status=status, cancel_requested=False)
        if status.final:
            message = f"The job is {status.value}: it is finished."
            raise Refusal(Code.TOO_LATE_TO_CANCEL, message, details=[FieldProblem("status", status.value)])
        response.status_code = 202
        return DocumentCancel(job_id=job_id, status=status, cancel_requested=True)


_SUBMIT: Final = """\
Send the file as the part `file` of a form, before or after the other fields (`metadata` is JSON, as text). Or send JSON
with the `url` or the `local_path` of the file. `local_path` is refused unless the operator has allowed it.

The file is read once. The job ends as exactly one of `COMPLETED`, `FAILED` and `CANCELLED`. The same job again, under
the same `job_id`, gets the first receipt and `duplicate: true`. Another job under the same `job_id` gets 409.

If the same file was read for you before, in the same way, you get its result at once (200, `cached: true`), unless
`cache` is false.

A damaged PDF is read as far as possible: the job is `COMPLETED`, and `warnings` list the problems, for example a
missing end mark, or a page that could not be drawn. The job is `FAILED` when no page can be read, or when `strict` is
true."""
_RESULT: Final = """\
While the job is not finished, the answer is 409 with the status. For a job that failed or was cancelled, the result has
the reason, and `content` is null. When the files of the result have been deleted, the answer is 410."""
_EVENTS: Final = """\
`event: progress` comes at once and after each change, with the same JSON as the job's status. `event: end` comes last,
with the final status. If a stream breaks off without an `end`, open it again."""
_EVENT_EXAMPLE: Final = 'retry: 2000\n\nevent: progress\ndata: {"job_id": "ocr-009", "status": "PROCESSING", ...}\n\n'
_CANCEL: Final = """\
A waiting job will not run (200, `CANCELLED`). A running job gets a request to stop (202); its status shows when it has
stopped. A finished job is answered with 409 and its status. Cancelling twice gives the same answer as once."""
