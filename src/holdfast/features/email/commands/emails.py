"""``emails``: the status of emails, for operators. Personal data is masked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast import LedgerEntry, NotFound, Page, RecordQuery, Slice
from holdfast.features.email.feature import EmailService
from holdfast.features.email.records import OUTBOX, EmailStatus
from holdfast.features.email.views import EmailView
from holdfast.terminal import REFUSED, Stop, moment, options, print_json, say, show_attempts, show_facts, show_table

from .parts import opened_email

emails = typer.Typer(help="See the status of emails; cancel emails.", no_args_is_help=True, add_completion=False)

OutboxId = Annotated[str, typer.Argument(metavar="OUTBOXID", help="The email.", show_default=False)]


@emails.command("list")
def list_(
    tenant: Annotated[
        str | None,
        typer.Option(metavar="TENANT", help="Only emails of this tenant, by id or name.", show_default=False),
    ] = None,
    status: Annotated[
        EmailStatus | None, typer.Option(help="Only emails with this status.", show_default=False)
    ] = None,
    limit: options.Limit = 20,
    cursor: options.Cursor = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """List emails, newest first."""
    found = asyncio.run(_list(tenant, status, Page(limit, cursor), data))
    if json:
        print_json({"items": [_document(each) for each in found.items], "next": found.next})
        return
    if not found.items:
        say("There is no such email." if tenant or status else "There are no emails yet.")
        return
    rows = (
        (
            each.outbox_id,
            each.status,
            each.to,
            each.subject,
            each.attempt,
            each.last_error_code,
            moment(each.enqueued_at),
        )
        for each in found.items
    )
    columns = ("id", "status", "to", "subject", "attempts", "error", "accepted")
    show_table(columns, rows, whole=("id", "status", "accepted"))
    if found.next:
        say(f"There are more: --cursor {found.next}")


@emails.command("show")
def show(outbox_id: OutboxId, data: options.Data = None, json: options.Json = False) -> None:
    """Show one email, and every attempt to send it."""
    email, entry = asyncio.run(_show(outbox_id, data))
    if json:
        print_json(_document(email))
        return
    show_facts(
        {
            "id": email.outbox_id,
            "status": email.status,
            "to": email.to,
            "copies": email.cc_count + email.bcc_count or None,
            "subject": email.subject,
            "external id": email.external_id,
            "recipient": email.recipient_id,
            "cpf/cnpj hash": email.cpf_cnpj_hash,
            "html": email.html_ref,
            "tags": ", ".join(email.tags) or None,
            "request": email.request_id,
            "priority": email.priority,
            "accepted": moment(email.enqueued_at),
            "not before": moment(email.scheduled_for),
            "sent": moment(email.sent_at),
            "message id": email.ses_message_id,
            "deadline": moment(email.deadline),
            "last error": email.last_error_code and f"{email.last_error_code}: {email.last_error_message}",
        }
    )
    if entry is not None:
        show_attempts(entry.attempts)


@emails.command("cancel")
def cancel(outbox_id: OutboxId, data: options.Data = None, json: options.Json = False) -> None:
    """Cancel an email that still waits. Any other email does not change: exit code 1."""
    status = asyncio.run(_cancel(outbox_id, data))
    if json:
        print_json({"outboxId": outbox_id, "status": status.value})
    if status is not EmailStatus.CANCELLED:
        message = f"The email is {status.value}: it no longer waits."
        raise Stop(message, code=REFUSED)
    if not json:
        say(f"{outbox_id} will not be sent.")


def _document(email: EmailView) -> dict[str, Any]:
    document: dict[str, Any] = email.model_dump(mode="json", by_alias=True)
    return document


async def _list(tenant: str | None, status: EmailStatus | None, page: Page, data: Path | None) -> Slice[EmailView]:
    async with opened_email(data) as email:
        services = email.services
        where = {} if tenant is None else {"companyId": (await services.tenants.named(tenant)).company_id}
        if status is not None:
            where["status"] = status.value
        query = RecordQuery(collection=OUTBOX, where=where, newest_by="enqueuedAt")
        found = await services.store.find_records(query, page)
    return Slice([EmailView.of(each) for each in found.items], found.next)


async def _show(outbox_id: str, data: Path | None) -> tuple[EmailView, LedgerEntry | None]:
    async with opened_email(data) as email:
        return await _email(email, outbox_id), await email.services.store.entry(email.workload.name, outbox_id)


async def _cancel(outbox_id: str, data: Path | None) -> EmailStatus:
    async with opened_email(data) as email:
        await _email(email, outbox_id)
        await email.services.cancellation.cancel(email.workload, outbox_id)
        return (await _email(email, outbox_id)).status


async def _email(email: EmailService, outbox_id: str) -> EmailView:
    record = await email.services.store.get(OUTBOX, outbox_id)
    if record is None:
        message = "There is no such email; `holdfast emails list` shows them."
        raise NotFound(message)
    return EmailView.of(record)
