"""Tenants: who may submit jobs over the HTTP API, and the API keys of tenants.

::

    TenancyRefused
    ├── KeyRefused      the key is not accepted; one message for every cause
    ├── ScopeMissing    the key is accepted, but lacks the scope for this
    ├── TenantInactive  the key is right, but an operator has deactivated the tenant
    └── TenantTaken     there is a tenant with this id or name already

    SenderLimitReached  the sender uses all that it may; it should try again after a while
    ├── TooFast         requests per second
    ├── TooManyPending  requests that wait for a commit
    ├── TooManyWaiting  jobs that are not settled
    └── TooManyStreams  open streams
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from email.utils import parseaddr
from typing import Any, Final

from pydantic.alias_generators import to_camel

from .effects import Collection
from .errors import HoldfastError

DOMAIN: Final = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
_LOCAL_PART: Final = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")

TENANTS: Final = "tenants"
API_KEYS: Final = "api_keys"

TENANT_COLLECTIONS: Final = (
    Collection(TENANTS, key="companyId"),
    Collection(API_KEYS, key="keyId", indexes=(("companyId",),), instants=("notAfter", "revokedAt")),
)
"""``tenants``: name, sender, ratePerSecond (or null), active, limits (only those that differ from the settings).
``api_keys``: companyId, digest (SHA-256 of the whole
key, in hex), label, scopes, createdBy, notAfter, revokedAt. The key itself is not stored."""


JOB_SCOPES: Final[Mapping[str, str]] = {
    "jobs:write": "submits jobs",
    "jobs:read": "reads jobs",
    "jobs:cancel": "cancels jobs",
}
"""The scopes for jobs of the installation's own workloads. Bound to one of them: ``jobs:write:invoices``."""


def bound_scope(scope: str) -> tuple[str, str] | None:
    """The scope and the workload of a bound scope; None for a scope that is not bound."""
    name, colon, workload = scope.rpartition(":")
    return (name, workload) if colon and name in JOB_SCOPES else None


class TenancyRefused(HoldfastError):
    """The tenant may not do this."""


class KeyRefused(TenancyRefused):
    """The API key is missing, unknown, expired or revoked."""


class ScopeMissing(TenancyRefused):
    """The API key is not for this."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"The API key lacks the scope {scope}.")
        self.scope = scope


class TenantInactive(TenancyRefused):
    """The operator of this installation has deactivated the tenant."""


class TenantTaken(TenancyRefused):
    """There is a tenant with this id or this name already."""


class SenderLimitReached(HoldfastError):
    """The sender uses all that it may."""

    def __init__(self, retry_after: int = 1) -> None:
        super().__init__()
        self.retry_after = retry_after
        """Seconds after which another try may succeed."""


class TooFast(SenderLimitReached):
    """The sender sends more requests per second than it may."""


class TooManyPending(SenderLimitReached):
    """Too many requests of the sender wait to be recorded."""


class TooManyWaiting(SenderLimitReached):
    """Too many jobs of the sender are not finished yet."""


class TooManyStreams(SenderLimitReached):
    """Too many streams of the sender are open."""


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """What a sender may use. None: as the settings say.

    ``requests_per_second``, ``pending`` (requests that wait for a commit) and ``streams`` count in each API process;
    ``waiting_jobs`` (jobs that are not settled) and ``stored_bytes`` in the whole installation.
    """

    requests_per_second: int | None = None
    pending: int | None = None
    waiting_jobs: int | None = None
    stored_bytes: int | None = None
    streams: int | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> TenantLimits:
        """The limits in a tenant's record. A limit that this version does not know is left out."""
        return cls(**{name: record.get(public) for name, public in LIMIT_NAMES.items()})

    def facts(self) -> dict[str, int]:
        """The limits that differ from the settings, under their names in a record and in JSON."""
        given = {public: getattr(self, name) for name, public in LIMIT_NAMES.items()}
        return {public: value for public, value in given.items() if value is not None}

    def over(self, defaults: TenantLimits) -> TenantLimits:
        """These limits, and the default for each that is None."""
        chosen = {
            name: value if (value := getattr(self, name)) is not None else getattr(defaults, name)
            for name in LIMIT_NAMES
        }
        return TenantLimits(**chosen)


LIMIT_NAMES: Final[Mapping[str, str]] = {each.name: to_camel(each.name) for each in fields(TenantLimits)}
"""The limits, and their names in a record and in JSON."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Whose limits a request counts against: a tenant, or a source of courier events.

    ``owner`` is the fairness key of its jobs, by which they are counted; None if they are not counted.
    """

    name: str
    owner: str | None = None
    limits: TenantLimits = field(default_factory=TenantLimits)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A company that uses this installation.

    ``sender`` is the From address of its emails, where it has one of its own; ``rate_per_second`` the rate of these
    emails. ``limits`` are its own limits.
    """

    company_id: str
    name: str
    sender: str | None = None
    rate_per_second: int | None = None
    active: bool = True
    limits: TenantLimits = field(default_factory=TenantLimits)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Tenant:
        """The tenant in a record of the store."""
        return cls(
            company_id=record["companyId"],
            name=record["name"],
            sender=record.get("sender"),
            rate_per_second=record.get("ratePerSecond"),
            active=record.get("active", True),
            limits=TenantLimits.of(record.get("limits") or {}),
        )


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key without its secret.

    ``scopes`` are what it may be used for: those of the features, and :data:`JOB_SCOPES`.
    """

    key_id: str
    company_id: str
    label: str
    scopes: frozenset[str]
    created_at: datetime
    created_by: str
    not_after: datetime | None = None
    revoked_at: datetime | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> ApiKey:
        """The key in a record of the store."""
        return cls(
            key_id=record["keyId"],
            company_id=record["companyId"],
            label=record.get("label", ""),
            scopes=frozenset(record.get("scopes", ())),
            created_at=datetime.fromisoformat(record["createdAt"]),
            created_by=record.get("createdBy", ""),
            not_after=_instant(record.get("notAfter")),
            revoked_at=_instant(record.get("revokedAt")),
        )

    def works_at(self, now: datetime) -> bool:
        """Whether the key is accepted at this instant."""
        return self.revoked_at is None and (self.not_after is None or now < self.not_after)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sent a request: a tenant, with one of its keys."""

    tenant: Tenant
    key_id: str
    scopes: frozenset[str]
    sender: Sender = field(init=False)
    """Whose limits the request counts against."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sender", Sender(self.company_id, self.company_id, self.limits))

    @property
    def company_id(self) -> str:
        """The tenant's id."""
        return self.tenant.company_id

    @property
    def limits(self) -> TenantLimits:
        """The tenant's own limits."""
        return self.tenant.limits

    def may(self, scope: str, workload: str | None = None) -> bool:
        """Whether the key has this scope, for everything or for this workload."""
        return scope in self.scopes or (workload is not None and f"{scope}:{workload}" in self.scopes)

    def require(self, scope: str, workload: str | None = None) -> None:
        """Raise :class:`ScopeMissing` unless the key has this scope, for everything or for this workload."""
        if not self.may(scope, workload):
            raise ScopeMissing(scope)


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def is_sender(text: str) -> bool:
    """Whether this is one plain address, alone or after a name: ``Name <user@domain>``."""
    if not text.isprintable():
        return False
    name, address = parseaddr(text)
    local, at, domain = address.rpartition("@")
    alone = text.strip() == address or text.rstrip().endswith(f"<{address}>")
    return bool(at) and alone and "," not in name and bool(_LOCAL_PART.fullmatch(local) and DOMAIN.fullmatch(domain))
