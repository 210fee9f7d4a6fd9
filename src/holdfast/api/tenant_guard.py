"""Tenants at the door: whose request this is, by the API key that it shows."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from holdfast.contracts.tenants import KeyRefused, Principal, Scope
from holdfast.engine.tenants import Tenants

_BEARER: Final = HTTPBearer(
    auto_error=False,
    scheme_name="tenantKey",
    description="A tenant's API key, `hf_<id>_<secret>`, as made by `holdfast keys create`.",
)
_HEADER: Final = APIKeyHeader(
    name="x-api-key",
    auto_error=False,
    scheme_name="tenantKeyHeader",
    description="The same key in a header of its own. Send one of the two, not both.",
)


class TenantGuard:
    """Lets a request pass that shows one working key with the scope. Every other one gets the same 401, or a 403."""

    def __init__(self, tenants: Tenants, scope: Scope) -> None:
        self._tenants = tenants
        self._scope = scope

    async def __call__(
        self,
        request: Request,
        bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
        header: Annotated[str | None, Depends(_HEADER)],
    ) -> None:
        """Leave the tenant for :func:`tenant_of`. Raises :class:`KeyRefused` or :class:`ScopeMissing`."""
        sent = [*request.headers.getlist("authorization"), *request.headers.getlist("x-api-key")]
        given = [each for each in (bearer.credentials if bearer else None, header) if each]
        # Two keys in one request would leave open whose email it is.
        if len(sent) != 1 or len(given) != 1:
            raise KeyRefused
        principal = await self._tenants.authenticate(given[0])
        principal.require(self._scope)
        request.state.principal = principal


def tenant_of(request: Request) -> Principal:
    """Whose request this is, once the guard has let it pass."""
    principal: Principal = request.state.principal
    return principal
