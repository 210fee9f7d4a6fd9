"""``emails``: the status of emails, for operators. Personal data is masked."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast import Page, Slice
from holdfast.features.email.feature import EmailFeature, EmailService
from holdfast.features.email.records import OUTBOX, EmailStatus
from holdfast.features.email.views import EmailView
from holdfast.terminal import (
    REFUSED,
    Stop,
    find_records,
    moment,
    open_feature,
    options,
    print_json,
    require_item,
    say,
    show_item,
    show_list,
)

emails = typer.Typer(help="See the status of emails; cancel emails.", no_args_is_help=True, add_completion=False)

OutboxId = Annotated[str, typer.Argument(metavar="OUTBOXID", help="The email.", show_default=False)]


@emails.command("list")
async def list_(
    tenant: options.Tenant = None,
    status: Annotated[
        EmailStatus | None, typer.Option(help="Only emails with this status.", show_default=False)
    ] = None,
    limit: options.Limit = 20,
    cursor: options.Cursor = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """List emails, newest first."""
    async with open_feature(EmailFeature.name, EmailService, data) as email:
        page = await find_records(
            email.services,
            OUTBOX,
            Page(limit, cursor),
            newest_by="enqueuedAt",
            owner="companyId",
            tenant=tenant,
            status=status,
        )
    found = Slice([EmailView.of(each) for each in page.items], page.next)
    empty = "There is no such email." if tenant or status else "There are no emails yet."
    show_list(found, _row, EmailView.as_json, json=json, whole=("id", "status", "accepted"), empty=empty)


@emails.command("show")
async def show(outbox_id: OutboxId, data: options.Data = None, json: options.Json = False) -> None:
    """Show one email, and every attempt to send it."""
    async with open_feature(EmailFeature.name, EmailService, data) as service:
        email = await _email(service, outbox_id)
        entry = await service.services.store.entry(service.workload.name, outbox_id)
    show_item(
        email.as_json(),
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
        },
        json=json,
        attempts=None if entry is None else entry.attempts,
    )


@emails.command("cancel")
async def cancel(outbox_id: OutboxId, data: options.Data = None, json: options.Json = False) -> None:
    """Cancel an email that still waits. Any other email does not change: exit code 1."""
    async with open_feature(EmailFeature.name, EmailService, data) as email:
        await _email(email, outbox_id)
        await email.services.cancellation.cancel(email.workload, outbox_id)
        status = (await _email(email, outbox_id)).status
    if json:
        print_json({"outboxId": outbox_id, "status": status.value})
    if status is not EmailStatus.CANCELLED:
        message = f"The email is {status.value}: it no longer waits."
        raise Stop(message, code=REFUSED)
    if not json:
        say(f"{outbox_id} will not be sent.")


def _row(email: EmailView) -> dict[str, object]:
    return {
        "id": email.outbox_id,
        "status": email.status,
        "to": email.to,
        "subject": email.subject,
        "attempts": email.attempt,
        "error": email.last_error_code,
        "accepted": moment(email.enqueued_at),
    }


async def _email(email: EmailService, outbox_id: str) -> EmailView:
    record = await email.services.store.get(OUTBOX, outbox_id)
    return EmailView.of(require_item(record, "email", "holdfast emails list"))
