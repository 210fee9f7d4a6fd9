"""Signed webhooks: messages to other servers, in the format of Standard Webhooks.

- Here: how a message is signed, and how a signature is read. ``webhook-signature`` is ``v1,`` and the base64
  HMAC-SHA-256 of ``<webhook-id>.<webhook-timestamp>.<body>``. While a secret is being changed there are two
  signatures, with a space between them; a receiver accepts either. Nothing but the standard library is loaded for that.
- ``sender``: sends a message, and says what becomes of the job.
- ``addresses``: where a URL from outside may lead. ``client``: HTTP to such addresses, or to an operator's own server.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - how a secret begins, not a secret
UNIX_SECONDS: Final = re.compile(rb"[1-9][0-9]{0,11}")
"""How the timestamp of a signature is written."""

_DIGEST_BYTES: Final = 32
_MAX_SIGNATURES: Final = 32


def signing_key(secret: str) -> bytes:
    """The key bytes of a secret: base64 after ``whsec_``, otherwise its UTF-8 bytes. Empty: nothing can be signed."""
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    encoded = secret.removeprefix(SECRET_PREFIX).rstrip("=")
    try:
        return binascii.a2b_base64(encoded + "=" * (-len(encoded) % 4), strict_mode=True)
    except ValueError:  # binascii.Error is one; a character beyond ASCII is another
        return b""


def signed_headers(key: bytes, message_id: str, timestamp: int, body: bytes, *former: bytes) -> dict[str, str]:
    """The three headers that sign ``body``. ``message_id`` stays the same when a message is sent again.

    ``former`` are keys that the receiver may still have: each gives one more signature.
    """
    signed = b".".join((message_id.encode(), b"%d" % timestamp, body))
    digests = (hmac.digest(each, signed, hashlib.sha256) for each in (key, *former))
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(each).decode()}" for each in digests),
    }


def v1_signatures(header: bytes) -> dict[bytes, str]:
    """The ``v1`` signatures of a ``webhook-signature``, by digest; none if any part of the header is malformed."""
    parts = [part.partition(b",") for part in header.split(b" ")]
    if len(parts) > _MAX_SIGNATURES or not all(comma and b"," not in signature for _, comma, signature in parts):
        return {}
    signatures = {}
    for version, _, signature in parts:
        if version == b"v1":
            digest = base64_digest(signature)
            if digest is None:
                return {}
            signatures[digest] = signature.decode("ascii")
    return signatures


def base64_digest(text: bytes) -> bytes | None:
    """The 32 bytes of a digest in canonical base64; None for any other text."""
    try:
        digest = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # binascii.Error is one
        return None
    return digest if len(digest) == _DIGEST_BYTES and base64.b64encode(digest) == text else None
