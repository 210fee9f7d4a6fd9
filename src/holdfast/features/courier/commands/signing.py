"""Signatures of couriers, in the two schemes that the API accepts."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from holdfast.feature import Settings
from holdfast.features.courier.settings import CourierSettings
from holdfast.features.courier.signatures import ALGORITHM, sign
from holdfast.terminal import Stop
from holdfast.webhooks import signed_headers, signing_key


def headers(secret: str, body: bytes) -> dict[str, str]:
    """The headers of our own scheme, with the current time."""
    timestamp = int(time.time())
    return {
        "x-signature": sign(secret, timestamp, body),
        "x-signature-timestamp": str(timestamp),
        "x-signature-algorithm": ALGORITHM,
    }


def standard_headers(secret: str, message_id: str, body: bytes) -> dict[str, str]:
    """The headers of Standard Webhooks, with the current time."""
    return signed_headers(signing_key(secret), message_id, int(time.time()), body)


def usable(secret: str) -> str:
    """The secret. Raises :class:`Stop` if it cannot sign anything."""
    if not signing_key(secret):
        message = "The secret is empty, or the part after whsec_ is not base64."
        raise Stop(message)
    return secret


def secret_of(settings: Settings, source: str | None) -> tuple[str, str]:
    """The source and its newest valid secret. Without a source: the only one in the settings."""
    known = settings.of(CourierSettings).courier_secrets
    ways = "Give --secret (or COURIER_SECRET), or put it into COURIER_SECRETS; `holdfast init` writes a first one."
    if source is None:
        if len(known) != 1:
            there = f"These are configured: {', '.join(known)}." if known else ways
            message = f"Give the sender with --source. {there}"
            raise Stop(message)
        source = next(iter(known))
    if source not in known:
        there = f" (configured: {', '.join(known)})" if known else ""
        message = f"There is no secret for the source {source!r}{there}. {ways}"
        raise Stop(message)
    now = datetime.now(UTC)
    for each in known[source]:
        if each.active_at(now):
            return source, usable(each.secret.get_secret_value())
    message = f"No secret of {source!r} is valid at this time: see notBefore and notAfter in COURIER_SECRETS."
    raise Stop(message)
