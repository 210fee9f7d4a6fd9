"""``tenants``: those who may submit work."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.contracts.tenants import Tenant, is_sender
from holdfast.feature import NotSetUp
from holdfast.wiring import open_system

from . import options
from .failures import Stop
from .opening import existing_system
from .output import print_json, print_line, say
from .settings import settings_with
from .tables import show_table

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
def list_(data: options.Data = None, json: options.Json = False) -> None:
    """List all tenants, by name."""
    found = asyncio.run(_everyone(data))
    if json:
        print_json([tenant_document(each) for each in found])
        return
    if not found:
        say("There are no tenants yet: holdfast tenants add NAME")
        return
    rows = ((each.company_id, each.name, each.sender, each.rate_per_second, _state(each)) for each in found)
    show_table(("id", "name", "from", "per second", ""), rows, whole=("id",))


def tenant_document(tenant: Tenant) -> dict[str, Any]:
    """A tenant as JSON."""
    return {
        "companyId": tenant.company_id,
        "name": tenant.name,
        "sender": tenant.sender,
        "ratePerSecond": tenant.rate_per_second,
        "active": tenant.active,
    }


def _state(tenant: Tenant) -> str:
    return "" if tenant.active else "inactive"


async def _add(name: str, company_id: str | None, sender: str | None, rate: int | None, data: Path | None) -> Tenant:
    async with open_system(settings_with(holdfast_data=data)) as system:
        return await system.tenants.add(name, company_id=company_id, sender=sender, rate_per_second=rate)


async def _everyone(data: Path | None) -> list[Tenant]:
    async with existing_system(data, None) as system:
        return await system.tenants.everyone()


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
