"""``sms``: the state of text messages, for operators."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast import EntryQuery, Page, Slice
from holdfast.terminal import moment, open_feature, options, require_item, show_item, show_list

from .contract import SmsView
from .feature import SmsFeature, SmsService
from .workload import key_of

sms = typer.Typer(help="See the state of text messages.", no_args_is_help=True, add_completion=False)


@sms.command("list")
async def list_(
    limit: options.Limit = 20, cursor: options.Cursor = None, data: options.Data = None, json: options.Json = False
) -> None:
    """List text messages, newest first."""
    async with open_feature(SmsFeature.name, SmsService, data) as service:
        query = EntryQuery(workload=service.workload.name)
        page = await service.services.store.find(query, Page(limit, cursor))
    found = Slice([SmsView.of(each) for each in page.items], page.next)
    show_list(found, _row, SmsView.as_json, json=json, whole=("tenant", "id"), empty="There are no text messages yet.")


@sms.command("show")
async def show(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's id or name.")],
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The tenant's name for the message.")],
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Show one text message, and every attempt to send it."""
    async with open_feature(SmsFeature.name, SmsService, data) as service:
        company = (await service.services.tenants.named(tenant)).company_id
        found = await service.services.store.entry(service.workload.name, key_of(company, message_id))
    entry = require_item(found, "text message", "holdfast sms list")
    view = SmsView.of(entry).as_json()
    show_item(view, view, json=json, attempts=entry.attempts)


def _row(message: SmsView) -> dict[str, object]:
    return {
        "tenant": message.tenant,
        "id": message.id,
        "to": message.to,
        "status": message.status,
        "attempts": message.attempts,
        "error": message.error,
        "accepted": moment(message.received_at),
    }
