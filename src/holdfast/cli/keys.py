"""``keys``: the API keys of tenants."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from holdfast.contracts.tenants import JOB_SCOPES, ApiKey, Tenant, bound_scope
from holdfast.contracts.times import isoformat
from holdfast.installed import features_of

from . import options
from .failures import Stop
from .opening import app_of, existing_system
from .options import instant, user_name
from .output import moment, print_json, print_line, say, show_list

keys = typer.Typer(help="Create, list and revoke API keys of tenants.", no_args_is_help=True, add_completion=False)

_LONGEST_DAYS: Final = 3_650


def _meanings() -> str:
    """What keys may be made for: the scopes of jobs and of all features, each with its meaning."""
    meanings = "; ".join(f"{name} {meaning}" for name, meaning in _scopes(None).items())
    return f"{meanings}; jobs:write:NAME and the like for one workload"


def _scopes(app: str | None) -> dict[str, str]:
    features = {str(name): meaning for each in features_of(app_of(app)) for name, meaning in each.scopes.items()}
    return {**features, **JOB_SCOPES}


TenantName = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's id or name.", show_default=False)]


@keys.command("create")
def create(
    tenant: TenantName,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help=f"What the key allows, repeatable; otherwise everything: {_meanings()}.",
            metavar="SCOPE",
            show_default=False,
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="DAYS|DATE", help="When the key expires: 90, or 2027-01-31 (UTC).", show_default="never"),
    ] = None,
    label: Annotated[str, typer.Option(help="A note for people.", show_default=False)] = "",
    data: options.Data = None,
    app: options.App = None,
    json: options.Json = False,
) -> None:
    """Create a key for a tenant. It is shown only once: only its hash is stored."""
    known = _scopes(app)
    if unknown := [each for each in scope or () if each not in known and bound_scope(each) is None]:
        message = f"--scope {unknown[0]}: must be among {', '.join(known)}."
        raise Stop(message)
    not_after = None if expires is None else _end(expires)
    key, text = asyncio.run(_create(tenant, scope, label, not_after, data, app))
    if json:
        print_json({**_document(key), "key": text})
        return
    print_line(text)
    say("Keep it now: it cannot be shown again. Send it as `Authorization: Bearer hf_...` or as `x-api-key`.")
    until = "until it is revoked" if key.not_after is None else f"until {moment(key.not_after)}"
    say(f"It works {until}, for {', '.join(sorted(key.scopes))}. `holdfast keys revoke {key.key_id}` ends it.")


@keys.command("list")
async def list_(
    tenant: options.Tenant = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """List keys, oldest first. The keys themselves cannot be shown again."""
    async with existing_system(data, None) as system:
        company_id = None if tenant is None else (await system.tenants.named(tenant)).company_id
        names = {each.company_id: each.name for each in await system.tenants.everyone()}
        found = await system.tenants.keys(company_id)

    def row(key: ApiKey) -> dict[str, object]:
        return {
            "id": key.key_id,
            "tenant": names.get(key.company_id, key.company_id),
            "label": key.label,
            "scopes": " ".join(sorted(key.scopes)),
            "made": moment(key.created_at),
            "state": _state(key),
        }

    empty = "There are no keys yet: holdfast keys create TENANT"
    show_list(found, row, _document, json=json, whole=("id", "made"), empty=empty)


@keys.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEYID", help="The key's id, not the key.", show_default=False)],
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Revoke a key. It stops working within a second, and its streams end."""
    # A person may give the whole key. Only its id is used: the secret part must not go further.
    key = asyncio.run(_revoke(re.sub(r"^hf_([0-9a-f]{16})_.*$", r"\1", key_id), data))
    if json:
        print_json(_document(key))
        return
    say(f"{key.key_id} is revoked since {moment(key.revoked_at)}.")


def _end(given: str) -> datetime:
    now = datetime.now(UTC)
    if given.isdecimal() and given.isascii():
        if not 1 <= int(given[:9]) <= _LONGEST_DAYS:
            message = f"--expires takes 1 to {_LONGEST_DAYS} days."
            raise Stop(message)
        return now + timedelta(days=int(given))
    found = instant("--expires", f"{given}T00:00:00Z" if re.fullmatch(r"\d{4}-\d{2}-\d{2}", given) else given)
    if found <= now:
        message = "--expires must be in the future."
        raise Stop(message)
    return found


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if not key.works_at(datetime.now(UTC)):
        return "expired"
    return "works" if key.not_after is None else f"works until {moment(key.not_after)}"


def _document(key: ApiKey) -> dict[str, Any]:
    return {
        "keyId": key.key_id,
        "companyId": key.company_id,
        "label": key.label,
        "scopes": sorted(key.scopes),
        "createdAt": isoformat(key.created_at),
        "createdBy": key.created_by,
        "notAfter": None if key.not_after is None else isoformat(key.not_after),
        "revokedAt": None if key.revoked_at is None else isoformat(key.revoked_at),
    }


async def _create(
    tenant: str,
    scopes: list[str] | None,
    label: str,
    not_after: datetime | None,
    data: Path | None,
    app: str | None,
) -> tuple[ApiKey, str]:
    async with existing_system(data, app) as system:
        found: Tenant = await system.tenants.named(tenant)
        return await system.tenants.create_key(
            found.company_id, label=label, scopes=scopes, not_after=not_after, created_by=user_name()
        )


async def _revoke(key_id: str, data: Path | None) -> ApiKey:
    async with existing_system(data, None) as system:
        return await system.tenants.revoke(key_id)
