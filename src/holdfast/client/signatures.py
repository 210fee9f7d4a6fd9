"""Signed webhooks, for the other side: verify what Holdfast sends, and sign as Holdfast does.

The format is that of Standard Webhooks. Holdfast signs the callbacks of documents and the events for a courier's
downstream with it, and its courier intake accepts it.
"""

from __future__ import annotations

import hashlib
import hmac
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from holdfast.contracts.times import Duration, duration
from holdfast.webhooks import UNIX_SECONDS, signed_headers, signing_key, v1_signatures

from .errors import InvalidSignature

_HEADERS: Final = ("webhook-id", "webhook-timestamp", "webhook-signature")


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook that its sender signed. ``id`` is the same when it is sent again: use it to find duplicates."""

    id: str
    sent_at: datetime


def verify_webhook(
    body: bytes | str,
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    secrets: str | Sequence[str],
    tolerance: Duration = "5m",
    now: datetime | float | None = None,
) -> Webhook:
    """Raise :class:`InvalidSignature` unless one of the secrets has signed this body, not long ago.

    ``body`` is the raw body, before it is parsed. Several secrets are for the time in which a secret is changed. The
    error is the same for every cause, and the time does not depend on how well a signature matches. ``ValueError``
    means that a secret cannot be used.
    """
    keys = [_key(each) for each in ([secrets] if isinstance(secrets, str) else secrets)]
    if not keys:
        message = "There is no secret to verify with."
        raise ValueError(message)
    identifier, timestamp, signature = _three(headers)
    if UNIX_SECONDS.fullmatch(timestamp) is None or not identifier:
        raise InvalidSignature
    if abs(_seconds(now) - int(timestamp)) > duration(tolerance).total_seconds():
        raise InvalidSignature
    signed = b".".join((identifier, timestamp, _raw(body)))
    digests = v1_signatures(signature)
    matches = [
        hmac.compare_digest(hmac.digest(key, signed, hashlib.sha256), digest) for key in keys for digest in digests
    ]
    if not any(matches):
        raise InvalidSignature
    return Webhook(identifier.decode(), datetime.fromtimestamp(int(timestamp), UTC))


def sign(
    body: bytes | str, secret: str, *, message_id: str | None = None, now: datetime | float | None = None
) -> dict[str, str]:
    """The three headers that sign ``body``. Give the same ``message_id`` when the message is sent again."""
    return signed_headers(_key(secret), message_id or f"msg_{uuid.uuid4().hex}", int(_seconds(now)), _raw(body))


def _seconds(now: datetime | float | None) -> float:
    if now is None:
        return time.time()
    return now.timestamp() if isinstance(now, datetime) else now


def _raw(body: bytes | str) -> bytes:
    # Half of a character cannot come from a body in UTF-8: the signature will not match, and that is right.
    return body.encode(errors="replace") if isinstance(body, str) else bytes(body)


def _key(secret: str) -> bytes:
    key = signing_key(secret)
    if not key:
        message = "A secret is empty, or the part after whsec_ is not base64."
        raise ValueError(message)
    return key


def _three(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> tuple[bytes, bytes, bytes]:
    """The three headers of a signature, each once. Whatever a sender writes, no other error is raised."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found: dict[str, bytes] = {}
    for name, value in pairs:
        known = _text(name).lower()
        if known in _HEADERS:
            text = _text(value)
            if known in found or not text.isascii():
                raise InvalidSignature
            found[known] = text.encode()
    if len(found) < len(_HEADERS):
        raise InvalidSignature
    identifier, timestamp, signature = (found[each] for each in _HEADERS)
    return identifier, timestamp, signature


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
