"""Whether the mail server answers."""

from __future__ import annotations

from holdfast.cli.checkup.findings import OK, WARN, Finding
from holdfast.config import Settings
from holdfast.contracts.errors import HoldfastError
from holdfast.wiring import transport_of
from holdfast.wiring.libraries import email_lack


async def mail(settings: Settings) -> Finding | None:
    """Connect to the configured mail server, without sending anything. A folder needs no check."""
    if settings.email_transport == "folder" or email_lack(settings) is not None:
        return None
    transport = transport_of(settings)
    try:
        await transport.open()
        await transport.check()
    except HoldfastError as error:
        advice = "Emails wait until it works; see the settings of the transport."
        return Finding("mail server", WARN, error.message, advice)
    finally:
        await transport.close()
    return Finding("mail server", OK, f"{settings.email_transport} answers.")
