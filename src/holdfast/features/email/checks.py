"""The checks of emails: the keys for personal data, and the mail server."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from holdfast import HoldfastError
from holdfast.feature import FAIL, OK, WARN, Finding, Settings

from .feature import NO_KEYS, transport_of
from .keys import KEYS_FILE, KeysUnreadable, email_secrets
from .settings import EmailSettings


async def checked(settings: EmailSettings, process: Settings) -> Sequence[Finding]:
    """Whether emails can be sent. Nothing is sent; a folder needs no check of its server."""
    found = _emails(settings, process)
    if settings.email_transport == "folder":
        return [found]
    transport = transport_of(settings, process)
    try:
        await transport.open()
        await transport.check()
    except HoldfastError as error:
        advice = "Emails wait until it works; see the settings of the transport."
        return [found, Finding("mail server", WARN, error.message, advice)]
    finally:
        await transport.close()
    return [found, Finding("mail server", OK, f"{settings.email_transport} answers.")]


def _emails(settings: EmailSettings, process: Settings) -> Finding:
    """Whether there are usable keys, and by which transport emails are sent."""
    try:
        ready = email_secrets(process, create=False) is not None or not process.cluster
    except KeysUnreadable as error:
        advice = "Restore it from a backup: without it, what was sealed cannot be read."
        return Finding("emails", FAIL, f"{error.filename} holds no usable keys.", advice)
    if not ready:
        return Finding("emails", WARN, "Emails are not set up here.", f"{NO_KEYS[:1].upper()}{NO_KEYS[1:]}")
    keys = process.holdfast_data / KEYS_FILE
    if os.name == "posix" and keys.is_file() and keys.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Finding("emails", WARN, f"{keys} holds secrets, and others may read it.", f"chmod 600 {keys}")
    return Finding("emails", OK, f"They are sent by {settings.email_transport}.")
