"""The OpenAPI document: FastAPI's description of its routes, with corrections.

FastAPI does not know the courier route (plain ASGI), the bodies that routes read by themselves, and the shape of our
errors. It also describes a 422 that we never send. This module corrects all of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from holdfast import __version__
from holdfast.features.courier.intake import COURIER_PATH
from holdfast.features.documents.examples import DOCUMENT_EXAMPLES
from holdfast.features.documents.intake import form_model
from holdfast.features.documents.openapi import FORM_SCHEMA, add_file, add_text_examples, body_of, own_codes
from holdfast.features.documents.routes import DOCUMENTS_PATH
from holdfast.features.email.examples import EMAIL_EXAMPLES
from holdfast.features.email.routes import BATCH_PATH, EMAIL_PATH, EVENTS_PATH, MAX_BATCH, SEND_PATH

from .dead_letters import ReplayBody
from .errors import MESSAGES, STATUS_OF, Code
from .examples import EXAMPLES
from .operators import DecisionBody
from .services import ApiServices, CourierAdmission
from .views import ErrorView, EventReceipt

JOBS_PATH: Final = "/v1/jobs/{workload}"

_SCHEMAS: Final = "#/components/schemas/"
_DESCRIPTION: Final = """\
A job gateway. It records each job, queues it, processes it and settles it. A job that fails for good becomes a dead
letter, which a person can read, review and replay.

A 2xx answer guarantees: the job is in the ledger and will end as exactly one of `processed`, `dead_lettered` or
`expired`. An error answer guarantees: nothing was accepted, and it is safe to send the same request again.

Every answer has an `x-request-id`: the one that you sent (1 to 200 visible ASCII characters), or a new one.
Records and decisions need the operator token. Emails and documents need the API key of a tenant. `/health` and `/ready`
need neither.
"""
_TAGS: Final = (
    ("intake", "Signed events from couriers."),
    ("email", "Emails of tenants. Needs an API key. The emails of other tenants count as not found."),
    (
        "documents",
        "Files that tenants send to be read. Needs an API key. The jobs of other tenants count as not found.",
    ),
    ("jobs", "Jobs of other workloads. Needs the operator token."),
    ("events", "The state of courier events. Needs the operator token."),
    ("shipments", "The state of shipments, as the events left it. Needs the operator token."),
    ("dead letters", "Jobs that failed for good. A person decides what happens to them. Needs the operator token."),
    ("health", "For load balancers."),
)
_X_SIGNATURE: Final = """\
HMAC-SHA-256 of `<timestamp>.<raw body>` with a secret of the event's source, in hex or base64, with or without
the prefix `sha256=`. `x-signature-timestamp` holds the timestamp."""
_WEBHOOK_SIGNATURE: Final = """\
Standard Webhooks: `v1,` and the base64 HMAC-SHA-256 of `<webhook-id>.<webhook-timestamp>.<raw body>`. Several
signatures are separated by spaces. A secret that starts with `whsec_` is base64; any other secret is used as its UTF-8
bytes."""
_COURIER: Final = """\
The request is signed in one of two ways: our own (`x-signature`, `x-signature-timestamp`, optionally
`x-signature-algorithm`) or Standard Webhooks (`webhook-id`, `webhook-timestamp`, `webhook-signature`). If `x-signature`
is present, only our own way counts. The signature is verified on the raw bytes, and its secret must belong to the
`source` of the event. The timestamp may differ from our clock by 300 s (`SIGNATURE_TOLERANCE_SECONDS`).

The same event again gets the first receipt and `duplicate: true`. Another event under the same idempotency key gets
409. JSON must be unambiguous: no duplicate keys, no NaN, no integers beyond 2^53 - 1, no half surrogate pairs, no more
than 32 levels. Compressed bodies are refused."""
_COURIER_HEADERS: Final = (
    ("x-signature-timestamp", "Unix seconds; part of what `x-signature` covers.", r"^[1-9][0-9]{0,11}$", "1772107200"),
    ("x-signature-algorithm", "Only `hmac-sha256`, which is also the default.", None, "hmac-sha256"),
    ("webhook-id", "Part of what `webhook-signature` covers.", None, "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"),
    (
        "webhook-timestamp",
        "Unix seconds; part of what `webhook-signature` covers.",
        r"^[1-9][0-9]{0,11}$",
        "1772107200",
    ),
    ("x-request-id", "Becomes the event's `traceId`.", None, "req_a1b2c3"),
)
_BODY_CODES: Final = (Code.INVALID_PAYLOAD, Code.PAYLOAD_TOO_LARGE, Code.UNSUPPORTED_MEDIA_TYPE)
_IDEMPOTENCY_KEY: Final = (
    "idempotency-key",
    "Two requests with the same key are duplicates. Use an id that says nothing about a person.",
    r"^[!-~]{1,255}$",
    "boleto-2026-11-0001",
)
_BATCH_SCHEMA: Final = "EmailBatch"
_ITEM_SCHEMA: Final = "EmailBatchItem"
_ALL_EXAMPLES: Final = EXAMPLES | EMAIL_EXAMPLES | DOCUMENT_EXAMPLES
_TENANT_PATHS: Final = (EMAIL_PATH, DOCUMENTS_PATH)
_INTAKE_CODES: Final = (Code.IDEMPOTENCY_CONFLICT, Code.TOO_MANY_REQUESTS, Code.INTAKE_UNAVAILABLE)
_ERROR_HEADERS: Final[Mapping[int, tuple[str, str]]] = {
    401: ("WWW-Authenticate", "Present if the operator token or the API key is missing or wrong."),
    429: ("Retry-After", "Seconds to wait."),
    503: ("Retry-After", "Seconds to wait."),
}


def describe(app: FastAPI, services: ApiServices) -> dict[str, Any]:
    """Make the whole OpenAPI document."""
    document = get_openapi(
        title="Holdfast",
        version=__version__,
        description=_DESCRIPTION,
        routes=app.routes,
        tags=[{"name": name, "description": description} for name, description in _TAGS],
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    references = _add_models(schemas, services)
    _describe_bodies(document, services, references)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            operation["responses"].pop("422", None)
            operation["responses"] |= _refusals(_codes_of(path, method, operation))
    _add_examples(document)
    if services.courier is not None:
        document["paths"][COURIER_PATH] = {"post": _courier_operation(services.courier)}
        document["components"].setdefault("securitySchemes", {}).update(_signature_schemes())
    return document


def _add_models(schemas: dict[str, Any], services: ApiServices) -> dict[type[BaseModel], dict[str, Any]]:
    """Add the schemas of models that FastAPI does not know. Returns a reference to the schema of each input."""
    inputs: list[type[BaseModel]] = [
        DecisionBody,
        ReplayBody,
        *(each.contract for each in _without_own_route(services)),
    ]
    if services.email is not None:
        inputs.append(services.email.admission.request_model)
    if services.documents is not None:
        request_model = services.documents.admission.request_model
        inputs += [request_model, form_model(request_model)]
    references, definitions = models_json_schema(
        [*((each, "validation") for each in inputs), (ErrorView, "serialization"), (EventReceipt, "serialization")],
        ref_template=_SCHEMAS + "{model}",
    )
    schemas |= definitions["$defs"]
    if services.email is not None:
        _add_batch(schemas, services.email.admission.request_model.__name__)
    if services.documents is not None:
        add_file(schemas[FORM_SCHEMA])
    return {each: references[each, "validation"] for each in inputs}


def _add_batch(schemas: dict[str, Any], email_schema: str) -> None:
    """Add the schema of a batch: a list of emails. Each may have its idempotency key as a field."""
    key = {"type": "string", "pattern": _IDEMPOTENCY_KEY[2], "description": "Instead of the header `Idempotency-Key`."}
    email = schemas[email_schema]
    schemas[_ITEM_SCHEMA] = {
        **{name: value for name, value in email.items() if name != "examples"},
        "title": _ITEM_SCHEMA,
        "properties": email["properties"] | {"idempotencyKey": key},
    }
    schemas[_BATCH_SCHEMA] = {
        "title": _BATCH_SCHEMA,
        "type": "object",
        "required": ["emails"],
        "additionalProperties": False,
        "properties": {
            "emails": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_BATCH,
                "items": {"$ref": f"{_SCHEMAS}{_ITEM_SCHEMA}"},
            },
        },
    }


def _describe_bodies(
    document: dict[str, Any],
    services: ApiServices,
    references: Mapping[type[BaseModel], dict[str, Any]],
) -> None:
    for path, operations in document["paths"].items():
        if "post" not in operations:
            continue
        if path == JOBS_PATH:
            workloads = _without_own_route(services)
            contracts = {each.contract: references[each.contract] for each in workloads}
            schema: dict[str, Any] = {"anyOf": list(contracts.values())} if contracts else {}
            if workloads:
                operations["post"]["parameters"][0]["schema"]["enum"] = [each.name for each in workloads]
        elif path.startswith(EMAIL_PATH):
            email_schema = _email_body(path, operations["post"], services, references)
            if email_schema is None:
                continue
            schema = email_schema
        elif path.startswith(DOCUMENTS_PATH):
            content = _documents_body(path, services, references)
            if content is not None:
                operations["post"]["requestBody"] = {"required": True, "content": content}
            continue
        else:
            schema = dict(references[ReplayBody if path.endswith("letters/replay") else DecisionBody])
        operations["post"]["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}


def _email_body(
    path: str,
    operation: dict[str, Any],
    services: ApiServices,
    references: Mapping[type[BaseModel], dict[str, Any]],
) -> dict[str, Any] | None:
    """The schema of the body of an email route; None: no body."""
    if path == EVENTS_PATH:
        return {"type": "object", "description": "A message of Amazon SNS."}
    if path == BATCH_PATH:
        return {"$ref": f"{_SCHEMAS}{_BATCH_SCHEMA}"}
    if path == SEND_PATH and services.email is not None:
        operation.setdefault("parameters", []).append(_header(*_IDEMPOTENCY_KEY))
        return dict(references[services.email.admission.request_model])
    return None


def _documents_body(
    path: str,
    services: ApiServices,
    references: Mapping[type[BaseModel], dict[str, Any]],
) -> dict[str, Any] | None:
    """The body of a documents route, by media type; None: no body."""
    if services.documents is None:
        return None
    return body_of(path, dict(references[services.documents.admission.request_model]), _SCHEMAS)


def _add_examples(document: dict[str, Any]) -> None:
    """Add the example of a schema to each body and answer that has the schema."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for holder in (operation.get("requestBody", {}), *operation["responses"].values()):
                for content in holder.get("content", {}).values():
                    name = content.get("schema", {}).get("$ref", "").removeprefix(_SCHEMAS)
                    if name in _ALL_EXAMPLES:
                        content["example"] = _ALL_EXAMPLES[name]
    if DOCUMENTS_PATH in document["paths"]:
        add_text_examples(document["paths"])


def _without_own_route(services: ApiServices) -> list[Any]:
    """The workloads whose jobs come through ``/v1/jobs/{workload}``."""
    tenants = [each.admission for each in (services.email, services.documents) if each is not None]
    with_own_route = {admission.workload.name for admission in (services.courier, *tenants) if admission is not None}
    return [workload for name, workload in services.workloads.items() if name not in with_own_route]


def _codes_of(path: str, method: str, operation: Mapping[str, Any]) -> Iterable[Code]:
    """The error codes of an operation. They follow from its parameters, body and security."""
    places = {each["in"] for each in operation.get("parameters", ())}
    if "security" in operation:
        yield Code.SERVICE_UNAVAILABLE
        yield from (
            (Code.INVALID_API_KEY, Code.MISSING_SCOPE) if path.startswith(_TENANT_PATHS) else (Code.UNAUTHORIZED,)
        )
    if "requestBody" in operation:
        yield from _BODY_CODES
    if "query" in places:
        yield Code.INVALID_QUERY
    if "path" in places:
        yield Code.NOT_FOUND
    yield from _own_codes(path, method, places)
    yield Code.INTERNAL_ERROR


def _own_codes(path: str, method: str, places: set[str]) -> Iterable[Code]:
    """The error codes that only this operation returns."""
    if path.startswith(DOCUMENTS_PATH):
        yield from own_codes(path, method)
        return
    if path in {JOBS_PATH, SEND_PATH}:
        yield from _INTAKE_CODES
    if path == SEND_PATH:
        yield from (Code.RECIPIENT_SUPPRESSED, Code.UNKNOWN_HTML_REF, Code.UNKNOWN_RECIPIENT)
    elif path == EVENTS_PATH:
        yield from (Code.UNTRUSTED_NOTIFICATION, Code.SERVICE_UNAVAILABLE)
    elif method == "post" and "path" in places and path != JOBS_PATH:
        yield Code.TOO_LATE_TO_CANCEL if path.startswith(EMAIL_PATH) else Code.REVIEW_STATE_CONFLICT


def _refusals(codes: Iterable[Code]) -> dict[str, Any]:
    """The documented error answers, with an example for each code."""
    by_status: dict[int, list[Code]] = {}
    for code in codes:
        by_status.setdefault(STATUS_OF[code], []).append(code)
    return {str(status): _refusal(status, codes) for status, codes in sorted(by_status.items())}


def _refusal(status: int, codes: list[Code]) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "description": " / ".join(f"`{code.value}`: {MESSAGES[code]}" for code in codes),
        "content": {
            "application/json": {
                "schema": {"$ref": f"{_SCHEMAS}{ErrorView.__name__}"},
                "examples": {code.value: {"value": _example(code)} for code in codes},
            },
        },
    }
    if status in _ERROR_HEADERS:
        name, description = _ERROR_HEADERS[status]
        answer["headers"] = {name: {"description": description, "schema": {"type": "string"}}}
    return answer


def _example(code: Code) -> dict[str, Any]:
    example: dict[str, Any] = {
        "acknowledged": False,
        "errorCode": code.value,
        "message": MESSAGES[code],
        "traceId": "req_a1b2c3",
    }
    if code is Code.INVALID_PAYLOAD:
        example["details"] = [{"field": "payload.shipmentId", "problem": "is required"}]
    return example


def _courier_operation(admission: CourierAdmission) -> dict[str, Any]:
    schema = admission.intake_schema()
    refusals = _refusals((*_BODY_CODES, Code.INVALID_SIGNATURE, *_INTAKE_CODES, Code.INTERNAL_ERROR))
    refusals["401"].pop("headers", None)
    return {
        "tags": ["intake"],
        "summary": "Push a courier event",
        "description": _COURIER,
        "operationId": "push_courier_event",
        "security": [{"xSignature": []}, {"webhookSignature": []}],
        "parameters": [_header(*each) for each in _COURIER_HEADERS],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {
            "202": {
                "description": "The event is recorded and will be processed.",
                "content": {
                    "application/json": {
                        "schema": {"$ref": f"{_SCHEMAS}{EventReceipt.__name__}"},
                        "example": EXAMPLES[EventReceipt.__name__],
                    },
                },
            },
            **refusals,
        },
    }


def _header(name: str, description: str, pattern: str | None, example: str) -> dict[str, Any]:
    schema = {"type": "string"} | ({"pattern": pattern} if pattern else {})
    return {"name": name, "in": "header", "description": description, "schema": schema, "example": example}


def _signature_schemes() -> dict[str, Any]:
    return {
        "xSignature": {"type": "apiKey", "in": "header", "name": "x-signature", "description": _X_SIGNATURE},
        "webhookSignature": {
            "type": "apiKey",
            "in": "header",
            "name": "webhook-signature",
            "description": _WEBHOOK_SIGNATURE,
        },
    }
