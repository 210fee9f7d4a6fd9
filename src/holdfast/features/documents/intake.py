"""Intake of files: a form that contains the file, or JSON that says where the file is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from fastapi import Request
from pydantic import ValidationError

from holdfast import Effect, FieldProblem, HoldfastError, StoreUnavailable
from holdfast.feature import Receipt, RecordedAs, Sender, Services, Stored
from holdfast.http import (
    BODY_HEADERS,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    JSON_TYPE,
    Code,
    Contents,
    Refusal,
    field_problems,
    pick,
    read_body,
    require_plain_json,
    strict_json,
    tenant_of,
)

from .admission import AdmittedDocument, DocumentFields, DocumentForm, DocumentRequest
from .feature import DocumentService
from .records import JOBS, DocumentStatus
from .uploads import FORM_OVERHEAD, Form, FormRules, boundary_of, read_form
from .usage import Arrival
from .views import CachedDocument, DocumentReceipt, DocumentResult, status_of

CONTENTS: Final[Contents] = {"multipart/form-data": DocumentForm, JSON_TYPE: DocumentRequest}
"""What a request may contain, by media type."""


@dataclass(frozen=True, slots=True)
class _Uploaded:
    """The file of a form, while its job is admitted and recorded."""

    form: Form
    upload_id: str
    arrival: Arrival

    @property
    def effects(self) -> Sequence[Effect]:
        """The effects of recording the job."""
        return self.arrival.accepted(self.form.upload.size)


class DocumentIntake:
    """Accepts files, as a form or as JSON."""

    def __init__(self, services: Services, documents: DocumentService) -> None:
        self._services = services
        self._admission = documents.admission
        self._usage = documents.usage
        self._max_body = documents.limits.body_bytes
        self._rules = FormRules(
            names=frozenset(DocumentFields.model_fields),
            limit=self._admission.max_upload_bytes + FORM_OVERHEAD,
            check=self._check,
        )

    async def accept(self, request: Request) -> DocumentReceipt:
        """Store the file, admit the job and record it. Raises a refusal, or what the admission or the ledger raises.

        Unless a new job is recorded, the file is deleted at once, and does not count for the tenant's quota.
        """
        # Before the file is stored: with too many waiting jobs, the job would be refused after it.
        await self._services.limits.check_jobs(tenant_of(request).sender)
        headers, repeated = self._headers(request)
        boundary = boundary_of(headers.get(CONTENT_TYPE, b""))
        if boundary is None:
            await self._usage.require_room(tenant_of(request))
            return await self._record(request, await self._read_json(request, headers, repeated))
        upload_id = uuid4().hex
        async with self._usage.arriving(tenant_of(request), upload_id) as arrival:
            form = await self._read_form(request, headers, boundary, upload_id, arrival)
            try:
                return await self._record(request, form.fields, _Uploaded(form, upload_id, arrival))
            finally:
                if not arrival.left:
                    await self._admission.discard(form.upload, upload_id)

    async def _record(
        self, request: Request, fields: Mapping[str, object], uploaded: _Uploaded | None = None
    ) -> DocumentReceipt:
        admitted = await self._admission.admit(
            fields,
            company_id=tenant_of(request).company_id,
            received_at=self._services.clock.now(),
            upload=None if uploaded is None else uploaded.form.upload,
            upload_id=None if uploaded is None else uploaded.upload_id,
            filename=None if uploaded is None else uploaded.form.filename,
        )
        data = admitted.data
        receipt = await self._accept(admitted, uploaded, tenant_of(request).sender)
        match receipt.recorded_as:
            case RecordedAs.CONFLICT:
                raise Refusal(Code.IDEMPOTENCY_CONFLICT, "Another job was accepted under this job_id.")
            case RecordedAs.DUPLICATE:
                return await self._first_receipt(receipt, data.job_id)
            case RecordedAs.NEW if admitted.cached is not None:
                result = DocumentResult.of(admitted.cached)
                return CachedDocument(
                    **_receipt_fields(receipt, data.job_id, result.status, cached=True), result=result
                )
            case RecordedAs.NEW:
                return DocumentReceipt(**_receipt_fields(receipt, data.job_id, DocumentStatus.PENDING))

    async def _accept(self, admitted: AdmittedDocument, uploaded: _Uploaded | None, sender: Sender) -> Receipt:
        """Record the job. The file stays if the job is new, or if it is not known whether the job was recorded."""
        effects = [*admitted.effects, *([] if uploaded is None else uploaded.effects)]
        left = True
        try:
            receipt = await self._services.intake.accept(
                self._admission.workload,
                admitted.data,
                priority=admitted.priority,
                delay=admitted.delay,
                effects=effects,
                sender=sender,
            )
            left = receipt.recorded_as is RecordedAs.NEW
        except HoldfastError as error:
            # The commit of a store that does not answer may have been made.
            left = isinstance(error, StoreUnavailable)
            raise
        finally:
            if uploaded is not None:
                uploaded.arrival.left = left
        return receipt

    async def _first_receipt(self, receipt: Receipt, job_id: str) -> DocumentReceipt:
        """The receipt of the first job, with the status that it has now."""
        record = await self._services.store.get(JOBS, receipt.job_id) or {"status": DocumentStatus.PENDING}
        cached = bool(record.get("cached"))
        return DocumentReceipt(**_receipt_fields(receipt, job_id, status_of(record), cached=cached))

    @staticmethod
    def _headers(request: Request) -> tuple[Mapping[bytes, bytes], set[bytes]]:
        """The headers that say what the body is, and those of them that are repeated."""
        headers, repeated = pick(request.scope["headers"], BODY_HEADERS)
        encoding = headers.get(CONTENT_ENCODING, b"identity").strip().lower()
        if encoding != b"identity" or repeated & {CONTENT_TYPE, CONTENT_ENCODING}:
            raise _unsupported()
        return headers, repeated

    async def _read_form(
        self, request: Request, headers: Mapping[bytes, bytes], boundary: bytes, upload_id: str, arrival: Arrival
    ) -> Form:
        """The fields, and the stored file. The whole request must fit into the tenant's quota."""
        length = headers.get(CONTENT_LENGTH, b"")
        declared = int(length[:20]) if length.isdigit() else None
        if declared is not None and declared > self._rules.limit:
            raise Refusal(Code.PAYLOAD_TOO_LARGE, f"A file may have at most {self._admission.max_upload_bytes} bytes.")
        await arrival.begin(declared)

        async def keep(content: AsyncIterator[bytes]) -> Stored:
            return await self._admission.keep(arrival.watch(content), upload_id)

        return await read_form(request.receive, boundary, self._rules, keep)

    async def _read_json(
        self, request: Request, headers: Mapping[bytes, bytes], repeated: set[bytes]
    ) -> Mapping[str, object]:
        try:
            require_plain_json(headers, repeated)
        except Refusal as error:
            raise _unsupported() from error
        body = await read_body(request.receive, headers.get(CONTENT_LENGTH), self._max_body)
        return strict_json.parse_object(body)

    def _check(self, fields: Mapping[str, str]) -> Mapping[str, object]:
        """The fields of a form as JSON values. Wrong fields are refused before the file is stored."""
        values: dict[str, object] = dict(fields)
        if "metadata" in fields:
            values["metadata"] = _parse_field("metadata", fields["metadata"])
        for name in ("cache", "strict"):
            if fields.get(name) in {"true", "false"}:
                values[name] = fields[name] == "true"
        try:
            DocumentFields.model_validate(values)
        except ValidationError as error:
            details = field_problems(error.errors(include_url=False))
            raise Refusal(Code.INVALID_PAYLOAD, details=details) from error
        return values


def _receipt_fields(
    receipt: Receipt, job_id: str, status: DocumentStatus, *, cached: bool = False
) -> dict[str, object]:
    return {
        "job_id": job_id,
        "status": status,
        "duplicate": receipt.recorded_as is RecordedAs.DUPLICATE,
        "cached": cached,
        "queued": receipt.queued,
        "accepted_at": receipt.received_at,
    }


def _parse_field(field: str, text: str) -> object:
    try:
        return strict_json.parse(text.encode())
    except strict_json.NotStrictJson as error:
        raise Refusal(Code.INVALID_PAYLOAD, details=[FieldProblem(field, "must be JSON, as text")]) from error


def _unsupported() -> Refusal:
    message = "The body must be multipart/form-data, or application/json in UTF-8; and not compressed."
    return Refusal(Code.UNSUPPORTED_MEDIA_TYPE, message)
