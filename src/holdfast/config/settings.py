"""Every setting: its type, default, bounds, and what it is for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)

from holdfast.features.courier.secrets import CourierSecret, parse_courier_secrets
from holdfast.features.documents.settings import DocumentSettings
from holdfast.features.email.settings import EmailSettings

from .cluster_addresses import (
    MASK,
    database_name,
    half_a_cluster,
    mongo_address,
    queue_prefix,
    redis_address,
    shown_address,
)
from .field_types import Float, Int, lower, path, refuse
from .secret_safety import secret_problems

Origin = Literal["environment", "holdfast.toml", "default", "code"]

_NOT_SET: Final = "(not set)"
_HOUR_MS: Final = 3_600_000
_MOST_IN_MONGO: Final = 4 * 1024 * 1024
_ADDRESSES: Final = frozenset({"redis_url", "mongo_uri"})
_EMAIL_SECRETS: Final = frozenset({"email_pepper", "email_keys"})
_WEB_ADDRESSES: Final = frozenset(
    {"courier_downstream_url", "document_s3_endpoint_url", "gemini_base_url", "ses_endpoint_url"}
)


class SettingRow(NamedTuple):
    """One line of ``holdfast config show``. ``shown`` never holds a secret."""

    name: str
    shown: str
    origin: Origin
    help: str


class _Basics(BaseModel):
    """The settings that are neither about emails nor about documents."""

    # --- the process --------------------------------------------------------------------------------------

    holdfast_data: Path = Field(
        Path("holdfast-data"), description="Folder for the ledger and the queue. Not used in a cluster."
    )
    holdfast_demo: bool = Field(default=False, description="Demo: unsafe secrets are allowed. Never in production.")
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(lower)] = Field(
        "info", description="The least important events to log: debug, info, warning or error."
    )
    log_format: Annotated[Literal["auto", "console", "json"], BeforeValidator(lower)] = Field(
        "auto", description="How to log: console, json, or auto (console on a terminal, else json)."
    )

    # --- the API ------------------------------------------------------------------------------------------

    api_host: str = Field("127.0.0.1", description="Address the API listens on.")
    api_port: Int = Field(8080, ge=0, le=65_535, description="Port the API listens on; 0 takes any free one.")
    operator_token: SecretStr | None = Field(None, description="Bearer token for dead letters and other operator work.")
    max_body_bytes: Int = Field(262_144, ge=1_024, le=16_777_216, description="The largest request body accepted.")
    intake_max_pending: Int = Field(
        5_000, ge=1, le=1_000_000, description="Requests that may wait for a commit before more are turned away."
    )

    # --- the courier workload -----------------------------------------------------------------------------

    courier_secrets: Mapping[str, tuple[CourierSecret, ...]] = Field(
        default_factory=dict, description="Secrets that couriers sign with: source to list, newest first."
    )
    signature_tolerance_seconds: Int = Field(
        300, ge=1, le=3_600, description="How far a signature's timestamp may be from now, either way."
    )
    # Not in repr: a webhook address may carry a token in its path or query.
    courier_downstream_url: str | None = Field(None, repr=False, description="Where to forward applied courier events.")
    courier_downstream_secret: SecretStr | None = Field(None, description="Signs the events forwarded downstream.")
    courier_downstream_timeout_ms: Int = Field(
        5_000, ge=10, le=600_000, description="How long the downstream may take to answer."
    )

    # --- the worker ---------------------------------------------------------------------------------------

    worker_concurrency: Int = Field(100, ge=1, le=10_000, description="Jobs that one worker handles at a time.")
    worker_lease_seconds: Int = Field(
        30, ge=1, le=3_600, description="How long a silent worker keeps its jobs before others may take them."
    )
    worker_drain_timeout_ms: Int = Field(
        10_000, ge=0, le=600_000, description="How long a stopping worker waits for its jobs before releasing them."
    )
    handler_timeout_ms: Int = Field(30_000, ge=10, le=_HOUR_MS, description="How long one attempt may take.")

    # --- retries and retention ----------------------------------------------------------------------------

    retry_max_attempts: Int = Field(5, ge=1, le=100, description="Attempts before a job becomes a dead letter.")
    retry_backoff_base_ms: Int = Field(1_000, ge=0, le=_HOUR_MS, description="The wait after the first failure.")
    retry_backoff_multiplier: Float = Field(2.0, ge=1, le=10, description="Growth of the wait with each failure.")
    retry_jitter_percent: Float = Field(20.0, ge=0, le=100, description="Random part added to each wait, in percent.")
    dlq_ttl_days: Int = Field(90, ge=1, le=3_650, description="How long dead letters are kept.")
    processed_events_ttl_days: Int = Field(
        30, ge=1, le=3_650, description="How long settled entries are kept, and so how long duplicates are known."
    )

    # --- maintenance --------------------------------------------------------------------------------------

    upkeep_interval_ms: Int = Field(1_000, ge=10, le=_HOUR_MS, description="How often maintenance looks for lost work.")
    publish_grace_ms: Int = Field(
        5_000,
        ge=0,
        le=_HOUR_MS,
        description="How long a job may stay unclaimed past its due time before it is republished.",
    )

    # --- cluster mode -------------------------------------------------------------------------------------

    redis_url: SecretStr | None = Field(
        None, description="Redis or Valkey that holds the queue. With MONGO_URI it makes a cluster."
    )
    mongo_uri: SecretStr | None = Field(
        None, description="MongoDB that holds the ledger. With REDIS_URL it makes a cluster."
    )
    mongo_db_name: str = Field("holdfast", description="Name of the database in MongoDB.")
    queue_prefix: str = Field("bull", description="Prefix of the queue's keys in Redis; {bull} in a Redis Cluster.")
    queue_keep_completed: Int = Field(
        1_000, ge=0, le=1_000_000, description="Completed jobs that each queue in Redis keeps, for people to look at."
    )
    queue_keep_failed: Int = Field(
        10_000, ge=0, le=1_000_000, description="Failed jobs that each queue in Redis keeps, for people to look at."
    )

    # --- rules that a type cannot state -------------------------------------------------------------------

    @field_validator("holdfast_data", mode="before")
    @classmethod
    def _folder(cls, value: object) -> object:
        return path(value)

    @field_validator("api_host")
    @classmethod
    def _word(cls, value: str) -> str:
        if re.fullmatch(r"[!-~]+", value) is None:
            refuse("must be one word of visible characters")
        return value

    @field_validator("operator_token")
    @classmethod
    def _fits_a_header(cls, value: SecretStr | None) -> SecretStr | None:
        # Any other text cannot be sent as a bearer token.
        if value is not None and re.fullmatch(r"[!-~]+", value.get_secret_value()) is None:
            refuse("must consist of visible ASCII characters, without spaces")
        return value

    @field_validator("courier_downstream_secret")
    @classmethod
    def _not_blank(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and (not (text := value.get_secret_value()) or text != text.strip()):
            refuse("must not be empty, and must not start or end with white space")
        return value

    @field_validator("courier_secrets", mode="before")
    @classmethod
    def _one_shape(cls, value: object) -> object:
        return parse_courier_secrets(value)

    @field_validator("courier_downstream_url")
    @classmethod
    def _plain_web_address(cls, value: str | None) -> str | None:
        return value if value is None else _web_address(value)

    @field_validator("redis_url")
    @classmethod
    def _one_redis(cls, value: SecretStr | None) -> SecretStr | None:
        return value if value is None else SecretStr(redis_address(value.get_secret_value()))

    @field_validator("mongo_uri")
    @classmethod
    def _mongo(cls, value: SecretStr | None) -> SecretStr | None:
        return value if value is None else SecretStr(mongo_address(value.get_secret_value()))

    @field_validator("mongo_db_name")
    @classmethod
    def _database_name(cls, value: str) -> str:
        return database_name(value)

    @field_validator("queue_prefix")
    @classmethod
    def _prefix(cls, value: str) -> str:
        return queue_prefix(value)


class Settings(DocumentSettings, EmailSettings, _Basics):
    """What the operator decided. Frozen; secrets are masked in ``repr``, ``str`` and :meth:`describe`.

    Made by :func:`holdfast.config.load`, or directly, by name, in tests and by programs that embed Holdfast.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _both_or_neither(self) -> Settings:
        problem = half_a_cluster(redis=self.redis_url is not None, mongo=self.mongo_uri is not None)
        if problem is not None:
            refuse(problem)
        lists = self.document_list_problems(cluster=self.cluster, prefix=self.queue_prefix)
        if problems := [*self.email_problems(), *self.document_problems(), *lists]:
            refuse(" ".join(problems))
        if self.cluster and self.max_body_bytes > _MOST_IN_MONGO:
            refuse(f"MAX_BODY_BYTES can be {_MOST_IN_MONGO} at most in a cluster: MongoDB must hold the job.")
        return self

    # --- which of the two deployments ---------------------------------------------------------------------

    @property
    def cluster(self) -> bool:
        """Whether MongoDB holds the ledger and Redis the queue; otherwise one SQLite file holds both."""
        return self.redis_url is not None

    # --- for people ---------------------------------------------------------------------------------------

    def describe(self) -> list[SettingRow]:
        """Every setting with its value for display, where the value comes from, and what it is for."""
        return [
            SettingRow(name.upper(), self.shown(name), self.origin(name), field.description or "")
            for name, field in type(self).model_fields.items()
        ]

    def origin(self, name: str) -> Origin:
        """Where the value of this setting comes from."""
        given = self._origins.get(name)
        if given is not None:
            return given
        return "code" if name in self.model_fields_set else "default"

    def secret_problems(self) -> list[str]:
        """One sentence for each weak secret, with the remedy. The demo does not check."""
        return secret_problems(
            operator_token=self.operator_token,
            courier_secrets=self.courier_secrets,
            downstream_secret=self.courier_downstream_secret,
            email_pepper=self.email_pepper,
        )

    def _absent(self, name: str) -> str:
        if name in _EMAIL_SECRETS:
            return "(not set: no emails here)" if self.cluster else "(made once, kept in the data folder)"
        return _NOT_SET

    def with_origins(self, origins: Mapping[str, Origin]) -> Settings:
        """The same settings, remembering where each came from."""
        copy = self.model_copy()
        copy._origins = dict(origins)  # noqa: SLF001 - a private attribute of this very class
        return copy

    def shown(self, name: str) -> str:
        """The value of this setting for display: without any secret."""
        value: Any = getattr(self, name)
        match value:
            case None:
                return self._absent(name)
            case SecretStr():
                return shown_address(value.get_secret_value()) if name in _ADDRESSES else MASK
            case Mapping():
                return ", ".join(f"{source}: {len(secrets)} x {MASK}" for source, secrets in value.items()) or _NOT_SET
            case tuple():
                return ", ".join(map(str, value)) or _NOT_SET
            case _:
                return _without_query(value) if name in _WEB_ADDRESSES else _plain(value)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _web_address(value: str) -> str:
    # No message repeats the address: it may hold a password.
    if re.fullmatch(r"[!-~]+", value) is None:
        refuse("must be an address of visible ASCII characters")
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not host or port == 0:
        refuse("must be an http:// or https:// address")
    if "@" in parts.netloc:
        refuse("must not contain a user name or password; use COURIER_DOWNSTREAM_SECRET to sign what is sent")
    return value


def _without_query(address: str) -> str:
    plain, mark, _ = address.partition("?")
    return plain + mark + (MASK if mark else "")
