"""Authentication of tenants by API key."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from holdfast.contracts.tenants import KeyRefused, Principal
from holdfast.engine.sender_limits import SenderLimits
from holdfast.engine.tenants import Tenants

from .wrong_keys import WrongKeys

_BEARER: Final = HTTPBearer(
    auto_error=False,
    scheme_name="tenantKey",
    description="A tenant's API key, `hf_<id>_<secret>`, as made by `holdfast keys create`.",
)
_HEADER: Final = APIKeyHeader(
    name="x-api-key",
    auto_error=False,
    scheme_name="tenantKeyHeader",
    description="The same key in another header. Send one of the two headers, not both.",
)


class TenantGuard:
    """Accepts requests with one valid key that has the scope, within the tenant's rate.

    All others get the same 401, or a 403, or a 429.
    """

    def __init__(self, tenants: Tenants, limits: SenderLimits, wrong_keys: WrongKeys, scope: str) -> None:
        self._tenants = tenants
        self._limits = limits
        self._wrong_keys = wrong_keys
        self._scope = scope

    async def __call__(
        self,
        request: Request,
        bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
        header: Annotated[str | None, Depends(_HEADER)],
    ) -> None:
        """Store the tenant for :func:`tenant_of`. Raises what the error answer is made of."""
        sent = [*request.headers.getlist("authorization"), *request.headers.getlist("x-api-key")]
        given = [each for each in (bearer.credentials if bearer else None, header) if each]
        # With two keys in one request, the tenant would not be clear.
        if len(sent) != 1 or len(given) != 1:
            raise KeyRefused
        try:
            principal = await self._tenants.authenticate(given[0])
        except KeyRefused:
            await self._wrong_keys.count(request.scope)
            raise
        await self._limits.count_request(principal.sender)
        principal.require(self._scope)
        request.state.principal = principal


def tenant_of(request: Request) -> Principal:
    """The tenant of a request that the guard has accepted."""
    principal: Principal = request.state.principal
    return principal
