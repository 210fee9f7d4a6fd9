"""``privacy``: forget a person, and seal personal data under a new key."""

from __future__ import annotations

import asyncio
import re
import sys
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast.config.email_keys import KeysUnreadable, add_key, fresh_key
from holdfast.config.email_settings import KEY_NAME
from holdfast.wiring import System

from . import options
from .email_parts import email_parts
from .failures import REFUSED, Stop
from .opening import existing_system
from .output import print_json, say
from .settings import settings_with

if TYPE_CHECKING:  # the core install does without the libraries of the email extra
    from holdfast.workloads.email.privacy import Forgotten, Person, Privacy, Resealed, Selector

privacy = typer.Typer(
    help="Forget a person; seal personal data under a new key.", no_args_is_help=True, add_completion=False
)

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ANSWERS: Final = 20


@privacy.command("erase")
def erase(
    recipient: Annotated[
        str,
        typer.Option(
            metavar="WHO",
            help="The recipientId, the address, or with --tenant the externalId that the tenant knows them by.",
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
    """Forget a person (LGPD, article 18). This cannot be undone.

    Emails to them that wait are cancelled. Their record, what emails say of them, settled jobs, dead letters, and HTML
    that only they were sent are emptied. That an email existed, when, and how it ended stays; and if the address is
    suppressed, it stays so, under its keyed hash.
    """
    if not (yes or sys.stdin.isatty()):
        message = "Forgetting somebody asks first, and there is nobody to ask here: add --yes."
        raise Stop(message)
    if not yes:
        person = asyncio.run(_look(recipient, tenant, data))
        if not person.empty:
            records, number, waiting = len(person.recipients), len(person.emails), len(person.waiting)
            question = f"{records} records and {number} emails ({waiting} of them waiting) tell of this person. Go on?"
            typer.confirm(question, abort=True, err=True)
    done = asyncio.run(_erase(recipient, tenant, data))
    if json:
        print_json(_forgotten(done))
    elif done.nothing:
        say("Nothing is kept about this person: there was nothing to forget.")
    else:
        say(
            f"Forgotten: {done.recipients} records, {done.emails} emails, {done.jobs} jobs, {done.contents} contents. "
            f"{done.cancelled} emails that waited were cancelled."
        )
    if done.in_work:
        message = f"{len(done.in_work)} emails are being sent just now. Once they have ended, run this again."
        raise Stop(message, code=REFUSED)


@privacy.command("new-key")
def new_key(
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the key is called; otherwise today's date.", show_default=False),
    ] = None,
    data: options.Data = None,
) -> None:
    """Make a new key that seals personal data from the next start on. The older ones still open what they sealed.

    It goes into the data folder's file. Where EMAIL_KEYS is set, it is printed instead, for you to add at its end.
    """
    settings = settings_with(holdfast_data=data)
    name = name or f"{datetime.now(UTC):%Y-%m-%d}"
    if not KEY_NAME.fullmatch(name):
        message = "--name takes 1 to 32 letters, digits, - and _."
        raise Stop(message)
    if settings.email_keys is not None or settings.cluster:
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
def rotate_keys(data: options.Data = None, json: options.Json = False) -> None:
    """Seal under the current key whatever older keys sealed.

    First make a new key (`holdfast privacy new-key`) and restart every process; then run this.
    """
    done = asyncio.run(_reseal(data))
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
        shown = ", ".join(done.broken[:_ANSWERS])
        message = f"{len(done.broken)} values cannot be opened with the keys that are set: {shown}."
        raise Stop(message, "Put back the key that sealed them, and run this again.", code=REFUSED)


def _forgotten(done: Forgotten) -> dict[str, Any]:
    return {
        "recipients": done.recipients,
        "emails": done.emails,
        "withdrawn": done.cancelled,
        "jobs": done.jobs,
        "contents": done.contents,
        "inWork": done.in_work,
    }


async def _look(recipient: str, tenant: str | None, data: Path | None) -> Person:
    async with existing_system(data, None) as system:
        try:
            return await _desk(system).find(await _selector(system, recipient, tenant))
        except ValueError as error:
            raise _no_address(error) from None


async def _erase(recipient: str, tenant: str | None, data: Path | None) -> Forgotten:
    async with existing_system(data, None) as system:
        workload = email_parts(system).workload
        selector = await _selector(system, recipient, tenant)

        async def cancel(outbox_id: str) -> bool:
            return await system.cancellation.cancel(workload, outbox_id)

        try:
            return await _desk(system).erase(selector, system.ambient.clock.now(), cancel)
        except ValueError as error:
            raise _no_address(error) from None


async def _reseal(data: Path | None) -> Resealed:
    async with existing_system(data, None) as system:
        return await _desk(system).reseal()


def _desk(system: System) -> Privacy:
    parts = email_parts(system)
    from holdfast.workloads.email.privacy import Privacy  # noqa: PLC0415 - its libraries are there, or we had stopped

    return Privacy(system.store, system.broker, parts.vault, parts.workload, parts.content)


async def _selector(system: System, recipient: str, tenant: str | None) -> Selector:
    email_parts(system)
    from holdfast.workloads.email.privacy import Selector  # noqa: PLC0415 - likewise

    if tenant is not None:
        company_id = (await system.tenants.named(tenant)).company_id
        return Selector(company_id=company_id, external_id=recipient)
    if "@" in recipient:
        return Selector(address=recipient)
    if _UUID.fullmatch(recipient):
        return Selector(recipient_id=recipient.lower())
    message = "--recipient takes a recipientId, an address, or with --tenant an externalId."
    raise Stop(message)


def _no_address(error: ValueError) -> Stop:
    return Stop(f"--recipient {error}.")
