"""The email workload and its admission, as configured. Without its libraries or its keys there is none."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from holdfast.config import Settings
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.ports import Store
from holdfast.contracts.queues import RateLimit
from holdfast.wiring.libraries import email_lack, is_left_out

from .keys import KeysUnreadable, email_secrets

if TYPE_CHECKING:  # the core install does without the libraries of the email extra
    from .admission import EmailAdmission
    from .content import Content
    from .notifications import SesNotifications
    from .suppression import Suppressions
    from .transports.port import Transport
    from .vault import Vault
    from .workload import Email

_DATA_FOLDER_MAIL: Final = "mail"
_DATA_FOLDER_CONTENT: Final = "mail-content"


@dataclass(frozen=True, slots=True)
class EmailParts:
    """The workload and what it shares with its admission."""

    workload: Email
    vault: Vault
    content: Content | None
    transport: Transport


@dataclass(frozen=True, slots=True)
class EmailSystem:
    """The parts of the email workload that the API and the command line use."""

    workload: Email
    admission: EmailAdmission
    vault: Vault
    content: Content | None
    suppressions: Suppressions
    feedback: SesNotifications
    transport: Transport


def email_of(settings: Settings) -> EmailParts | None:
    """The email workload; None without the ``email`` extra, and in a cluster that has no keys for personal data."""
    if is_left_out(email_lack(settings)):
        return None
    try:
        secrets = email_secrets(settings)
    except KeysUnreadable as error:
        message = f"{error.filename} {error.strerror}."
        raise ConfigurationError(message) from error
    if secrets is None:
        return None
    from .mime import Sender  # noqa: PLC0415 - the libraries are there
    from .vault import Vault  # noqa: PLC0415 - likewise
    from .workload import Email, EmailOptions  # noqa: PLC0415 - likewise

    vault = Vault(secrets.pepper, secrets.keys, secrets.current)
    options = EmailOptions(
        sender=Sender.parse(settings.email_from),
        domain=settings.message_domain,
        rate=_rate(settings),
        concurrency=settings.email_concurrency,
        backoff=tuple(timedelta(seconds=seconds) for seconds in settings.email_backoff_seconds),
        max_attempts=len(settings.email_backoff_seconds),
        ttl=timedelta(milliseconds=settings.email_ttl_ms),
        retention=timedelta(days=settings.email_retention_days),
        letter_retention=timedelta(milliseconds=settings.email_dlq_ttl_ms),
        send_timeout=timedelta(milliseconds=settings.email_timeout_ms),
        resend=settings.email_unknown_outcome == "resend",
        queue=settings.email_queue,
    )
    transport, content = transport_of(settings), _content(settings)
    return EmailParts(Email(options, vault, transport, content), vault, content, transport)


@contextlib.asynccontextmanager
async def open_email(settings: Settings, parts: EmailParts | None, store: Store) -> AsyncIterator[EmailSystem | None]:
    """The workload and its admission on an open store."""
    if parts is None:
        yield None
        return
    from .admission import EmailAdmission  # noqa: PLC0415 - the libraries are there
    from .notifications import SesNotifications  # noqa: PLC0415 - likewise
    from .request import RequestLimits  # noqa: PLC0415 - likewise
    from .sns import HttpCertificates, SnsVerifier  # noqa: PLC0415 - likewise
    from .suppression import Suppressions  # noqa: PLC0415 - likewise

    ttl = timedelta(milliseconds=settings.email_ttl_ms)
    limits = RequestLimits(html_bytes=settings.email_max_html_bytes, ttl=ttl, horizon=ttl)
    admission = EmailAdmission(parts.workload, store, parts.vault, parts.content, limits)
    if parts.content is not None:
        await parts.content.open()
    try:
        suppressions = Suppressions(store, parts.vault)
        verifier = SnsVerifier(HttpCertificates(), frozenset(settings.email_sns_topics))
        yield EmailSystem(
            workload=parts.workload,
            admission=admission,
            vault=parts.vault,
            content=parts.content,
            suppressions=suppressions,
            feedback=SesNotifications(verifier, suppressions),
            transport=parts.transport,
        )
    finally:
        if parts.content is not None:
            await parts.content.close()


def _rate(settings: Settings) -> RateLimit | None:
    if not settings.email_rate_max:
        return None
    return RateLimit(settings.email_rate_max, timedelta(milliseconds=settings.email_rate_duration_ms))


def transport_of(settings: Settings) -> Transport:
    """The transport that the settings choose. The libraries of the other transports are not needed."""
    timeout = timedelta(milliseconds=settings.email_timeout_ms)
    match settings.email_transport:
        case "smtp":
            from .transports.smtp import SmtpOptions, SmtpTransport  # noqa: PLC0415

            password = settings.smtp_password
            return SmtpTransport(
                SmtpOptions(
                    host=settings.smtp_host or "",
                    port=settings.smtp_port,
                    security=settings.smtp_security,
                    username=settings.smtp_username,
                    password=None if password is None else password.get_secret_value(),
                    ca_file=settings.smtp_ca_file,
                    timeout=timeout,
                    final_timeout=timeout * 2,
                    connections=settings.smtp_connections,
                ),
            )
        case "ses":
            from .transports.ses import SesOptions, SesTransport  # noqa: PLC0415

            return SesTransport(
                SesOptions(
                    region=settings.ses_region or "",
                    endpoint_url=settings.ses_endpoint_url,
                    configuration_set=settings.ses_configuration_set,
                    connect_timeout=timeout,
                    read_timeout=timeout * 2,
                    connections=settings.email_concurrency,
                ),
            )
        case "folder":
            from .transports.folder import FolderTransport  # noqa: PLC0415

            return FolderTransport(settings.email_folder or settings.holdfast_data / _DATA_FOLDER_MAIL)


def _content(settings: Settings) -> Content | None:
    """Where HTML is kept; None: in the database."""
    from holdfast.blobs.folder import FolderBlobs  # noqa: PLC0415

    from .content import Content  # noqa: PLC0415

    match settings.email_content:
        case "folder":
            folder = settings.email_content_folder or settings.holdfast_data / _DATA_FOLDER_CONTENT
            return Content(FolderBlobs(folder, suffix=".html", place="content folder"))
        case "s3":
            from holdfast.blobs.s3 import S3Blobs  # noqa: PLC0415

            bucket = S3Blobs(
                settings.email_content_bucket or "",
                settings.email_content_prefix,
                suffix=".html",
                region=settings.ses_region,
                timeout=timedelta(seconds=20),
                place="content bucket",
            )
            return Content(bucket)
        case "database":
            return None
