"""Fresh secrets, and weak ones: missing, short, repetitive, or well-known from manuals.

Outside the demo Holdfast refuses to start with a weak secret. The sentences name the setting and the remedy, and never
the secret.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from pydantic import SecretStr

MIN_LENGTH: Final = 16
_MIN_DISTINCT: Final = 6
_FRESH_BYTES: Final = 32
_STANDARD_WEBHOOKS: Final = "whsec_"

WAY_OUT: Final = "`holdfast init` writes a holdfast.toml with fresh secrets."

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


def fresh_secret() -> str:
    """A random secret, as text."""
    return secrets.token_urlsafe(_FRESH_BYTES)


def weakness(name: str, secret: SecretStr) -> list[str]:
    """One sentence if the secret is weak."""
    text = secret.get_secret_value().removeprefix(_STANDARD_WEBHOOKS)
    if _is_known(text):
        return [f"{name} is a well-known example value; replace it with a random one. {WAY_OUT}"]
    if len(text) < MIN_LENGTH:
        return [f"{name} is shorter than {MIN_LENGTH} characters; replace it with a random one. {WAY_OUT}"]
    if len(set(text)) < _MIN_DISTINCT:
        return [f"{name} repeats a few characters; replace it with a random one. {WAY_OUT}"]
    return []


def _is_known(text: str) -> bool:
    plain = re.sub(r"[^a-z0-9]", "", text.casefold())
    return plain in _KNOWN or plain.startswith(_KNOWN_BEGINNINGS) or _THROWAWAY.match(text) is not None
