"""Intake of files: a form that contains the file, or JSON that says where the file is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fastapi import Request
from pydantic import ValidationError

from holdfast import FieldProblem
from holdfast.feature import Receipt, RecordedAs, Services, Stored
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

from .admission import DocumentFields, DocumentForm, DocumentRequest
from .feature import DocumentService
from .records import JOBS, DocumentStatus
from .uploads import FORM_OVERHEAD, FormRules, boundary_of, read_form
from .views import CachedDocument, DocumentReceipt, DocumentResult, status_of

CONTENTS: Final[Contents] = {"multipart/form-data": DocumentForm, JSON_TYPE: DocumentRequest}
"""What a request may contain, by media type."""


class DocumentIntake:
    """Accepts files, as a form or as JSON."""

    def __init__(self, services: Services, documents: DocumentService) -> None:
        self._services = services
        self._admission = documents.admission
        self._max_body = documents.limits.body_bytes
        self._rules = FormRules(
            names=frozenset(DocumentFields.model_fields),
            limit=self._admission.max_upload_bytes + FORM_OVERHEAD,
            idle_timeout=documents.limits.upload_idle,
            check=self._check,
        )

    async def accept(self, request: Request) -> DocumentReceipt:
        """Store the file, admit the job and record it. Raises a refusal, or what the admission or the ledger raises."""
        fields, upload, filename = await self._read(request)
        admitted = await self._admission.admit(
            fields,
            company_id=tenant_of(request).company_id,
            received_at=self._services.clock.now(),
            upload=upload,
            filename=filename,
        )
        data = admitted.data
        receipt = await self._services.intake.accept(
            self._admission.workload,
            data,
            priority=admitted.priority,
            delay=admitted.delay,
            effects=admitted.effects,
        )
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

    async def _first_receipt(self, receipt: Receipt, job_id: str) -> DocumentReceipt:
        """The receipt of the first job, with the status that it has now."""
        record = await self._services.store.get(JOBS, receipt.job_id) or {"status": DocumentStatus.PENDING}
        cached = bool(record.get("cached"))
        return DocumentReceipt(**_receipt_fields(receipt, job_id, status_of(record), cached=cached))

    async def _read(self, request: Request) -> tuple[Mapping[str, object], Stored | None, str | None]:
        """The fields, the stored file and its name. Only a form has the last two."""
        headers, repeated = pick(request.scope["headers"], BODY_HEADERS)
        encoding = headers.get(CONTENT_ENCODING, b"identity").strip().lower()
        if encoding != b"identity" or repeated & {CONTENT_TYPE, CONTENT_ENCODING}:
            raise _unsupported()
        declared = headers.get(CONTENT_LENGTH)
        boundary = boundary_of(headers.get(CONTENT_TYPE, b""))
        if boundary is not None:
            if declared is not None and declared.isdigit() and int(declared[:20]) > self._rules.limit:
                raise Refusal(
                    Code.PAYLOAD_TOO_LARGE, f"A file may have at most {self._admission.max_upload_bytes} bytes."
                )
            form = await read_form(request.receive, boundary, self._rules, self._admission.keep)
            return form.fields, form.upload, form.filename
        try:
            require_plain_json(headers, repeated)
        except Refusal as error:
            raise _unsupported() from error
        return strict_json.parse_object(await read_body(request.receive, declared, self._max_body)), None, None

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
