"""Whether emails could leave now."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from holdfast.config import Settings
from holdfast.contracts.errors import HoldfastError
from holdfast.wiring import transport_of

from .findings import OK, WARN, Finding

_DRIVERS: Final = {"smtp": "aiosmtplib", "ses": "aiobotocore"}


async def mail(settings: Settings) -> Finding | None:
    """Ask the mail server that the settings name, without sending anything. A folder needs no asking."""
    driver = _DRIVERS.get(settings.email_transport)
    if driver is None or find_spec(driver) is None:
        return None
    transport = transport_of(settings)
    try:
        await transport.open()
        await transport.check()
    except HoldfastError as error:
        advice = "Emails wait until it is mended; see the settings of the transport."
        return Finding("mail server", WARN, error.message, advice)
    finally:
        await transport.close()
    return Finding("mail server", OK, f"{settings.email_transport} answers.")
