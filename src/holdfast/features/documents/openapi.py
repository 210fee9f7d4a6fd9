"""The parts of the OpenAPI document about ``/v1/documents`` that FastAPI does not know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from holdfast.api.errors import Code

from .examples import TEXT_EXAMPLES
from .feature import DOCUMENTS_PATH
from .routes import JOB_PATH, OUTPUTS
from .uploads import FILE

FORM_SCHEMA: Final = "DocumentForm"

_INTAKE: Final = (
    Code.REQUEST_TIMEOUT,
    Code.IDEMPOTENCY_CONFLICT,
    Code.NOT_ACCEPTABLE,
    Code.TOO_MANY_REQUESTS,
    Code.INTAKE_UNAVAILABLE,
)
_RESULT_CODES: Final = (Code.NOT_FINISHED, Code.GONE)
_OWN_CODES: Final[dict[tuple[str, str], Iterable[Code]]] = {
    ("post", DOCUMENTS_PATH): _INTAKE,
    ("post", f"{JOB_PATH}/cancel"): (Code.TOO_LATE_TO_CANCEL,),
    ("get", f"{JOB_PATH}/events"): (Code.TOO_MANY_REQUESTS,),
    ("get", f"{JOB_PATH}/result"): _RESULT_CODES,
    **{("get", f"{JOB_PATH}/{output.path}"): _RESULT_CODES for output in OUTPUTS},
}


def own_codes(path: str, method: str) -> Iterable[Code]:
    """The error codes that only this operation returns."""
    return _OWN_CODES.get((method, path), ())


def add_file(form: dict[str, Any]) -> None:
    """Add the file to the fields of the form's schema."""
    form["description"] = "A file, and how to read it. Each part is given once, in any order."
    file = {"type": "string", "format": "binary", "description": "The file itself."}
    form["properties"] = {FILE: file, **form["properties"]}
    form["required"] = [FILE, *form["required"]]


def body_of(path: str, request: dict[str, Any], schemas: str) -> dict[str, Any] | None:
    """The body of a route, by media type; None: no body. ``request`` refers to the schema of the JSON body."""
    if path != DOCUMENTS_PATH:
        return None
    form = {"$ref": f"{schemas}{FORM_SCHEMA}"}
    return {"multipart/form-data": {"schema": form}, "application/json": {"schema": request}}


def add_text_examples(paths: dict[str, Any]) -> None:
    """Add the examples of answers that are not JSON."""
    for name, example in TEXT_EXAMPLES.items():
        for content in paths[f"{JOB_PATH}/{name}"]["get"]["responses"]["200"]["content"].values():
            content["example"] = example
