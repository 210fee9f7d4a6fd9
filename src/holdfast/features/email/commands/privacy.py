"""``privacy``: erase a person, and seal personal data with a new key."""

from __future__ import annotations

import asyncio
import re
import sys
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast.features.email.feature import EmailFeature, EmailService
from holdfast.features.email.keys import KeysUnreadable, add_key, fresh_key
from holdfast.features.email.settings import KEY_NAME, EmailSettings
from holdfast.terminal import REFUSED, Stop, open_feature, options, print_json, say, settings_with

if TYPE_CHECKING:  # the core install does without the libraries of the email extra
    from holdfast.features.email.privacy import Forgotten, Person, Privacy, Selector

privacy = typer.Typer(
    help="Erase a person; seal personal data with a new key.", no_args_is_help=True, add_completion=False
)

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MOST_SHOWN: Final = 20


@privacy.command("erase")
def erase(
    recipient: Annotated[
        str,
        typer.Option(
            metavar="WHO",
            help="The recipientId, the address, or with --tenant the tenant's externalId of the person.",
            show_default=False,
        ),
    ],
    tenant: Annotated[
        str | None, typer.Option(metavar="TENANT", help="Whose externalId it is, by id or name.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Erase a person's data (LGPD, article 18). This cannot be undone.

    Waiting emails to the person are cancelled. The person's record is emptied, and so is their data in emails, settled
    jobs and dead letters, HTML that was sent to nobody else, and .eml files. The database's write-ahead log is emptied.
    It stays known that an email existed, when, and how it ended. A suppressed address stays suppressed, as a keyed
    hash.
    """
    if not (yes or sys.stdin.isatty()):
        message = "This needs a confirmation, and this is no terminal: add --yes."
        raise Stop(message)
    if not yes:
        person = asyncio.run(_find(recipient, tenant, data))
        if not person.empty:
            records, number, waiting = len(person.recipients), len(person.emails), len(person.waiting)
            question = (
                f"{records} records and {number} emails ({waiting} of them waiting) are about this person. Continue?"
            )
            typer.confirm(question, abort=True, err=True)
    done = asyncio.run(_erase(recipient, tenant, data))
    if json:
        print_json(_forgotten(done))
    elif done.nothing:
        say("Nothing is stored about this person: there was nothing to erase.")
    else:
        say(
            f"Erased: {done.recipients} records, {done.emails} emails, {done.jobs} jobs, {done.contents} contents, "
            f"{done.messages} .eml files. "
            f"{done.cancelled} emails that waited were cancelled."
        )
    if done.in_work:
        message = f"{len(done.in_work)} emails are being sent now. Run this again when they have ended."
        raise Stop(message, code=REFUSED)
    if not done.log_emptied:
        message = "The write-ahead log is in use, and may still hold what was erased. Run this again later."
        raise Stop(message, code=REFUSED)


@privacy.command("new-key")
def new_key(
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The name of the key; otherwise today's date.", show_default=False),
    ] = None,
    data: options.Data = None,
) -> None:
    """Create a new key, which seals personal data after the next start. Older keys still open what they sealed.

    The key is written to a file in the data folder. If EMAIL_KEYS is set, the key is printed instead: add it at the end
    of EMAIL_KEYS.
    """
    settings = settings_with(holdfast_data=data)
    name = name or f"{datetime.now(UTC):%Y-%m-%d}"
    if not KEY_NAME.fullmatch(name):
        message = "--name takes 1 to 32 letters, digits, - and _."
        raise Stop(message)
    if settings.of(EmailSettings).email_keys is not None or settings.cluster:
        typer.echo(dumps({name: fresh_key()}))
        say("Add it at the end of EMAIL_KEYS, restart every process, and run `holdfast privacy rotate-keys`.")
        return
    try:
        path = add_key(settings, name)
    except (KeysUnreadable, ValueError) as error:
        message = f"{error.filename} {error.strerror}." if isinstance(error, KeysUnreadable) else str(error)
        raise Stop(message) from error
    say(f"The key {name} is in {path}. Back it up, restart every process, and run `holdfast privacy rotate-keys`.")


@privacy.command("rotate-keys")
async def rotate_keys(data: options.Data = None, json: options.Json = False) -> None:
    """Seal all data of older keys again with the current key.

    First create a new key (`holdfast privacy new-key`) and restart every process; then run this.
    """
    async with open_feature(EmailFeature.name, EmailService, data) as email:
        done = await _privacy_of(email).reseal()
    if json:
        facts = {"values": done.values, "recipients": done.recipients, "contents": done.contents}
        print_json({**facts, "broken": done.broken})
    elif not (done.values or done.contents or done.broken):
        say("Everything is sealed with the current key.")
    else:
        say(
            f"{done.values} values of {done.recipients} recipients and {done.contents} contents are sealed with the "
            "current key now."
        )
    if done.broken:
        shown = ", ".join(done.broken[:_MOST_SHOWN])
        message = f"{len(done.broken)} values cannot be opened with the keys that are set: {shown}."
        raise Stop(message, "Restore the key that sealed them, and run this again.", code=REFUSED)


def _forgotten(done: Forgotten) -> dict[str, Any]:
    return {
        "recipients": done.recipients,
        "emails": done.emails,
        "withdrawn": done.cancelled,
        "jobs": done.jobs,
        "contents": done.contents,
        "messages": done.messages,
        "logEmptied": done.log_emptied,
        "inWork": done.in_work,
    }


async def _find(recipient: str, tenant: str | None, data: Path | None) -> Person:
    async with open_feature(EmailFeature.name, EmailService, data) as email:
        try:
            return await _privacy_of(email).find(await _selector(email, recipient, tenant))
        except ValueError as error:
            raise _no_address(error) from None


async def _erase(recipient: str, tenant: str | None, data: Path | None) -> Forgotten:
    async with open_feature(EmailFeature.name, EmailService, data) as email:
        selector = await _selector(email, recipient, tenant)

        async def cancel(outbox_id: str) -> bool:
            return bool(await email.services.cancellation.cancel(email.workload, outbox_id))

        try:
            return await _privacy_of(email).erase(selector, email.services.clock.now(), cancel)
        except ValueError as error:
            raise _no_address(error) from None


def _privacy_of(email: EmailService) -> Privacy:
    from holdfast.features.email.privacy import Privacy  # noqa: PLC0415 - its libraries are there

    store, broker = email.services.store, email.services.broker
    return Privacy(store, broker, email.vault, email.workload, email.content, mail_folder=email.mail_folder)


async def _selector(email: EmailService, recipient: str, tenant: str | None) -> Selector:
    from holdfast.features.email.privacy import Selector  # noqa: PLC0415 - likewise

    if tenant is not None:
        company_id = (await email.services.tenants.named(tenant)).company_id
        return Selector(company_id=company_id, external_id=recipient)
    if "@" in recipient:
        return Selector(address=recipient)
    if _UUID.fullmatch(recipient):
        return Selector(recipient_id=recipient.lower())
    message = "--recipient takes a recipientId, an address, or with --tenant an externalId."
    raise Stop(message)


def _no_address(error: ValueError) -> Stop:
    return Stop(f"--recipient {error}.")
