"""The email workload, for commands that need it."""

from __future__ import annotations

from holdfast.cli.failures import Stop
from holdfast.config import Settings
from holdfast.features.email.feature import EmailSystem
from holdfast.wiring import System
from holdfast.wiring.libraries import email_lack


def email_parts(system: System) -> EmailSystem:
    """The email workload of this system. Without one, raises :class:`Stop` with the reason."""
    if system.email is None:
        raise Stop(why_no_email(system.settings))
    return system.email


def why_no_email(settings: Settings) -> str:
    """Why the email workload does not run here, and how to set it up."""
    lack = email_lack(settings)
    if lack is not None:
        return f"Emails are not set up here: {', '.join(lack.missing)} not installed. Install it: {lack.remedy}"
    if settings.cluster:
        return (
            "Emails are not set up here: a cluster needs EMAIL_PEPPER and EMAIL_KEYS, the same in every process. "
            "`openssl rand -base64 32` makes a pepper, and a key."
        )
    return "Emails are not set up here."
