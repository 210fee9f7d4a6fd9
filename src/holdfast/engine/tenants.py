"""Tenants and their API keys: operators make them, senders send them with each request.

A key is ``hf_<id>_<secret>``. It is shown once, when it is made; the store keeps its SHA-256. The secret has 32 random
bytes, so a plain hash is enough: the secret cannot be guessed.
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple
from uuid import UUID

from holdfast.contracts.admission import FieldProblem, InvalidContent
from holdfast.contracts.effects import Upsert
from holdfast.contracts.errors import NotFound
from holdfast.contracts.ports import Clock, Store
from holdfast.contracts.queries import Page, RecordQuery
from holdfast.contracts.tenants import (
    API_KEYS,
    LIMIT_NAMES,
    TENANTS,
    ApiKey,
    KeyRefused,
    Principal,
    Tenant,
    TenantInactive,
    TenantLimits,
    TenantTaken,
    bound_scope,
)
from holdfast.contracts.times import isoformat

_SECRET_BYTES: Final = 32
_ID_BYTES: Final = 8
_KEY: Final = re.compile(r"hf_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")
_PAGE: Final = 200
_MAX_NAME: Final = 200
_MAX_RATE: Final = 1_000_000
_MAX_LIMIT: Final = 2**53 - 1
_NO_DIGEST: Final = sha256(b"").hexdigest()
_REMEMBER_SECONDS: Final = 0.5
"""How long a process uses a key that it has read: a revoked key is refused everywhere within a second."""
_MOST_REMEMBERED: Final = 1_000


class _Known(NamedTuple):
    """A key and its tenant as they were read, and when. ``principal`` is the same for all requests with the key."""

    key: ApiKey
    digest: str
    principal: Principal
    read_at: float


class Tenants:
    """The tenants and their keys.

    ``scopes`` are all that a key may be made for. A scope for jobs may be bound to one of ``workloads``. ``entropy``
    returns so many random bytes.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        scopes: Collection[str] = (),
        entropy: Callable[[int], bytes] = secrets.token_bytes,
        workloads: Collection[str] = (),
    ) -> None:
        self._store = store
        self._clock = clock
        self._scopes = tuple(scopes)
        self._workloads = tuple(workloads)
        self._entropy = entropy
        self._known: OrderedDict[str, _Known] = OrderedDict()
        """The keys that were used last, by their ids."""

    # --- tenants ------------------------------------------------------------------------------------------

    async def add(
        self,
        name: str,
        *,
        company_id: str | None = None,
        sender: str | None = None,
        rate_per_second: int | None = None,
    ) -> Tenant:
        """A new tenant. Raises :class:`TenantTaken` for the id or the name of another tenant."""
        name = name.strip()
        _check(name, rate_per_second)
        company_id = _uuid(company_id) if company_id is not None else str(UUID(bytes=self._entropy(16), version=4))
        # A read before the write is enough: only operators add tenants, and they do not race for one name.
        if any(each.company_id == company_id or each.name == name for each in await self.everyone()):
            raise TenantTaken
        tenant = Tenant(company_id, name, sender, rate_per_second)
        facts = {"name": name, "sender": sender, "ratePerSecond": rate_per_second, "active": True}
        await self._store.apply([Upsert(TENANTS, company_id, facts)])
        return tenant

    async def everyone(self) -> list[Tenant]:
        """All tenants, by name."""
        found = [Tenant.of(each) for each in await self._all(TENANTS)]
        return sorted(found, key=lambda tenant: (tenant.name, tenant.company_id))

    async def get(self, company_id: str) -> Tenant | None:
        """The tenant with this id."""
        record = await self._store.get(TENANTS, company_id)
        return None if record is None else Tenant.of(record)

    async def named(self, reference: str) -> Tenant:
        """The tenant with this id or this name. Raises :class:`NotFound`."""
        found = [each for each in await self.everyone() if reference.strip() in {each.company_id, each.name}]
        if not found:
            message = "There is no such tenant; `holdfast tenants list` shows them."
            raise NotFound(message)
        return found[0]

    async def set_active(self, company_id: str, *, active: bool) -> Tenant:
        """Deactivate a tenant, or activate it again. Raises :class:`NotFound`.

        From then on its keys are refused, within a second in all processes, and its streams end.
        """
        return await self._change(company_id, {"active": active})

    async def set_limits(self, company_id: str, limits: TenantLimits) -> Tenant:
        """Give a tenant its own limits, instead of all that it had. Raises :class:`NotFound`."""
        for name, public in LIMIT_NAMES.items():
            value = getattr(limits, name)
            if value is not None and not 1 <= value <= _MAX_LIMIT:
                raise InvalidContent([FieldProblem(public, f"must be a whole number from 1 to {_MAX_LIMIT}")])
        return await self._change(company_id, {"limits": limits.facts()})

    async def _change(self, company_id: str, facts: Mapping[str, Any]) -> Tenant:
        if await self.get(company_id) is None:
            raise NotFound
        await self._store.apply([Upsert(TENANTS, company_id, facts)])
        self._known.clear()
        changed = await self.get(company_id)
        if changed is None:
            raise NotFound
        return changed

    # --- keys ---------------------------------------------------------------------------------------------

    async def create_key(
        self,
        company_id: str,
        *,
        scopes: Collection[str] | None = None,
        label: str = "",
        not_after: datetime | None = None,
        created_by: str = "",
    ) -> tuple[ApiKey, str]:
        """A new key for a tenant, and its text, which is not shown again. Without ``scopes`` it is for everything.

        Raises :class:`NotFound` for an unknown tenant.
        """
        scopes = self._scopes if scopes is None else scopes
        if await self.get(company_id) is None:
            raise NotFound
        if not scopes:
            raise InvalidContent([FieldProblem("scopes", "must name at least one")])
        if problems := [problem for each in scopes if (problem := self._problem(each)) is not None]:
            raise InvalidContent([FieldProblem("scopes", each) for each in dict.fromkeys(problems)])
        if not_after is not None and not_after <= self._clock.now():
            raise InvalidContent([FieldProblem("notAfter", "must be in the future")])
        _check_text("label", label)
        key_id = self._entropy(_ID_BYTES).hex()
        text = f"hf_{key_id}_{_base64(self._entropy(_SECRET_BYTES))}"
        facts = {
            "companyId": company_id,
            "digest": _digest(text),
            "label": label,
            "scopes": sorted(scopes),
            "createdBy": created_by,
            "notAfter": None if not_after is None else isoformat(not_after),
            "revokedAt": None,
        }
        await self._store.apply([Upsert(API_KEYS, key_id, facts)])
        return await self.key(key_id), text

    def _problem(self, scope: str) -> str | None:
        """Why no key can be made for this scope; None if one can."""
        bound = bound_scope(scope)
        if scope in self._scopes or (bound is not None and bound[0] in self._scopes and bound[1] in self._workloads):
            return None
        if bound is None:
            return f"must be among {', '.join(self._scopes)}"
        if not self._workloads:
            return (
                f"{bound[0]} can be bound to a workload of your app, which --app or HOLDFAST_APP names; there is none"
            )
        return f"{bound[0]} can be bound to {', '.join(self._workloads)}, and to no other workload"

    async def key(self, key_id: str) -> ApiKey:
        """One key. Raises :class:`NotFound`."""
        record = await self._store.get(API_KEYS, key_id)
        if record is None:
            message = "There is no such key; `holdfast keys list` shows them."
            raise NotFound(message)
        return ApiKey.of(record)

    async def keys(self, company_id: str | None = None) -> list[ApiKey]:
        """The keys of one tenant, or all, oldest first."""
        found = await self._all(API_KEYS, {} if company_id is None else {"companyId": company_id})
        return sorted((ApiKey.of(each) for each in found), key=lambda key: (key.created_at, key.key_id))

    async def revoke(self, key_id: str) -> ApiKey:
        """Revoke the key from now on. The first revocation counts. Raises :class:`NotFound`."""
        key = await self.key(key_id)
        if key.revoked_at is None:
            await self._store.apply([Upsert(API_KEYS, key_id, {"revokedAt": isoformat(self._clock.now())})])
            self._known.pop(key_id, None)
        return await self.key(key_id)

    # --- authentication -----------------------------------------------------------------------------------

    async def authenticate(self, presented: str) -> Principal:
        """The tenant with this key.

        Raises :class:`KeyRefused`, the same for every cause, and :class:`TenantInactive` only for a key that is right.
        """
        parts = _KEY.fullmatch(presented)
        key_id, digest = "" if parts is None else parts[1], _digest(presented)
        known = self._remembered(key_id)
        # A wrong secret of a known key is looked up like an unknown key: the work tells nobody which keys there are.
        if not hmac.compare_digest(digest, _NO_DIGEST if known is None else known.digest):
            known = None if parts is None else await self._read(key_id, digest)
        if known is None or not known.key.works_at(self._clock.now()):
            raise KeyRefused
        if not known.principal.tenant.active:
            raise TenantInactive
        return known.principal

    async def still_allowed(self, principal: Principal) -> bool:
        """Whether the key of this principal still works, and its tenant is active. For answers that take long."""
        known = self._remembered(principal.key_id) or await self._read(principal.key_id)
        return known is not None and known.principal.tenant.active and known.key.works_at(self._clock.now())

    def _remembered(self, key_id: str) -> _Known | None:
        """The key and its tenant, if they were read a moment ago."""
        known = self._known.get(key_id)
        if known is None or self._clock.monotonic() - known.read_at >= _REMEMBER_SECONDS:
            return None
        self._known.move_to_end(key_id)
        return known

    async def _read(self, key_id: str, digest: str | None = None) -> _Known | None:
        """The key and its tenant, from the store. None for an unknown key, and for a key with another digest."""
        now = self._clock.monotonic()
        record = await self._store.get(API_KEYS, key_id)
        held = _NO_DIGEST if record is None else str(record["digest"])
        if not hmac.compare_digest(held if digest is None else digest, held) or record is None:
            return None
        tenant = await self.get(record["companyId"])
        if tenant is None:
            return None
        # Only right keys are remembered. Whoever tries many wrong ones pushes nothing out.
        key = ApiKey.of(record)
        # A scope that is not known here opens nothing.
        principal = Principal(tenant, key.key_id, frozenset(each for each in key.scopes if self._problem(each) is None))
        known = self._known[key_id] = _Known(key, held, principal, now)
        self._known.move_to_end(key_id)
        if len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        return known

    async def _all(self, collection: str, where: Mapping[str, Any] | None = None) -> list[Mapping[str, Any]]:
        query = RecordQuery(collection=collection, where=where or {})
        found: list[Mapping[str, Any]] = []
        cursor = None
        while True:
            page = await self._store.find_records(query, Page(_PAGE, cursor))
            found += page.items
            cursor = page.next
            if cursor is None:
                return found


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _base64(secret: bytes) -> str:
    return urlsafe_b64encode(secret).rstrip(b"=").decode("ascii")


def _uuid(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise InvalidContent([FieldProblem("id", "must be a UUID")]) from None


def _check(name: str, rate: int | None) -> None:
    if not name:
        raise InvalidContent([FieldProblem("name", "must not be empty")])
    _check_text("name", name)
    if rate is not None and not 1 <= rate <= _MAX_RATE:
        raise InvalidContent([FieldProblem("rate", f"must be a whole number from 1 to {_MAX_RATE}")])


def _check_text(field: str, text: str) -> None:
    if len(text) > _MAX_NAME or not text.isprintable():
        problem = f"must have {_MAX_NAME} characters at most, and no control characters"
        raise InvalidContent([FieldProblem(field, problem)])
