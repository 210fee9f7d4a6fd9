"""The email settings of the tour, and whether the libraries of the ``email`` extra are installed."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from typing import Final

from holdfast.contracts.extras import missing_libraries
from holdfast.wiring.libraries import EMAILS

NEEDED: Final = ("aiosmtplib", *EMAILS)
SENDER: Final = "Demo Shop <shop@example.com>"

QUEUE: Final = "email:send"

TTL_SECONDS: Final = 6
"""How long an email may wait: long enough for two attempts, also on a busy machine."""

SHORTENED: Final[Mapping[str, int | tuple[int, ...]]] = {
    "EMAIL_BACKOFF_SECONDS": (1, 2, 3, 4, 5),
    "EMAIL_TTL_MS": TTL_SECONDS * 1_000,
}
"""Settings that make the chapters on emails quick."""

_KEY_BYTES: Final = 32


def missing() -> list[str]:
    """The missing libraries for emails."""
    return missing_libraries(NEEDED)


def settings(port: int) -> dict[str, str]:
    """Settings that use the mail server at this local port."""
    return {
        "EMAIL_TRANSPORT": "smtp",
        "EMAIL_FROM": SENDER,
        "EMAIL_QUEUE": QUEUE,
        "SMTP_HOST": "127.0.0.1",
        "SMTP_PORT": str(port),
        "SMTP_SECURITY": "none",
    }


def fresh_keys() -> dict[str, str]:
    """Keys for personal data. A cluster needs them in its settings; an embedded Holdfast makes its own."""
    key = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
    return {"EMAIL_PEPPER": secrets.token_urlsafe(_KEY_BYTES), "EMAIL_KEYS": json.dumps({"demo": key})}
