"""``tenants``: those who may submit work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.contracts.tenants import Tenant, is_sender
from holdfast.wiring import open_system

from . import options
from .failures import Stop
from .opening import existing_system, settings_with
from .output import print_json, print_line, say, show_list

tenants = typer.Typer(
    help="Add and list tenants: those who may submit work.", no_args_is_help=True, add_completion=False
)


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


async def _add(name: str, company_id: str | None, sender: str | None, rate: int | None, data: Path | None) -> Tenant:
    async with open_system(settings_with(holdfast_data=data)) as system:
        return await system.tenants.add(name, company_id=company_id, sender=sender, rate_per_second=rate)
