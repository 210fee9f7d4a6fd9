"""Operators: they may read records and decide about dead letters. Their token, and the bodies of their requests."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Annotated, Final, TypeVar

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from . import strict_json
from .errors import Code, Refusal
from .problems import field_problems
from .reading import BODY_HEADERS, CONTENT_LENGTH, pick, read_body, require_plain_json
from .services import ApiOptions

_BEARER: Final = HTTPBearer(
    auto_error=False,
    scheme_name="operatorToken",
    description="The `OPERATOR_TOKEN` of this installation.",
)

Model = TypeVar("Model", bound=BaseModel)


class OperatorGuard:
    """Accepts only requests with the operator token. The comparison takes the same time for every token."""

    def __init__(self, options: ApiOptions) -> None:
        self._digest = sha256(options.operator_token.encode()).digest() if options.operator_token else None

    async def __call__(
        self,
        request: Request,
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
    ) -> None:
        """Refuse with 401 unless there is exactly one ``Authorization`` header and it holds the token."""
        given = credentials.credentials if credentials else ""
        # Header values arrive as Latin-1; the token may be any text.
        digest = sha256(given.encode("latin-1", "replace")).digest()
        if (
            self._digest is None
            or len(request.headers.getlist("authorization")) != 1
            or not hmac.compare_digest(digest, self._digest)
        ):
            raise Refusal(Code.UNAUTHORIZED, headers={"www-authenticate": 'Bearer realm="holdfast"'})


async def read_raw_json(request: Request, limit: int) -> bytes:
    """The body of an operator's request. The rules are those of courier events: it is parsed to check them."""
    headers, repeated = pick(request.scope["headers"], BODY_HEADERS)
    require_plain_json(headers, repeated)
    raw = await read_body(request.receive, headers.get(CONTENT_LENGTH), limit)
    try:
        strict_json.parse(raw)
    except strict_json.NotStrictJson as error:
        raise Refusal(Code.INVALID_PAYLOAD, str(error)) from error
    return raw


def validate_body(contract: type[Model], raw: bytes) -> Model:
    """The body as an instance of its contract. The refusal names the fields that are wrong."""
    try:
        return contract.model_validate_json(raw)
    except ValidationError as error:
        details = field_problems(error.errors(include_url=False))
        raise Refusal(Code.INVALID_PAYLOAD, details=details) from error


# --- the bodies of decisions ---------------------------------------------------------------------------------------


def _no_control_characters(text: str) -> str:
    if not text.isprintable():
        message = "must not contain control characters"
        raise ValueError(message)
    return text


Name = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
    AfterValidator(_no_control_characters),
]
Explanation = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=1000),
    AfterValidator(_no_control_characters),
]


class DecisionBody(BaseModel):
    """Who takes this step, and why. Both are kept with the dead letter."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    actor: Name = Field(examples=["ana"])
    reason: Explanation = Field(examples=["The downstream was down for maintenance; it is back."])
