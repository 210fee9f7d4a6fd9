"""The feature ``email``: emails of tenants, with minimal and sealed personal data."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from holdfast import ConfigurationError, HoldfastError, RateLimit
from holdfast.feature import FAIL, OK, WARN, Command, Feature, Finding, Needs, NotSetUp, Parts, Services, Settings

from .keys import KEYS_FILE, EmailSecrets, KeysUnreadable, email_secrets
from .settings import EmailSettings

if (
    TYPE_CHECKING
):  # the core install does without the libraries of the email extra, and a worker without a web framework
    from holdfast.http import FeatureRoutes, Frame

    from .admission import EmailAdmission
    from .content import Content
    from .notifications import SesNotifications
    from .suppression import Suppressions
    from .transports.port import Transport
    from .workload import Email

LIBRARIES: Final = ("cryptography", "email_validator")
"""What every transport needs. SMTP and SES need a library more."""
EMAIL_PATH: Final = "/v1/email"
SEND_PATH: Final = f"{EMAIL_PATH}/send"

_DATA_FOLDER_MAIL: Final = "mail"
_DATA_FOLDER_CONTENT: Final = "mail-content"
_NO_KEYS: Final = (
    "a cluster needs EMAIL_PEPPER and EMAIL_KEYS, the same in every process. "
    "`openssl rand -base64 32` makes a pepper, and a key."
)


class Scope(StrEnum):
    """What a tenant's key may be used for."""

    EMAIL_SEND = "email:send"
    EMAIL_READ = "email:read"
    EMAIL_CANCEL = "email:cancel"


class EmailFeature(Feature[EmailSettings]):
    """Emails of tenants."""

    name = "email"
    title = "emails"
    settings = EmailSettings
    commands = (
        Command("emails", "holdfast.features.email.commands.emails:emails", "See the status of emails; cancel emails."),
        Command(
            "suppressions",
            "holdfast.features.email.commands.suppressions:suppressions",
            "List, add and remove addresses that get no emails.",
        ),
        Command(
            "privacy",
            "holdfast.features.email.commands.privacy:privacy",
            "Erase a person; seal personal data with a new key.",
            panel="Set up and check",
        ),
    )
    scopes: ClassVar[Mapping[str, str]] = {
        Scope.EMAIL_SEND: "sends emails",
        Scope.EMAIL_READ: "shows the status of emails",
        Scope.EMAIL_CANCEL: "cancels emails that wait",
    }
    paths = (EMAIL_PATH,)
    intakes: ClassVar[Mapping[str, str]] = {"email": f"Send emails, with an API key, to POST {SEND_PATH}."}

    def needs(self, settings: EmailSettings) -> Needs:
        """What sending emails needs, in the way that the settings choose."""
        amazon = settings.email_transport == "ses" or settings.email_content == "s3"
        smtp = settings.email_transport == "smtp"
        asked_by = {
            f"EMAIL_TRANSPORT={settings.email_transport}": settings.email_transport != "folder",
            f"EMAIL_CONTENT={settings.email_content}": settings.email_content != "database",
            "EMAIL_PEPPER": settings.email_pepper is not None,
        }
        return Needs(
            (*LIBRARIES, *(("aiobotocore",) if amazon else ()), *(("aiosmtplib",) if smtp else ())),
            [name for name, asks in asked_by.items() if asks],
        )

    def build(self, settings: EmailSettings, services: Services) -> Parts:
        """The workload, its admission and its routes. In a cluster without keys for personal data there are none."""
        try:
            secrets = email_secrets(services.settings)
        except KeysUnreadable as error:
            message = f"{error.filename} {error.strerror}."
            raise ConfigurationError(message) from error
        if secrets is None:
            raise NotSetUp(_NO_KEYS)
        email = EmailService(settings, services, secrets)
        return Parts(
            workloads=[email.workload],
            routes=email.routes,
            resources=[] if email.content is None else [email.content],
            service=email,
        )

    async def check(self, settings: EmailSettings, services: Services) -> Sequence[Finding]:
        """Whether emails can be sent, and whether the mail server answers. Nothing is sent."""
        found = _check_keys(settings, services.settings)
        if settings.email_transport == "folder":
            return [found]
        transport = transport_of(settings, services.settings)
        try:
            await transport.open()
            await transport.check()
        except HoldfastError as error:
            advice = "Emails wait until it works; see the settings of the transport."
            return [found, Finding("mail server", WARN, error.message, advice)]
        finally:
            await transport.close()
        return [found, Finding("mail server", OK, f"{settings.email_transport} answers.")]


class EmailService:
    """The email workload of a process, and what its routes and commands use."""

    max_batch_bytes: ClassVar[int] = 8 * 1024 * 1024
    """The size of the largest request with many emails."""

    def __init__(self, settings: EmailSettings, services: Services, secrets: EmailSecrets) -> None:
        from .mime import Sender  # noqa: PLC0415 - the libraries are there
        from .vault import Vault  # noqa: PLC0415 - likewise
        from .workload import Email, EmailOptions  # noqa: PLC0415 - likewise

        self.settings = settings
        self.services = services
        self.vault = Vault(secrets.pepper, secrets.keys, secrets.current)
        self.transport = transport_of(settings, services.settings)
        self.content = _content(settings, services.settings)
        self.mail_folder = mail_folder(settings, services.settings)
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
            resend=settings.email_unknown_outcome == "resend",
            queue=settings.email_queue,
        )
        self.workload: Email = Email(options, self.vault, self.transport, self.content)

    @cached_property
    def admission(self) -> EmailAdmission:
        """Turns requests into jobs."""
        from .admission import EmailAdmission  # noqa: PLC0415 - the libraries are there
        from .request import RequestLimits  # noqa: PLC0415 - likewise

        ttl = timedelta(milliseconds=self.settings.email_ttl_ms)
        limits = RequestLimits(html_bytes=self.settings.email_max_html_bytes, ttl=ttl)
        return EmailAdmission(self.workload, self.services.store, self.vault, self.content, limits)

    @cached_property
    def suppressions(self) -> Suppressions:
        """The addresses that get no emails."""
        from .suppression import Suppressions  # noqa: PLC0415 - the libraries are there

        return Suppressions(self.services.store, self.vault)

    @cached_property
    def feedback(self) -> SesNotifications:
        """Turns the provider's notifications into suppressions."""
        from .notifications import SesNotifications  # noqa: PLC0415 - the libraries are there
        from .sns import HttpCertificates, SnsVerifier  # noqa: PLC0415 - likewise

        verifier = SnsVerifier(HttpCertificates(), frozenset(self.settings.email_sns_topics))
        return SesNotifications(verifier, self.suppressions)

    @property
    def max_body_bytes(self) -> int:
        """The size of the largest request with one email."""
        # JSON may write a character of two bytes in six.
        return 3 * self.settings.email_max_html_bytes + self.services.settings.max_body_bytes

    def routes(self, frame: Frame) -> FeatureRoutes:
        """The routes of emails."""
        from .routes import email_routes  # noqa: PLC0415 - workers do without a web framework

        return email_routes(self, frame)


def _rate(settings: EmailSettings) -> RateLimit | None:
    if not settings.email_rate_max:
        return None
    return RateLimit(settings.email_rate_max, timedelta(milliseconds=settings.email_rate_duration_ms))


def _check_keys(settings: EmailSettings, process: Settings) -> Finding:
    """Whether there are usable keys, and by which transport emails are sent."""
    try:
        ready = email_secrets(process, create=False) is not None or not process.cluster
    except KeysUnreadable as error:
        advice = "Restore it from a backup: without it, what was sealed cannot be read."
        return Finding("emails", FAIL, f"{error.filename} holds no usable keys.", advice)
    if not ready:
        return Finding("emails", WARN, "Emails are not set up here.", f"{_NO_KEYS[:1].upper()}{_NO_KEYS[1:]}")
    keys = process.holdfast_data / KEYS_FILE
    if os.name == "posix" and keys.is_file() and keys.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Finding("emails", WARN, f"{keys} holds secrets, and others may read it.", f"chmod 600 {keys}")
    return Finding("emails", OK, f"They are sent by {settings.email_transport}.")


def mail_folder(settings: EmailSettings, process: Settings) -> Path:
    """Where the folder transport writes emails."""
    return settings.email_folder or process.holdfast_data / _DATA_FOLDER_MAIL


def transport_of(settings: EmailSettings, process: Settings) -> Transport:
    """The transport that the settings choose. The libraries of the other transports are not needed."""
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
                    connections=settings.email_concurrency,
                ),
            )
        case "ses":
            from .transports.ses import SesOptions, SesTransport  # noqa: PLC0415

            return SesTransport(
                SesOptions(
                    region=settings.ses_region or "",
                    endpoint_url=settings.ses_endpoint_url,
                    configuration_set=settings.ses_configuration_set,
                    connections=settings.email_concurrency,
                ),
            )
        case "folder":
            from .transports.folder import FolderTransport  # noqa: PLC0415

            return FolderTransport(mail_folder(settings, process))


def _content(settings: EmailSettings, process: Settings) -> Content | None:
    """Where HTML is kept; None: in the database."""
    from holdfast.blobs.folder import FolderBlobs  # noqa: PLC0415

    from .content import Content  # noqa: PLC0415

    match settings.email_content:
        case "folder":
            folder = settings.email_content_folder or process.holdfast_data / _DATA_FOLDER_CONTENT
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
