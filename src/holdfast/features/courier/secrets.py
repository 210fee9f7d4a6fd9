"""The secrets that couriers sign with: several for each source, each with the time in which it is valid.

Accepted for one source: a string, an object ``{"secret": ..., "notBefore": ..., "notAfter": ...}``, or a list of these.
In the environment the value is JSON. An error never repeats a secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from holdfast.feature import refuse

_MEMBERS = {"secret", "notBefore", "notAfter"}


class CourierSecret(BaseModel):
    """One secret and the time in which it is valid. ``whsec_`` with base64 is kept as given, not decoded."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, populate_by_name=True)

    secret: SecretStr
    not_before: AwareDatetime | None = Field(None, alias="notBefore")
    not_after: AwareDatetime | None = Field(None, alias="notAfter")

    @model_validator(mode="after")
    def _check(self) -> CourierSecret:
        value = self.secret.get_secret_value()
        if not value or value != value.strip():
            refuse("must not be empty, and must not start or end with white space")
        if self.not_before is not None and self.not_after is not None and self.not_after <= self.not_before:
            refuse("must have a notAfter that is later than its notBefore")
        return self

    def active_at(self, instant: datetime) -> bool:
        """Whether the secret is valid at that instant: from ``not_before`` on, and until just before ``not_after``."""
        return (self.not_before is None or self.not_before <= instant) and (
            self.not_after is None or instant < self.not_after
        )


def parse_courier_secrets(given: object) -> dict[str, list[object]]:
    """Convert every accepted form into one: source -> list of secret objects."""
    if isinstance(given, str):
        given = _from_json(given)
    if not isinstance(given, Mapping):
        refuse('must be an object of sources, such as {"courier-x": ["its secret", "its older secret"]}')
    return {_source(source): _listed(source, secrets) for source, secrets in given.items()}


def _from_json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_without_repetition)
    except PydanticCustomError:
        raise
    except (ValueError, RecursionError):
        pass  # refused below, outside the handler: the decoder's error holds the whole text with its secrets
    return refuse('must be JSON, such as {"courier-x": ["its secret", "its older secret"]}')


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # JSON keeps the last of two equal keys: the secrets of the first would be lost silently.
    result = dict(pairs)
    if len(result) < len(pairs):
        refuse("names a source or a member twice")
    return result


def _source(source: object) -> str:
    if not isinstance(source, str) or not source or source != source.strip():
        refuse("has a source that is empty, or has white space around it")
    return source


def _listed(source: object, secrets: object) -> list[object]:
    several = secrets if isinstance(secrets, list | tuple) else [secrets]
    if not several:
        refuse(f"has no secret for {source}; give it one or take it out")
    return [_one(source, position, each) for position, each in enumerate(several, start=1)]


def _one(source: object, position: int, given: object) -> object:
    if isinstance(given, str | SecretStr):
        return {"secret": given}
    if isinstance(given, CourierSecret):
        return given
    if not isinstance(given, Mapping) or "secret" not in given or not set(given) <= _MEMBERS:
        refuse(f"must give {source}, as secret {position}, a string or an object with secret, notBefore and notAfter")
    return dict(given)
