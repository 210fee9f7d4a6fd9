"""Tenants: who may hand in jobs through the open doors, and the keys that they show.

::

    TenancyRefused
    ├── KeyRefused      the key does not open anything; one message for every cause
    ├── ScopeMissing    the key is good, and not for this
    └── TenantTaken     there is a tenant with this id or name already
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from .effects import Collection
from .errors import HoldfastError

TENANTS: Final = "tenants"
API_KEYS: Final = "api_keys"

TENANT_COLLECTIONS: Final = (
    Collection(TENANTS, key="companyId"),
    Collection(API_KEYS, key="keyId", indexes=(("companyId",),), instants=("notAfter", "revokedAt")),
)
"""``tenants``: name, sender, ratePerSecond (or null), active. ``api_keys``: companyId, digest (SHA-256 of the whole
key, in hex), label, scopes, createdBy, notAfter, revokedAt. The key itself is nowhere."""


class Scope(StrEnum):
    """What a key may be used for."""

    EMAIL_SEND = "email:send"
    EMAIL_READ = "email:read"
    EMAIL_CANCEL = "email:cancel"
    DOCUMENTS_WRITE = "documents:write"
    DOCUMENTS_READ = "documents:read"


class TenancyRefused(HoldfastError):
    """The tenant may not do this."""


class KeyRefused(TenancyRefused):
    """The API key is missing, unknown, expired or revoked."""


class ScopeMissing(TenancyRefused):
    """The API key is not for this."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(f"The API key lacks the scope {scope.value}.")
        self.scope = scope


class TenantTaken(TenancyRefused):
    """There is a tenant with this id or this name already."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A company that uses this installation.

    ``sender`` is the From address of its emails, where it has one of its own; ``rate_per_second`` its own limit.
    """

    company_id: str
    name: str
    sender: str | None = None
    rate_per_second: int | None = None
    active: bool = True

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Tenant:
        """As the store has it."""
        return cls(
            company_id=document["companyId"],
            name=document["name"],
            sender=document.get("sender"),
            rate_per_second=document.get("ratePerSecond"),
            active=document.get("active", True),
        )


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as people may see it: everything but the secret."""

    key_id: str
    company_id: str
    label: str
    scopes: frozenset[Scope]
    created_at: datetime
    created_by: str
    not_after: datetime | None = None
    revoked_at: datetime | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ApiKey:
        """As the store has it. A scope that this version does not know opens nothing."""
        known = set(Scope)
        return cls(
            key_id=document["keyId"],
            company_id=document["companyId"],
            label=document.get("label", ""),
            scopes=frozenset(Scope(each) for each in document.get("scopes", ()) if each in known),
            created_at=datetime.fromisoformat(document["createdAt"]),
            created_by=document.get("createdBy", ""),
            not_after=_instant(document.get("notAfter")),
            revoked_at=_instant(document.get("revokedAt")),
        )

    def works_at(self, now: datetime) -> bool:
        """Whether it opens anything at this instant."""
        return self.revoked_at is None and (self.not_after is None or now < self.not_after)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking: a tenant, by one of its keys."""

    tenant: Tenant
    key_id: str
    scopes: frozenset[Scope]

    @property
    def company_id(self) -> str:
        """The tenant's id."""
        return self.tenant.company_id

    def require(self, scope: Scope) -> None:
        """Raise :class:`ScopeMissing` unless the key is for this."""
        if scope not in self.scopes:
            raise ScopeMissing(scope)


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
