"""``tenants``: those who may submit work."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from holdfast.contracts.tenants import LIMIT_NAMES, Tenant, TenantLimits, is_sender
from holdfast.feature import NotSetUp
from holdfast.wiring import open_system

from . import options
from .failures import Stop
from .opening import existing_system, settings_with
from .output import print_json, print_line, say, show_list, show_table

tenants = typer.Typer(
    help="Add tenants; see and set what they may use.",
    no_args_is_help=True,
    add_completion=False,
)

TenantName = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's id or name.", show_default=False)]
_COUNTED_BY_THE_API: Final = frozenset({"requests_per_second", "pending", "streams"})
"""What each API process counts by itself. A command cannot know it."""


def _limit(help_: str) -> Any:  # noqa: ANN401 - what typer's Option returns
    return typer.Option(min=1, metavar="N", help=help_, show_default=False)


@tenants.command("add")
def add(
    name: Annotated[str, typer.Argument(help="The tenant's name, for people.", show_default=False)],
    company_id: Annotated[
        str | None,
        typer.Option("--id", metavar="UUID", help="Its companyId, if it already has one.", show_default=False),
    ] = None,
    sender: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="ADDRESS",
            help="The sender of its emails, such as 'Acme <mail@acme.example>'; otherwise EMAIL_FROM.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        int | None,
        typer.Option("--rate", metavar="PER_SECOND", min=1, max=1_000_000, help="Its rate limit.", show_default=False),
    ] = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Add a tenant. In a new data folder this also creates the ledger."""
    if sender is not None and not is_sender(sender):
        message = "--from must be one address, such as 'Acme <mail@acme.example>'."
        raise Stop(message)
    tenant = asyncio.run(_add(name, company_id, sender, rate, data))
    if json:
        print_json(tenant_document(tenant))
        return
    print_line(tenant.company_id)
    say(f"{tenant.name} is a tenant. It needs a key to send: holdfast keys create {tenant.company_id}")


@tenants.command("list")
async def list_(data: options.Data = None, json: options.Json = False) -> None:
    """List all tenants, by name."""
    async with existing_system(data, None) as system:
        found = await system.tenants.everyone()
    empty = "There are no tenants yet: holdfast tenants add NAME"
    show_list(found, _row, tenant_document, json=json, whole=("id",), empty=empty)


@tenants.command("deactivate")
def deactivate(tenant: TenantName, data: options.Data = None, json: options.Json = False) -> None:
    """Refuse all keys of a tenant, and end its streams, within a second. Its emails that still wait fail."""
    changed = asyncio.run(_set_active(tenant, data, active=False))
    if json:
        print_json(tenant_document(changed))
        return
    say(
        f"{changed.name} is inactive: its keys are refused. `holdfast tenants activate {changed.company_id}` undoes it."
    )


@tenants.command("activate")
def activate(tenant: TenantName, data: options.Data = None, json: options.Json = False) -> None:
    """Accept the keys of a deactivated tenant again. Revoked keys stay revoked."""
    changed = asyncio.run(_set_active(tenant, data, active=True))
    if json:
        print_json(tenant_document(changed))
        return
    say(f"{changed.name} is active: its keys are accepted.")


@tenants.command("limits")
def limits(
    tenant: TenantName,
    *,
    requests_per_second: Annotated[int | None, _limit("Requests per second, in each API process.")] = None,
    pending: Annotated[int | None, _limit("Requests that wait for a commit, in each API process.")] = None,
    waiting_jobs: Annotated[int | None, _limit("Jobs that are not finished yet.")] = None,
    stored_bytes: Annotated[int | None, _limit("Bytes of stored files.")] = None,
    streams: Annotated[int | None, _limit("Open streams, in each API process.")] = None,
    default: Annotated[
        bool, typer.Option("--default", help="Forget the tenant's own limits: those of the settings apply.")
    ] = False,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Show what a tenant may use, or set it. New limits hold within a second, in all processes."""
    given = TenantLimits(requests_per_second, pending, waiting_jobs, stored_bytes, streams)
    found, defaults = asyncio.run(_limits(tenant, given, data, default=default))
    whole = found.limits.over(defaults)
    if json:
        own = found.limits.facts()
        print_json({"companyId": found.company_id, "limits": whole.facts(), "own": sorted(own)})
        return
    rows = (
        (name, _number(getattr(whole, name)), "settings" if getattr(found.limits, name) is None else "the tenant's own")
        for name in LIMIT_NAMES
    )
    show_table(("limit", "value", "from"), ((_words(name), value, origin) for name, value, origin in rows))


@tenants.command("usage")
def usage(tenant: TenantName, data: options.Data = None, json: options.Json = False) -> None:
    """Show what a tenant uses of what it may use."""
    found, whole, used = asyncio.run(_usage(tenant, data))
    if json:
        amounts = {
            public: {"used": used.get(name), "limit": getattr(whole, name)} for name, public in LIMIT_NAMES.items()
        }
        print_json({"companyId": found.company_id, "active": found.active, "usage": amounts})
        return
    rows = ((_words(name), _used(used, name), _number(getattr(whole, name))) for name in LIMIT_NAMES)
    show_table(("", "used", "limit"), rows)
    if not found.active:
        say(f"{found.name} is inactive: its keys are refused.")


def tenant_document(tenant: Tenant) -> dict[str, Any]:
    """A tenant as JSON."""
    return {
        "companyId": tenant.company_id,
        "name": tenant.name,
        "sender": tenant.sender,
        "ratePerSecond": tenant.rate_per_second,
        "active": tenant.active,
    }


def _row(tenant: Tenant) -> dict[str, object]:
    return {
        "id": tenant.company_id,
        "name": tenant.name,
        "from": tenant.sender,
        "per second": tenant.rate_per_second,
        "": "" if tenant.active else "inactive",
    }


def _words(name: str) -> str:
    return name.replace("_", " ")


def _number(value: int | None) -> str:
    # A feature has the default of its own limit, such as that of stored bytes.
    return "as the settings say" if value is None else f"{value:,}"


def _used(used: Mapping[str, int], name: str) -> str:
    if name in used:
        return f"{used[name]:,}"
    return "counted in each API process" if name in _COUNTED_BY_THE_API else "not counted"


async def _add(name: str, company_id: str | None, sender: str | None, rate: int | None, data: Path | None) -> Tenant:
    async with open_system(settings_with(holdfast_data=data)) as system:
        return await system.tenants.add(name, company_id=company_id, sender=sender, rate_per_second=rate)


async def _set_active(tenant: str, data: Path | None, *, active: bool) -> Tenant:
    async with existing_system(data, None) as system:
        found = await system.tenants.named(tenant)
        return await system.tenants.set_active(found.company_id, active=active)


async def _limits(tenant: str, given: TenantLimits, data: Path | None, *, default: bool) -> tuple[Tenant, TenantLimits]:
    async with existing_system(data, None) as system:
        found = await system.tenants.named(tenant)
        wanted = given if default else given.over(found.limits)
        if wanted != found.limits:
            found = await system.tenants.set_limits(found.company_id, wanted)
        return found, system.tenant_limits


async def _usage(tenant: str, data: Path | None) -> tuple[Tenant, TenantLimits, Mapping[str, int]]:
    """The tenant, its limits, and what it uses, as far as the store and the features know."""
    async with existing_system(data, None) as system:
        found = await system.tenants.named(tenant)
        waiting = await system.services.limits.count_unsettled(found.company_id)
        used = {"waiting_jobs": waiting, **await system.usage(found.company_id)}
        return found, found.limits.over(system.tenant_limits), used


@tenants.command("rotate-callback-secret")
def rotate_callback_secret(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="The tenant, by id or name.", show_default=False)],
    former_days: Annotated[
        int, typer.Option("--former-days", min=0, max=90, help="How long the former secret signs too.")
    ] = 7,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Give a tenant a new secret for the callbacks of its documents, and print it once.

    Until then DOCUMENT_CALLBACK_SECRET signs them. For --former-days each callback has two signatures, one by the
    former secret.
    """
    name, secret = asyncio.run(_rotate(tenant, timedelta(days=former_days), data))
    if json:
        print_json({"tenant": name, "secret": secret, "formerDays": former_days})
        return
    print_line(secret)
    say(f"This secret signs the callbacks of {name} from now on. It is not shown again.")


async def _rotate(tenant: str, overlap: timedelta, data: Path | None) -> tuple[str, str]:
    async with existing_system(data, None) as system:
        found = await system.tenants.named(tenant)
        try:
            # Only documents have callbacks.
            secret: str = await system.service("documents").rotate_callback_secret(found.company_id, overlap)
        except NotSetUp as error:
            raise Stop(error.message) from None
        return found.name, secret
