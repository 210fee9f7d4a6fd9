"""The settings of courier events: secrets, the downstream, retries and retention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator

from holdfast import Workload
from holdfast.feature import WAY_OUT, FeatureSettings, Float, Int, Settings, WebAddress, lower, refuse, weakness

from .signatures import CourierSecret, parse_courier_secrets

_HOUR_MS: Final = 3_600_000


class CourierSettings(FeatureSettings):
    """What the operator decided about courier events."""

    courier_secrets: Mapping[str, tuple[CourierSecret, ...]] = Field(
        default_factory=dict, description="Secrets that couriers sign with: source to list, newest first."
    )
    courier_requests_per_second: Int = Field(
        5_000, ge=1, le=1_000_000, description="Events of one source that each API process accepts in a second."
    )
    # Not in repr: a webhook address may carry a token in its path or query.
    courier_downstream_url: WebAddress = Field(None, repr=False, description="Where to forward applied courier events.")
    courier_downstream_secret: SecretStr | None = Field(None, description="Signs the events forwarded downstream.")
    courier_downstream_timeout_ms: Int = Field(
        5_000, ge=10, le=600_000, description="How long the downstream may take to answer."
    )
    courier_shipment_owner: Annotated[Literal["any", "source"], BeforeValidator(lower)] = Field(
        "any", description="Who may move a shipment: any source, or only the source of its first event."
    )

    # --- retries and retention ----------------------------------------------------------------------------

    retry_max_attempts: Int = Field(5, ge=1, le=100, description="Attempts before a job becomes a dead letter.")
    retry_backoff_base_ms: Int = Field(1_000, ge=0, le=_HOUR_MS, description="The wait after the first failure.")
    retry_backoff_multiplier: Float = Field(2.0, ge=1, le=10, description="Growth of the wait with each failure.")
    retry_jitter_percent: Float = Field(20.0, ge=0, le=100, description="Random part added to each wait, in percent.")
    dlq_ttl_days: Int = Field(
        Workload.letter_retention.days, ge=1, le=3_650, description="How long dead letters are kept."
    )
    processed_events_ttl_days: Int = Field(
        Workload.retention.days,
        ge=1,
        le=3_650,
        description="How long settled entries are kept, and so how long duplicates are known.",
    )

    # --- rules that a type cannot state -------------------------------------------------------------------

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

    def weak_secrets(self, process: Settings) -> list[str]:
        """Weak secrets of couriers and of the downstream, and a courier that could act as an operator."""
        problems: list[str] = []
        token = process.operator_token
        for name, secret in self._named():
            problems += weakness(name, secret)
            if token is not None and secret.get_secret_value() == token.get_secret_value():
                problems.append(f"{name} is the same as OPERATOR_TOKEN; a courier must not be an operator. {WAY_OUT}")
        if self.courier_downstream_secret is not None:
            problems += weakness("COURIER_DOWNSTREAM_SECRET", self.courier_downstream_secret)
        return problems

    def _named(self) -> Iterator[tuple[str, SecretStr]]:
        for source, secrets in self.courier_secrets.items():
            for position, each in enumerate(secrets, start=1):
                yield f"COURIER_SECRETS, {source}, secret {position}", each.secret

    def sources_without_secret(self) -> list[str]:
        """The sources none of whose secrets is valid now."""
        now = datetime.now(UTC)
        return [
            source
            for source, secrets in self.courier_secrets.items()
            if not any(each.active_at(now) for each in secrets)
        ]
