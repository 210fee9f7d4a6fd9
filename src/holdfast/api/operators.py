"""Operators: they may read records and decide about dead letters. Their token, and the bodies of their requests."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from holdfast.contracts.examples import add_example

from . import ApiOptions
from .errors import Code, Refusal

OPERATOR_BEARER: Final = HTTPBearer(
    auto_error=False,
    scheme_name="operatorToken",
    description="The `OPERATOR_TOKEN` of this installation.",
)
SIGN_IN: Final = {"www-authenticate": 'Bearer realm="holdfast"'}
"""The header of every 401."""


class OperatorGuard:
    """Accepts only requests with the operator token. The comparison takes the same time for every token."""

    def __init__(self, options: ApiOptions) -> None:
        self._digest = sha256(options.operator_token.encode()).digest() if options.operator_token else None
        self._wrong_keys = options.wrong_keys

    async def __call__(
        self,
        request: Request,
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(OPERATOR_BEARER)],
    ) -> None:
        """Refuse with 401, or with 429, unless there is exactly one ``Authorization`` header and it holds the token."""
        given = credentials.credentials if credentials else ""
        if not self.accepts(request, given):
            if given:
                await self._wrong_keys.count(request.scope)
            raise Refusal(Code.UNAUTHORIZED, headers=SIGN_IN)

    def accepts(self, request: Request, given: str) -> bool:
        """Whether this is the token, and the only ``Authorization`` of the request."""
        # Header values arrive as Latin-1; the token may be any text.
        digest = sha256(given.encode("latin-1", "replace")).digest()
        alone = len(request.headers.getlist("authorization")) == 1
        return self._digest is not None and alone and hmac.compare_digest(digest, self._digest)


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

    model_config = ConfigDict(
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        json_schema_extra=add_example,
    )

    actor: Name = Field(examples=["ana"])
    reason: Explanation = Field(examples=["The downstream was down for maintenance; it is back."])
