"""``suppressions``: addresses that get no emails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast import Page, isoformat
from holdfast.features.email.feature import EmailFeature, EmailService
from holdfast.features.email.records import SuppressionReason, shown_hash
from holdfast.terminal import REFUSED, Stop, moment, open_feature, options, print_json, say, show_list, user_name

if TYPE_CHECKING:  # the core install does without the libraries of the email extra
    from holdfast.features.email.suppression import Suppression, Suppressions

suppressions = typer.Typer(
    help="List, add and remove addresses that get no emails.", no_args_is_help=True, add_completion=False
)

Address = Annotated[str, typer.Argument(help="The full address, not masked.", show_default=False)]


@suppressions.command("list")
async def list_(
    reason: Annotated[SuppressionReason | None, typer.Option(help="Only for this reason.", show_default=False)] = None,
    limit: options.Limit = 20,
    cursor: options.Cursor = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """List suppressed addresses, newest first. They are masked: only keyed hashes are stored."""
    async with open_feature(EmailFeature.name, EmailService, data) as email:
        found = await email.suppressions.list(Page(limit, cursor), reason)
    show_list(found, _row, _document, json=json, whole=("since", "hash"), empty="No address is suppressed.")


@suppressions.command("add")
async def add(
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
    async with open_feature(EmailFeature.name, EmailService, data) as email:
        listed, now = email.suppressions, email.services.clock.now()
        company_id = None if tenant is None else (await email.services.tenants.named(tenant)).company_id
        tenants = () if company_id is None else (company_id,)
        await listed.add([address], reason, detail=detail, source=f"operator {user_name()}", now=now, tenants=tenants)
        found = next((each for each in await _find(listed, address) if each.company_id == company_id), None)
    if found is None:  # somebody removed it in the meantime
        message = "The address is no longer on the list."
        raise Stop(message, code=REFUSED)
    if json:
        print_json(_document(found))
        return
    say(f"{found.address} gets no more emails.")


@suppressions.command("remove")
async def remove(address: Address, data: options.Data = None, json: options.Json = False) -> None:
    """Remove an address from the list: emails of all tenants to it are accepted again."""
    async with open_feature(EmailFeature.name, EmailService, data) as email:
        found = next(iter(await _find(email.suppressions, address)), None)
        if found is None or not await email.suppressions.remove(address):
            message = "The address is not on the list."
            raise Stop(message, code=REFUSED)
    if json:
        print_json({"address": found.address, "removed": True})
        return
    say(f"{found.address} gets emails again.")


def _row(suppression: Suppression) -> dict[str, object]:
    return {
        "address": suppression.address,
        "reason": suppression.reason,
        "detail": suppression.detail,
        "from": suppression.source,
        "since": moment(suppression.since),
        "hash": shown_hash(suppression.address_hash),
    }


def _document(suppression: Suppression) -> dict[str, Any]:
    return {
        "address": suppression.address,
        "addressHash": shown_hash(suppression.address_hash),
        "reason": suppression.reason.value,
        "detail": suppression.detail,
        "source": suppression.source,
        "since": isoformat(suppression.since),
        "companyId": suppression.company_id,
    }


async def _find(listed: Suppressions, address: str) -> Sequence[Suppression]:
    try:
        return await listed.find_all(address)
    except ValueError as error:
        message = f"ADDRESS {error}."
        raise Stop(message) from None
