"""Authentication of tenants by API key; and, for the routes of jobs, of operators too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from holdfast.contracts.entries import owned_key, owner_of
from holdfast.contracts.ledger import LedgerEntry
from holdfast.contracts.tenants import KeyRefused, Principal, Sender
from holdfast.engine.sender_limits import SenderLimits
from holdfast.engine.tenants import Tenants

from .errors import Code, Refusal
from .operators import OPERATOR_BEARER, SIGN_IN, OperatorGuard
from .wrong_keys import WrongKeys

TENANT_BEARER: Final = HTTPBearer(
    auto_error=False,
    scheme_name="tenantKey",
    description="A tenant's API key, `hf_<id>_<secret>`, as made by `holdfast keys create`.",
)
TENANT_HEADER: Final = APIKeyHeader(
    name="x-api-key",
    auto_error=False,
    scheme_name="tenantKeyHeader",
    description="The same key in another header. Send one of the two headers, not both.",
)
_NEEDS_EITHER: Final = (
    "This needs the operator token, or an API key of a tenant: Authorization: Bearer <OPERATOR_TOKEN or hf_...>."
)


class TenantGuard:
    """Accepts requests with one valid key that has the scope, within the tenant's rate. None: any scope will do.

    All others get the same 401, or a 403, or a 429.
    """

    def __init__(self, tenants: Tenants, limits: SenderLimits, wrong_keys: WrongKeys, scope: str | None) -> None:
        self._tenants = tenants
        self._limits = limits
        self._wrong_keys = wrong_keys
        self._scope = scope

    async def __call__(
        self,
        request: Request,
        bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(TENANT_BEARER)],
        header: Annotated[str | None, Depends(TENANT_HEADER)],
    ) -> None:
        """Store the tenant for :func:`tenant_of`. Raises what the error answer is made of."""
        request.state.principal = await self.admit(request, bearer, header)

    async def admit(
        self, request: Request, bearer: HTTPAuthorizationCredentials | None, header: str | None
    ) -> Principal:
        """The tenant of this request. The scope may be bound to the workload that the path names."""
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
        if self._scope is not None:
            principal.require(self._scope, request.path_params.get("workload"))
        return principal


@dataclass(frozen=True, slots=True)
class Caller:
    """Who uses the routes of jobs: an operator (``tenant`` is None), or a tenant, whose keys begin with its id."""

    tenant: Principal | None

    @property
    def sender(self) -> Sender | None:
        """Whose limits the request counts against; None for operators."""
        return None if self.tenant is None else self.tenant.sender

    @property
    def owner(self) -> str | None:
        """The tenant's id; None for operators."""
        return None if self.tenant is None else self.tenant.company_id

    def stored_key(self, key: str) -> str:
        """The ledger's name of a key that this caller sent."""
        return key if self.owner is None else owned_key(self.owner, key)

    def shown_key(self, key: str) -> str:
        """The key as this caller knows it."""
        return key if self.owner is None else key.removeprefix(owned_key(self.owner, ""))

    def owns(self, entry: LedgerEntry) -> bool:
        """Whether this caller may see the job. Operators see all; a tenant sees what it submitted."""
        return self.owner is None or owner_of(entry.key, entry.labels) == self.owner


class JobGuard:
    """Accepts requests with the operator token, and those that a :class:`TenantGuard` accepts.

    All others get the same 401, or a 403, or a 429.
    """

    def __init__(self, operators: OperatorGuard, tenants: TenantGuard) -> None:
        self._operators = operators
        self._tenants = tenants

    async def __call__(
        self,
        request: Request,
        operator: Annotated[HTTPAuthorizationCredentials | None, Depends(OPERATOR_BEARER)],
        bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(TENANT_BEARER)],
        header: Annotated[str | None, Depends(TENANT_HEADER)],
    ) -> None:
        """Store the caller for :func:`caller_of`. Raises what the error answer is made of."""
        token = operator.credentials if operator else ""
        if not request.headers.getlist("x-api-key") and self._operators.accepts(request, token):
            request.state.caller = Caller(None)
            return
        try:
            request.state.caller = Caller(await self._tenants.admit(request, bearer, header))
        except KeyRefused as error:
            raise Refusal(Code.UNAUTHORIZED, _NEEDS_EITHER, headers=SIGN_IN) from error


def caller_of(request: Request) -> Caller:
    """The caller of a request that the guard of jobs has accepted."""
    caller: Caller = request.state.caller
    return caller


def tenant_of(request: Request) -> Principal:
    """The tenant of a request that the guard has accepted."""
    principal: Principal = request.state.principal
    return principal
