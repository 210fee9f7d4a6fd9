"""The OpenAPI document: FastAPI's description of its routes, with what FastAPI does not know.

FastAPI does not know the bodies that :mod:`~holdfast.api.routes` read, the routes that are plain ASGI, and the error
answers that all routes have. It also describes a 422 that we never send, and drops every null from the examples.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, models_json_schema

from holdfast import __version__
from holdfast.contracts.admission import ErrorCode, FieldProblem
from holdfast.contracts.examples import example_of

from .errors import Code, Refusal
from .routes import JSON_TYPE, AsgiRoute, Routes, StrictRoute
from .views import ErrorView, Problem

INTAKE_CODES: Final = (
    Code.IDEMPOTENCY_CONFLICT,
    Code.TOO_MANY_REQUESTS,
    Code.TOO_MANY_PENDING,
    Code.TOO_MANY_WAITING,
    Code.INTAKE_UNAVAILABLE,
)
"""The errors of a route that records a job."""

_SCHEMAS: Final = "#/components/schemas/"
_DESCRIPTION: Final = """\
A job gateway. It records each job, queues it, processes it and settles it. A job that fails for good becomes a dead
letter, which a person can read, review and replay.

A 2xx answer guarantees: the job is in the ledger and will end as exactly one of `processed`, `dead_lettered` or
`expired`. An error answer guarantees: nothing was accepted, and it is safe to send the same request again.

Every answer has an `x-request-id`: the one that you sent (1 to 200 visible ASCII characters), or a new one.
Each route says what it needs: the operator token, the API key of a tenant, a signature, or nothing.
"""
_BODY_CODES: Final = (Code.INVALID_PAYLOAD, Code.PAYLOAD_TOO_LARGE, Code.UNSUPPORTED_MEDIA_TYPE)
_GUARD_CODES: Final[Mapping[str, tuple[ErrorCode, ...]]] = {
    "operatorToken": (Code.SERVICE_UNAVAILABLE, Code.UNAUTHORIZED, Code.TOO_MANY_WRONG_KEYS),
    "tenantKey": (
        *(Code.SERVICE_UNAVAILABLE, Code.INVALID_API_KEY, Code.TENANT_INACTIVE, Code.MISSING_SCOPE),
        *(Code.TOO_MANY_WRONG_KEYS, Code.TOO_MANY_PER_SECOND),
    ),
}
"""The errors of a guarded route, by the security scheme of its guard."""
_SIGN_IN: Final = "Present if the operator token or the API key is missing or wrong."

Declared = tuple[type[BaseModel], JsonSchemaMode]
References = Mapping[Any, dict[str, Any]]
"""References to the schemas, by :data:`Declared`."""


# --- what routes say ----------------------------------------------------------------------------------------------


def refusals(*codes: ErrorCode) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route: the error answers that only this route gives, with an example for each code."""
    answers: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        details = [FieldProblem(**example_of(Problem))] if code is Code.INVALID_PAYLOAD else ()
        refusal = Refusal(code, details=details)
        example = json.loads(refusal.body("req_a1b2c3"))
        answer: dict[str, Any] = {"content": {JSON_TYPE: {"examples": {example["errorCode"]: {"value": example}}}}}
        if "retry-after" in refusal.headers:
            answer["headers"] = _one_header("Retry-After", "Seconds to wait.")
        elif code in {Code.UNAUTHORIZED, Code.INVALID_API_KEY}:
            answer["headers"] = _one_header("WWW-Authenticate", _SIGN_IN)
        answers[refusal.status] = _joined(answers.get(refusal.status, {}), answer)
    return answers


def header(name: str, description: str, example: str, *, pattern: str | None = None) -> dict[str, Any]:
    """A header that a route reads by itself, for its ``parameters``."""
    schema = {"type": "string"} | ({"pattern": pattern} if pattern else {})
    return {"name": name, "in": "header", "description": description, "schema": schema, "example": example}


def _one_header(name: str, description: str) -> dict[str, Any]:
    return {name: {"description": description, "schema": {"type": "string"}}}


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """One answer for the errors of both, which have the same status and the same shape."""
    examples = {**_examples_of(first), **_examples_of(second)}
    answer = {**first, **second}
    answer["description"] = " / ".join(f"`{code}`: {each['value']['message']}" for code, each in examples.items())
    answer["content"] = {JSON_TYPE: {"schema": {"$ref": f"{_SCHEMAS}{ErrorView.__name__}"}, "examples": examples}}
    return answer


def _examples_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The examples of an error answer, by code. Other answers have none here: their models have the examples."""
    found: dict[str, Any] = answer.get("content", {}).get(JSON_TYPE, {}).get("examples", {})
    return found


# --- the document -------------------------------------------------------------------------------------------------


def describe(app: FastAPI, groups: Sequence[Routes], direct: Sequence[AsgiRoute]) -> dict[str, Any]:
    """Make the whole OpenAPI document of these groups of routes, which ``app`` contains, and of the ASGI routes."""
    chapters = [*(each.chapter for each in direct), *(each.chapter for each in groups)]
    document = get_openapi(
        title="Holdfast",
        version=__version__,
        description=_DESCRIPTION,
        routes=app.routes,
        tags=list({each["name"]: dict(each) for each in chapters}.values()),
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    routes = [
        each for group in groups for each in group.routes if isinstance(each, StrictRoute) and each.include_in_schema
    ]
    described = [(each, each.describe()) for each in direct]
    declared: set[Declared] = {
        (ErrorView, "serialization"),
        *_models_of(routes),
        *_models_in(operation for _, operation in described),
    }
    references, definitions = models_json_schema(
        sorted(declared, key=lambda each: (each[0].__module__, each[0].__qualname__, each[1])),
        ref_template=_SCHEMAS + "{model}",
        schema_generator=_InOrder,
    )
    schemas |= definitions["$defs"]
    for route in routes:
        _add_bodies(document["paths"], route, references)
    for each, operation in described:
        _name_answers(operation, references)
        document["paths"].setdefault(each.path, {})[each.method.lower()] = operation
        components.setdefault("securitySchemes", {}).update(each.security_schemes)
    for methods in document["paths"].values():
        for operation in methods.values():
            _add_errors(operation)
    return document


class _InOrder(GenerateJsonSchema):
    """Keeps the order of keys. So an example reads like the answer."""

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:  # noqa: ARG002 - inherited
        return value


def _models_of(routes: Iterable[StrictRoute]) -> Iterator[Declared]:
    """The models of bodies and answers."""
    for route in routes:
        for answer in (route.response_model, *(each.get("model") for each in route.responses.values())):
            if isinstance(answer, type) and issubclass(answer, BaseModel):
                yield answer, "serialization"
        for models in route.bodies.values():
            yield from ((each, "validation") for each in _each(models))


def _models_in(operations: Iterable[Mapping[str, Any]]) -> Iterator[Declared]:
    for operation in operations:
        yield from ((each["model"], "serialization") for each in operation["responses"].values() if "model" in each)


def _each(models: type[BaseModel] | tuple[type[BaseModel], ...]) -> tuple[type[BaseModel], ...]:
    return models if isinstance(models, tuple) else (models,)


def _add_bodies(paths: Mapping[str, Any], route: StrictRoute, references: References) -> None:
    content = {}
    for media_type, models in route.bodies.items():
        schemas = [references[each, "validation"] for each in _each(models)]
        several: dict[str, Any] = {"anyOf": schemas} if schemas else {}
        if route.most_items and schemas:
            batch = {"type": "array", "items": several, "minItems": 1, "maxItems": route.most_items}
            several = {"anyOf": [*schemas, batch]}
        content[media_type] = {"schema": several if isinstance(models, tuple) else schemas[0]}
    for method in (route.methods or ()) if content else ():
        paths[route.path_format][method.lower()]["requestBody"] = {"required": True, "content": content}


def _name_answers(operation: Mapping[str, Any], references: References) -> None:
    for answer in operation["responses"].values():
        if "model" in answer:
            answer["content"] = {JSON_TYPE: {"schema": references[answer.pop("model"), "serialization"]}}


def _add_errors(operation: dict[str, Any]) -> None:
    """Add the errors that follow from the guard, the parameters and the body of this operation."""
    answers = {str(status): answer for status, answer in operation["responses"].items()}
    if not _examples_of(answers.get("422", {})):
        answers.pop("422", None)  # FastAPI's own
    for status, answer in refusals(*_codes_of(operation)).items():
        own = answers.get(str(status), {})
        if _examples_of(own) or not own:
            answers[str(status)] = _joined(answer, own)
    operation["responses"] = dict(sorted(answers.items()))


def _codes_of(operation: Mapping[str, Any]) -> Iterator[ErrorCode]:
    places = {each["in"] for each in operation.get("parameters", ())}
    for scheme in (name for each in operation.get("security", ()) for name in each):
        yield from _GUARD_CODES.get(scheme, ())
    if "requestBody" in operation:
        yield from _BODY_CODES
    if "query" in places:
        yield Code.INVALID_QUERY
    if "path" in places:
        yield Code.NOT_FOUND
    yield Code.INTERNAL_ERROR
