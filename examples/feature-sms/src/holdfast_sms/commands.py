"""``sms``: the state of text messages, for operators."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from holdfast import EntryQuery, LedgerEntry, NotFound, Page, Slice
from holdfast.terminal import moment, open_feature, options, print_json, say, show_attempts, show_facts, show_table

from .contract import SmsView
from .feature import SmsFeature, SmsService
from .workload import key_of

sms = typer.Typer(help="See the state of text messages.", no_args_is_help=True, add_completion=False)


@sms.command("list")
def list_(
    limit: options.Limit = 20, cursor: options.Cursor = None, data: options.Data = None, json: options.Json = False
) -> None:
    """List text messages, newest first."""
    found = asyncio.run(_list(Page(limit, cursor), data))
    views = [SmsView.of(each) for each in found.items]
    if json:
        print_json({"items": [each.model_dump(mode="json", by_alias=True) for each in views], "next": found.next})
        return
    rows = ((v.tenant, v.id, v.to, v.status, v.attempts, v.error, moment(v.received_at)) for v in views)
    show_table(("tenant", "id", "to", "status", "attempts", "error", "accepted"), rows, whole=("tenant", "id"))
    if found.next:
        say(f"There are more: --cursor {found.next}")


@sms.command("show")
def show(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's id or name.")],
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The tenant's name for the message.")],
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Show one text message, and every attempt to send it."""
    entry = asyncio.run(_show(tenant, message_id, data))
    view = SmsView.of(entry).model_dump(mode="json", by_alias=True)
    if json:
        print_json(view)
        return
    show_facts(view)
    show_attempts(entry.attempts)


async def _list(page: Page, data: Path | None) -> Slice[LedgerEntry]:
    service: SmsService
    async with open_feature(SmsFeature.name, data) as service:
        return await service.services.store.find(EntryQuery(workload=service.workload.name), page)


async def _show(tenant: str, message_id: str, data: Path | None) -> LedgerEntry:
    service: SmsService
    async with open_feature(SmsFeature.name, data) as service:
        company = (await service.services.tenants.named(tenant)).company_id
        entry = await service.services.store.entry(service.workload.name, key_of(company, message_id))
    if entry is None:
        message = "There is no such text message; `holdfast sms list` shows them."
        raise NotFound(message)
    return entry
