"""Weak secrets: missing, short, repetitive, or well-known from manuals.

Outside the demo Holdfast refuses to start with a weak secret. The sentences name the setting and the remedy, and never
the secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from pydantic import SecretStr

MIN_LENGTH: Final = 16
_MIN_DISTINCT: Final = 6
_STANDARD_WEBHOOKS: Final = "whsec_"

_WAY_OUT: Final = "`holdfast init` writes a holdfast.toml with fresh secrets."

# Secrets are compared in lower case, and only by their letters and digits: Change_Me! is changeme.
_KNOWN: Final = frozenset(
    {
        "0123456789abcdef",
        "1234567890123456",
        "abcdefghijklmnop",
        "admin",
        "correcthorsebatterystaple",
        "demo",
        "letmein",
        "operatortoken",
        "qwertyuiopasdfgh",
        "test",
        # The example secrets in the documents of Standard Webhooks and Svix.
        "c2fvsbqihrscchlqimvb5ssyspob7od",
        "mfkq9r8gkyqrtwjupd8ilpzio2lalasw",
    }
)
# A secret that begins with one of these is not random. Each is too long to begin a random secret by chance.
_KNOWN_BEGINNINGS: Final = (
    "changeit",
    "changeme",
    "changethis",
    "courierx",
    "default",
    "example",
    "holdfast",
    "insecure",
    "mysecret",
    "notasecret",
    "password",
    "placeholder",
    "replaceme",
    "replacethis",
    "sample",
    "secret",
    "supersecret",
    "yoursecret",
    "yourtoken",
)
_THROWAWAY: Final = re.compile(r"(demo|dev|dummy|test|todo)[-_. ]", re.IGNORECASE)


class HeldSecret(Protocol):
    """An object with a secret, such as a courier's secret."""

    @property
    def secret(self) -> SecretStr:
        """The secret itself."""
        ...


def secret_problems(
    *,
    operator_token: SecretStr | None,
    courier_secrets: Mapping[str, Sequence[HeldSecret]],
    downstream_secret: SecretStr | None,
    email_pepper: SecretStr | None = None,
) -> list[str]:
    """One sentence for each weak secret."""
    problems: list[str] = []
    if operator_token is None:
        problems.append(f"OPERATOR_TOKEN is not set, so nobody could review dead letters. {_WAY_OUT}")
    else:
        problems += _weakness("OPERATOR_TOKEN", operator_token)
    for name, secret in _named(courier_secrets):
        problems += _weakness(name, secret)
        if operator_token is not None and secret.get_secret_value() == operator_token.get_secret_value():
            problems.append(f"{name} is the same as OPERATOR_TOKEN; a courier must not be an operator. {_WAY_OUT}")
    if downstream_secret is not None:
        problems += _weakness("COURIER_DOWNSTREAM_SECRET", downstream_secret)
    if email_pepper is not None:
        problems += _weakness("EMAIL_PEPPER", email_pepper)
    return problems


def _named(courier_secrets: Mapping[str, Sequence[HeldSecret]]) -> Iterator[tuple[str, SecretStr]]:
    for source, secrets in courier_secrets.items():
        for position, each in enumerate(secrets, start=1):
            yield f"COURIER_SECRETS, {source}, secret {position}", each.secret


def _weakness(name: str, secret: SecretStr) -> list[str]:
    text = secret.get_secret_value().removeprefix(_STANDARD_WEBHOOKS)
    if _is_known(text):
        return [f"{name} is a well-known example value; replace it with a random one. {_WAY_OUT}"]
    if len(text) < MIN_LENGTH:
        return [f"{name} is shorter than {MIN_LENGTH} characters; replace it with a random one. {_WAY_OUT}"]
    if len(set(text)) < _MIN_DISTINCT:
        return [f"{name} repeats a few characters; replace it with a random one. {_WAY_OUT}"]
    return []


def _is_known(text: str) -> bool:
    plain = re.sub(r"[^a-z0-9]", "", text.casefold())
    return plain in _KNOWN or plain.startswith(_KNOWN_BEGINNINGS) or _THROWAWAY.match(text) is not None
