"""``suppressions``: addresses that get no emails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast import Page, Slice, isoformat
from holdfast.features.email.records import SuppressionReason
from holdfast.terminal import REFUSED, Stop, moment, options, print_json, say, show_table, user_name

from .parts import opened_email

if TYPE_CHECKING:  # the core install does without the libraries of the email extra
    from holdfast.features.email.suppression import Suppression

suppressions = typer.Typer(
    help="List, add and remove addresses that get no emails.", no_args_is_help=True, add_completion=False
)

_HASH_SHOWN: Final = 8

Address = Annotated[str, typer.Argument(help="The full address, not masked.", show_default=False)]


@suppressions.command("list")
def list_(
    reason: Annotated[SuppressionReason | None, typer.Option(help="Only for this reason.", show_default=False)] = None,
    limit: options.Limit = 20,
    cursor: options.Cursor = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """List suppressed addresses, newest first. They are masked: only keyed hashes are stored."""
    found = asyncio.run(_list(reason, Page(limit, cursor), data))
    if json:
        print_json({"items": [_document(each) for each in found.items], "next": found.next})
        return
    if not found.items:
        say("No address is suppressed.")
        return
    rows = (
        (each.address, each.reason, each.detail, each.source, moment(each.since), _hash(each)) for each in found.items
    )
    show_table(("address", "reason", "detail", "from", "since", "hash"), rows, whole=("since", "hash"))
    if found.next:
        say(f"There are more: --cursor {found.next}")


@suppressions.command("add")
def add(
    address: Address,
    reason: Annotated[SuppressionReason, typer.Option(help="The reason.")] = SuppressionReason.MANUAL,
    detail: Annotated[str | None, typer.Option(help="A note for people.", show_default=False)] = None,
    tenant: Annotated[
        str | None, typer.Option(metavar="TENANT", help="For this tenant only, by id or name.", show_default=False)
    ] = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Suppress an address: no tenant's email is sent to it, or with --tenant no email of this tenant."""
    found = asyncio.run(_add(address, reason, detail, tenant, data))
    if json:
        print_json(_document(found))
        return
    say(f"{found.address} gets no more emails.")


@suppressions.command("remove")
def remove(address: Address, data: options.Data = None, json: options.Json = False) -> None:
    """Remove an address from the list: emails of all tenants to it are accepted again."""
    masked = asyncio.run(_remove(address, data))
    if json:
        print_json({"address": masked, "removed": True})
        return
    say(f"{masked} gets emails again.")


def _hash(suppression: Suppression) -> str:
    return f"{suppression.address_hash[:_HASH_SHOWN]}..."


def _document(suppression: Suppression) -> dict[str, Any]:
    return {
        "address": suppression.address,
        "addressHash": _hash(suppression),
        "reason": suppression.reason.value,
        "detail": suppression.detail,
        "source": suppression.source,
        "since": isoformat(suppression.since),
        "companyId": suppression.company_id,
    }


async def _list(reason: SuppressionReason | None, page: Page, data: Path | None) -> Slice[Suppression]:
    async with opened_email(data) as email:
        return await email.suppressions.list(page, reason)


async def _add(
    address: str, reason: SuppressionReason, detail: str | None, tenant: str | None, data: Path | None
) -> Suppression:
    async with opened_email(data) as email:
        listed = email.suppressions
        now = email.services.clock.now()
        company_id = None if tenant is None else (await email.services.tenants.named(tenant)).company_id
        tenants = () if company_id is None else (company_id,)
        await listed.add([address], reason, detail=detail, source=f"operator {user_name()}", now=now, tenants=tenants)
        try:
            found = [each for each in await listed.find_all(address) if each.company_id == company_id]
        except ValueError as error:
            raise _no_address(error) from None
    if not found:  # somebody removed it in the meantime
        message = "The address is no longer on the list."
        raise Stop(message, code=REFUSED)
    return found[0]


async def _remove(address: str, data: Path | None) -> str:
    async with opened_email(data) as email:
        listed = email.suppressions
        try:
            found = await listed.find_all(address)
        except ValueError as error:
            raise _no_address(error) from None
        if not found or not await listed.remove(address):
            message = "The address is not on the list."
            raise Stop(message, code=REFUSED)
        return found[0].address


def _no_address(error: ValueError) -> Stop:
    return Stop(f"ADDRESS {error}.")
