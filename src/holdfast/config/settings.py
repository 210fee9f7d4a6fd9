"""The settings of the process, and how the settings of the features join them.

A feature brings a pydantic model with its settings (:class:`FeatureSettings`). :func:`compose` makes one class of the
process's own settings and those models, so that a setting has one name everywhere: ``API_PORT`` in the environment,
``api_port`` in the file and in the code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeVar

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

from .cluster_addresses import (
    database_name,
    half_a_cluster,
    mongo_address,
    queue_prefix,
    redis_address,
    shown_address,
)
from .field_types import MASK, Int, MaybeInt, Shown, lower, path, refuse
from .secret_safety import WAY_OUT, weakness

Origin = Literal["environment", "holdfast.toml", "default", "code"]

_NOT_SET: Final = "(not set)"
_HOUR_MS: Final = 3_600_000
_MOST_IN_MONGO: Final = 4 * 1024 * 1024
_SHOWN_ADDRESS: Final = Shown(lambda value: shown_address(value.get_secret_value()))


class SettingRow(NamedTuple):
    """One line of ``holdfast config show``. ``shown`` never holds a secret."""

    name: str
    shown: str
    origin: Origin
    help: str


class Settings(BaseModel):
    """What the operator decided. Frozen; secrets are masked in ``repr``, ``str`` and :meth:`describe`.

    Made by :func:`holdfast.config.load`, or directly, by name, in tests and by programs that embed Holdfast.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    features: ClassVar[Mapping[str, type[FeatureSettings]]] = {}
    """The settings of each feature that are part of this class."""
    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=dict)
    _warnings: tuple[str, ...] = PrivateAttr(default=())

    # --- the process --------------------------------------------------------------------------------------

    holdfast_data: Path = Field(
        Path("holdfast-data"), description="Folder for the ledger and the queue. Not used in a cluster."
    )
    holdfast_app: str | None = Field(
        None, description="Your own workloads, such as mymodule:app; looked for in the folder of holdfast.toml too."
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
    api_docs: bool = Field(default=True, description="Whether the API serves /docs and /openapi.json, without a token.")
    max_body_bytes: Int = Field(262_144, ge=1_024, le=16_777_216, description="The largest request body accepted.")

    api_header_timeout_ms: Int = Field(
        10_000, ge=100, le=_HOUR_MS, description="How long a client may take to send the header of a request."
    )
    api_idle_timeout_ms: Int = Field(
        5_000, ge=100, le=_HOUR_MS, description="How long a connection may stay open after an answer."
    )
    api_stall_timeout_ms: Int = Field(
        10_000,
        ge=100,
        le=_HOUR_MS,
        description="How long a body or an answer may move more slowly than API_LEAST_RATE.",
    )
    api_least_rate: Int = Field(
        8_192, ge=1, le=1_073_741_824, description="Bytes/s that a client must send of a body, and read of an answer."
    )
    api_max_connections: MaybeInt = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Open connections of one API process; otherwise as its file limit allows.",
    )
    api_max_connections_per_address: MaybeInt = Field(
        None, ge=1, le=1_000_000, description="How many of them one address may have; otherwise half of them."
    )

    # --- limits of each sender ----------------------------------------------------------------------------

    tenant_requests_per_second: Int = Field(
        2_000, ge=1, le=1_000_000, description="Requests of a tenant that each API process accepts in a second."
    )
    tenant_waiting_jobs: Int = Field(
        100_000, ge=1, le=1_000_000_000, description="Jobs of a tenant that may be unfinished before more are refused."
    )
    tenant_streams: Int = Field(
        20, ge=1, le=10_000, description="Streams that a tenant may have open in each API process."
    )
    auth_failures_per_minute: Int = Field(
        60, ge=1, le=1_000_000, description="Wrong keys and tokens from one address before they are answered with 429."
    )

    # --- the worker ---------------------------------------------------------------------------------------

    worker_concurrency: Int = Field(100, ge=1, le=10_000, description="Jobs that one worker handles at a time.")
    worker_lease_seconds: Int = Field(
        30, ge=1, le=3_600, description="How long a silent worker keeps its jobs before others may take them."
    )
    worker_drain_timeout_ms: Int = Field(
        10_000, ge=0, le=600_000, description="How long a stopping worker waits for its jobs before releasing them."
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

    redis_url: Annotated[SecretStr | None, _SHOWN_ADDRESS] = Field(
        None, description="Redis or Valkey that holds the queue. With MONGO_URI it makes a cluster."
    )
    mongo_uri: Annotated[SecretStr | None, _SHOWN_ADDRESS] = Field(
        None, description="MongoDB that holds the ledger. With REDIS_URL it makes a cluster."
    )
    mongo_db_name: str = Field("holdfast", description="Name of the database in MongoDB.")
    queue_prefix: str = Field("bull", description="Prefix of the queue's keys in Redis; {bull} in a Redis Cluster.")

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

    @model_validator(mode="after")
    def _together(self) -> Settings:
        problem = half_a_cluster(redis=self.redis_url is not None, mongo=self.mongo_uri is not None)
        if problem is not None:
            refuse(problem)
        if problems := [each for model in self.features.values() for each in model.problems(self.of(model), self)]:
            refuse(" ".join(problems))
        if self.cluster and self.max_body_bytes > _MOST_IN_MONGO:
            refuse(f"MAX_BODY_BYTES can be {_MOST_IN_MONGO} at most in a cluster: MongoDB must hold the job.")
        return self

    # --- which of the two deployments ---------------------------------------------------------------------

    @property
    def cluster(self) -> bool:
        """Whether MongoDB holds the ledger and Redis the queue; otherwise one SQLite file holds both."""
        return self.redis_url is not None

    def of(self, model: type[Part]) -> Part:
        """The settings of one feature: these settings, seen as its model."""
        found: object = self
        if not isinstance(found, model):
            message = f"{model.__name__} is not part of these settings."
            raise TypeError(message)
        return found

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
        if self.operator_token is None:
            problems = [f"OPERATOR_TOKEN is not set, so nobody could review dead letters. {WAY_OUT}"]
        else:
            problems = weakness("OPERATOR_TOKEN", self.operator_token)
        return problems + [
            each for model in self.features.values() for each in model.weak_secrets(self.of(model), self)
        ]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator should know about the configuration that was loaded, a sentence each."""
        return self._warnings

    def as_loaded(self, origins: Mapping[str, Origin], warnings: Sequence[str]) -> Settings:
        """The same settings, remembering where each came from and what was strange there."""
        copy = self.model_copy()
        copy._origins = dict(origins)  # noqa: SLF001 - a private attribute of this very class
        copy._warnings = tuple(warnings)  # noqa: SLF001 - likewise
        return copy

    def shown(self, name: str) -> str:
        """The value of this setting for display: without any secret."""
        value: Any = getattr(self, name)
        how = next((each.how for each in type(self).model_fields[name].metadata if isinstance(each, Shown)), None)
        if value is None:
            return self._absent(name)
        if how is not None:
            return how(value)
        return _displayed(value)

    def _absent(self, name: str) -> str:
        for model in self.features.values():
            if name in model.model_fields:
                return model.absent(self.of(model), name, self) or _NOT_SET
        return _NOT_SET


class FeatureSettings(BaseModel):
    """The settings of a feature. Their names are the names in the environment, in lower case.

    A feature subclasses this with pydantic fields, each with a default and a description. :class:`Settings` gets the
    fields too, so their names must be the feature's own: begin them with its name.
    """

    def problems(self, process: Settings) -> list[str]:
        """One sentence for each setting that is missing or contradicts another."""
        del process
        return []

    def weak_secrets(self, process: Settings) -> list[str]:
        """One sentence for each weak secret; :func:`weakness` finds them."""
        del process
        return []

    def absent(self, name: str, process: Settings) -> str | None:
        """What ``holdfast config show`` shows for a setting without a value; None: that it is not set."""
        del name, process
        return None


Part = TypeVar("Part", bound=FeatureSettings)
_HOOKS: Final = frozenset({"problems", "weak_secrets", "absent"})
"""What every model of a feature may have: they are called for each model, and do not replace one another."""


def compose(features: Mapping[str, type[FeatureSettings]]) -> type[Settings]:
    """The class of all settings: those of the process and those of the features, by the features' names.

    Raises ValueError if two of them have a setting or a validator of one name: one would replace the other.
    """
    owners = dict.fromkeys(_names(Settings), "Holdfast")
    for feature, model in features.items():
        for name in _names(model):
            if name in owners:
                message = f"The settings of the feature {feature} have {name}, and so has {owners[name]} already."
                raise ValueError(message)
            owners[name] = f"the feature {feature}"
    # Pydantic takes the fields of the last base first.
    bases: tuple[type, ...] = (*reversed(list(features.values())), Settings)
    return type("Settings", bases, {"__module__": __name__, "features": dict(features)})


def _names(model: type[BaseModel]) -> set[str]:
    """The names that this model brings: its settings, its validators, and its public attributes."""
    rules = model.__pydantic_decorators__
    own = {name for name in vars(model) if not name.startswith(("_", "model_"))}
    return {*model.model_fields, *rules.field_validators, *rules.model_validators, *own} - _HOOKS


def _displayed(value: Any) -> str:  # noqa: ANN401 - a setting of any type
    match value:
        case SecretStr():
            return MASK
        case Mapping():
            return ", ".join(f"{source}: {len(secrets)} x {MASK}" for source, secrets in value.items()) or _NOT_SET
        case tuple():
            return ", ".join(map(str, value)) or _NOT_SET
        case bool():
            return str(value).lower()
        case _:
            return str(value)
