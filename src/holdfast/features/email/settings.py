"""The settings of the email workload: transport, storage of the HTML, limits, and keys."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from email.utils import parseaddr
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator

from holdfast.feature import (
    FeatureSettings,
    Int,
    Settings,
    WebAddress,
    is_sender,
    listed,
    lower,
    path,
    refuse,
    weakness,
)

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_KEY_BYTES: Final = 32
_SHORTEST_PEPPER: Final = 32
_FEWEST_DISTINCT: Final = 10
_MOST_BACKOFFS: Final = 5  # rule E25: attempts are counted from 1 to 5
_LONGEST_BACKOFF: Final = 86_400
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})

KEY_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|\[?[0-9A-Fa-f:.]+\]?")
_TOPIC: Final = re.compile(r"arn:aws(?:-[a-z-]+)?:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_.-]{1,256}")
_WORD: Final = re.compile(r"[!-~]+")
_QUEUE: Final = re.compile(r"(?=.{1,64}$)[A-Za-z0-9._-]+(?::[A-Za-z0-9._-]+)*")


class EmailSettings(FeatureSettings):
    """What the operator decided about emails."""

    # --- how emails leave ---------------------------------------------------------------------------------

    email_transport: Annotated[Literal["folder", "smtp", "ses"], BeforeValidator(lower)] = Field(
        "folder", description="How emails leave: folder (.eml files, for trying things out), smtp, or ses (Amazon)."
    )
    email_folder: Path | None = Field(
        None, description="Where the folder transport puts .eml files; otherwise mail/ in the data folder."
    )
    email_from: str = Field(
        "Holdfast <holdfast@localhost.localdomain>",
        description="The sender of emails, unless their tenant has its own.",
    )
    smtp_host: str | None = Field(None, description="The SMTP server; needed with EMAIL_TRANSPORT=smtp.")
    smtp_port: Int = Field(587, ge=1, le=65_535, description="The SMTP server's port.")
    smtp_security: Annotated[Literal["none", "starttls", "tls"], BeforeValidator(lower)] = Field(
        "starttls", description="How the connection to the SMTP server is kept private: starttls, tls, or none."
    )
    smtp_username: str | None = Field(None, repr=False, description="The user name for the SMTP server, if needed.")
    smtp_password: SecretStr | None = Field(None, description="The password for SMTP_USERNAME.")
    smtp_ca_file: Path | None = Field(
        None, description="Certificates that vouch for the SMTP server; otherwise the system's."
    )
    ses_region: str | None = Field(None, description="The AWS region of SES; needed with EMAIL_TRANSPORT=ses.")
    ses_endpoint_url: WebAddress = Field(None, repr=False, description="SES at another address than Amazon's own.")
    ses_configuration_set: str | None = Field(None, description="The SES configuration set that emails are sent with.")

    # --- where their HTML is ------------------------------------------------------------------------------

    email_content: Annotated[Literal["database", "folder", "s3"], BeforeValidator(lower)] = Field(
        "database", description="Where the HTML of emails is kept: database, folder or s3."
    )
    email_content_folder: Path | None = Field(
        None, description="The folder for EMAIL_CONTENT=folder; otherwise mail-content/ in the data folder."
    )
    email_content_bucket: str | None = Field(None, description="The bucket; needed with EMAIL_CONTENT=s3.")
    email_content_prefix: str = Field("email/", description="What the names of the bucket's objects begin with.")
    email_max_html_bytes: Int = Field(
        524_288, ge=1_024, le=2_097_152, description="The largest HTML of one email, in bytes of UTF-8."
    )

    # --- how many, how fast, how long ---------------------------------------------------------------------

    email_queue: str = Field(
        "email:send", description="The queue that emails go through; that of dead letters is named after it."
    )
    email_rate_max: Int = Field(
        100, ge=0, le=1_000_000, description="Emails that all workers send in EMAIL_RATE_DURATION_MS; 0 means no limit."
    )
    email_rate_duration_ms: Int = Field(1_000, ge=10, le=_HOUR_MS, description="The span that EMAIL_RATE_MAX is for.")
    email_concurrency: Int = Field(
        10, ge=1, le=1_000, description="Emails that one worker sends at a time, each over a connection of its own."
    )
    email_backoff_seconds: Annotated[tuple[int, ...], BeforeValidator(listed)] = Field(
        (1, 5, 30, 120, 600), description="The wait after each failed attempt; as many attempts as waits, five at most."
    )
    email_ttl_ms: Int = Field(
        _DAY_MS, ge=1_000, le=30 * _DAY_MS, description="How long after its acceptance an email may still be sent."
    )
    email_dlq_ttl_ms: Int = Field(
        7 * _DAY_MS, ge=1_000, le=3_650 * _DAY_MS, description="How long dead letters of emails are kept."
    )
    email_retention_days: Int = Field(
        30, ge=1, le=3_650, description="How long a settled email is known, and so its duplicates."
    )
    email_unknown_outcome: Annotated[Literal["dead_letter", "resend"], BeforeValidator(lower)] = Field(
        "dead_letter",
        description="What becomes of an email whose sending ended in doubt: dead_letter, or resend (at worst twice).",
    )

    # --- personal data and feedback -----------------------------------------------------------------------

    email_pepper: SecretStr | None = Field(
        None, description="Keys the hashes of tax numbers and addresses. Never change it: nobody would be recognised."
    )
    email_keys: SecretStr | None = Field(
        None, description="Keys that seal personal data: JSON of names and base64 of 32 bytes. The last one seals."
    )
    email_sns_topics: Annotated[tuple[str, ...], BeforeValidator(listed)] = Field(
        (), description="ARNs of the SNS topics whose bounces and complaints are believed."
    )

    # --- rules that a type cannot state -------------------------------------------------------------------

    @field_validator("email_folder", "email_content_folder", "smtp_ca_file", mode="before")
    @classmethod
    def _path(cls, value: object) -> object:
        return path(value)

    @field_validator("email_from")
    @classmethod
    def _one_sender(cls, value: str) -> str:
        if not is_sender(value):
            refuse("must be one address, such as Holdfast <mail@example.com>")
        return value

    @field_validator("smtp_host")
    @classmethod
    def _host(cls, value: str | None) -> str | None:
        if value is not None and _HOST.fullmatch(value) is None:
            refuse("must be the name or the address of one host, without its port")
        return value

    @field_validator("ses_region", "ses_configuration_set", "email_content_bucket", "smtp_username")
    @classmethod
    def _one_word(cls, value: str | None) -> str | None:
        if value is not None and _WORD.fullmatch(value) is None:
            refuse("must be one word of visible ASCII characters")
        return value

    @field_validator("email_content_prefix")
    @classmethod
    def _content_prefix(cls, value: str) -> str:
        if value and _WORD.fullmatch(value) is None:
            refuse("must consist of visible ASCII characters, without spaces")
        return value

    @field_validator("email_queue")
    @classmethod
    def _queue_name(cls, value: str) -> str:
        if _QUEUE.fullmatch(value) is None:
            refuse("must be a name of 1 to 64 letters, digits, dots, - or _, or several with : between them")
        return value

    @field_validator("email_backoff_seconds", mode="after")
    @classmethod
    def _waits(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not 1 <= len(value) <= _MOST_BACKOFFS or not all(0 <= each <= _LONGEST_BACKOFF for each in value):
            refuse(f"must be 1 to {_MOST_BACKOFFS} whole numbers from 0 to {_LONGEST_BACKOFF}, such as 1,5,30,120,600")
        return value

    @field_validator("email_sns_topics")
    @classmethod
    def _topics(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(_TOPIC.fullmatch(each) for each in value):
            refuse("must be ARNs of SNS topics, such as arn:aws:sns:sa-east-1:123456789012:bounces")
        return value

    @field_validator("email_pepper")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _looks_random(value.get_secret_value().strip(), _SHORTEST_PEPPER):
            refuse(f"must be at least {_SHORTEST_PEPPER} random characters")
        return value

    @field_validator("email_keys", mode="before")
    @classmethod
    def _keys(cls, value: object) -> object:
        # In the file it may be a table. Kept as text, so that it is masked like every secret.
        return json.dumps(dict(value), default=str) if isinstance(value, Mapping) else value

    @field_validator("email_keys")
    @classmethod
    def _usable_keys(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            sealing_keys(value.get_secret_value())
        return value

    # --- what follows from them ---------------------------------------------------------------------------

    def weak_secrets(self, process: Settings) -> list[str]:
        """A weak pepper."""
        del process
        return [] if self.email_pepper is None else weakness("EMAIL_PEPPER", self.email_pepper)

    def absent(self, name: str, process: Settings) -> str | None:
        """What stands in for keys that are not set."""
        if name not in {"email_pepper", "email_keys"}:
            return None
        return "(not set: no emails here)" if process.cluster else "(made once, kept in the data folder)"

    def problems(self, process: Settings) -> list[str]:
        """One sentence for each setting that is missing or contradicts another."""
        del process
        problems = []
        if self.email_transport == "smtp" and self.smtp_host is None:
            problems.append("EMAIL_TRANSPORT=smtp needs SMTP_HOST.")
        if self.email_transport == "ses" and self.ses_region is None:
            problems.append("EMAIL_TRANSPORT=ses needs SES_REGION.")
        if self.email_content == "s3" and self.email_content_bucket is None:
            problems.append("EMAIL_CONTENT=s3 needs EMAIL_CONTENT_BUCKET.")
        if (self.smtp_username is None) != (self.smtp_password is None):
            problems.append("SMTP_USERNAME and SMTP_PASSWORD belong together: set both, or neither.")
        if self.smtp_password is not None and self.smtp_security == "none" and self.smtp_host not in _LOOPBACK:
            problems.append("SMTP_SECURITY=none would send SMTP_PASSWORD in clear: use starttls or tls.")
        if (self.email_pepper is None) != (self.email_keys is None):
            problems.append("EMAIL_PEPPER and EMAIL_KEYS belong together: set both, or neither.")
        return problems

    @property
    def message_domain(self) -> str:
        """The domain that Message-IDs are made with."""
        return parseaddr(self.email_from)[1].rpartition("@")[2].lower()


def sealing_keys(text: str) -> dict[str, bytes]:
    """The keys in this JSON, in its order. No error repeats anything of it."""
    given = _object(text)
    keys = {name: _key(value) for name, value in given.items()}
    if not keys or not all(KEY_NAME.fullmatch(name) for name in keys) or None in keys.values():
        refuse('must be JSON such as {"2026-11": "base64 of 32 random bytes"}; names are letters, digits, - and _')
    return {name: key for name, key in keys.items() if key is not None}


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_once_each)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    return members if len(members) == len(pairs) else {}


def _key(value: object) -> bytes | None:
    try:
        raw = base64.b64decode(value.encode("ascii"), validate=True) if isinstance(value, str) else b""
    except (binascii.Error, UnicodeEncodeError):
        return None
    return raw if len(raw) == _KEY_BYTES and _looks_random(raw, _KEY_BYTES) else None


def _looks_random(secret: str | bytes, length: int) -> bool:
    return len(secret) >= length and len(set(secret)) >= _FEWEST_DISTINCT
