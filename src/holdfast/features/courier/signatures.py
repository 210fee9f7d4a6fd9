"""Verification of signatures: two schemes, and several secrets for each source.

* ours: ``x-signature`` (hex or base64), ``x-signature-timestamp`` (unix seconds) and, optionally,
  ``x-signature-algorithm: hmac-sha256``; the signature covers ``<timestamp>.<raw body>``.
* Standard Webhooks: ``webhook-id``, ``webhook-timestamp`` and ``webhook-signature`` (``v1,<base64>``, several separated
  by spaces); the signature covers ``<id>.<timestamp>.<raw body>``.

For a request with ``x-signature``, only our scheme counts. Verification uses the raw bytes, before the body is parsed.
The name of the source is inside the body. So the result is the *set of sources* whose secrets match these bytes, and
the caller compares this set with the name after parsing.

Nothing here raises on bad input: a signature is valid or not, and no reason is given.

A source has several secrets, each with the time in which it is valid. Accepted in the settings for one source: a
string, an object ``{"secret": ..., "notBefore": ..., "notAfter": ...}``, or a list of these. In the environment the
value is JSON. An error never repeats a secret.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from holdfast import ConfigurationError, ErrorCode
from holdfast.feature import refuse
from holdfast.webhooks import SECRET_PREFIX, UNIX_SECONDS, base64_digest, signing_key, v1_signatures

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


# One message for every cause: the answer gives no hint to a forger.
INVALID_SIGNATURE: Final = ErrorCode("INVALID_SIGNATURE", 401, "The request is not signed by its source.")

TOLERANCE: Final = timedelta(minutes=5)
"""How far the timestamp of a signature may be from now, in both directions (C17). Standard Webhooks has the same."""
ALGORITHM: Final = "hmac-sha256"
_ALGORITHM: Final = ALGORITHM.encode()

X_SIGNATURE: Final = b"x-signature"
X_TIMESTAMP: Final = b"x-signature-timestamp"
X_ALGORITHM: Final = b"x-signature-algorithm"
WEBHOOK_ID: Final = b"webhook-id"
WEBHOOK_TIMESTAMP: Final = b"webhook-timestamp"
WEBHOOK_SIGNATURE: Final = b"webhook-signature"
SIGNATURE_HEADERS: Final = frozenset(
    {X_SIGNATURE, X_TIMESTAMP, X_ALGORITHM, WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE},
)

_HEX: Final = re.compile(rb"[0-9a-fA-F]{64}")
_BLOCK_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class SignatureMeta:
    """How a request was signed; kept with the job as ``signatureMeta`` (C10)."""

    algorithm: str
    timestamp: int
    signature: str


@dataclass(frozen=True, slots=True)
class SourceSecret:
    """One secret of one source. It is valid from ``not_before`` (included) to ``not_after`` (excluded)."""

    secret: str = field(repr=False)
    not_before: datetime | None = None
    not_after: datetime | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """These bytes were signed with a secret of each of these sources."""

    sources: frozenset[str]
    meta: SignatureMeta


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """The ``x-signature`` (hex) that :class:`Verifier` accepts for this body at this time."""
    return hmac.digest(signing_key(secret), b"%d.%s" % (timestamp, body), hashlib.sha256).hex()


class Verifier:
    """Finds the sources that signed a request.

    Every active secret is tried, also after a match, and compared in constant time. So the time taken depends on the
    number of secrets only, not on how well one of them matches.
    """

    def __init__(self, secrets: Mapping[str, Sequence[SourceSecret]], tolerance: timedelta = TOLERANCE) -> None:
        self._secrets = [_PreparedSecret(source, secret) for source, several in secrets.items() for secret in several]
        self._tolerance = tolerance.total_seconds()

    def verify(self, headers: Mapping[bytes, bytes], body: bytes, now: float) -> Verified | None:
        """The sources that signed ``body``, or None. Each header is given once; ``now`` is in unix seconds."""
        claim = _own_claim(headers) if X_SIGNATURE in headers else _standard_claim(headers)
        if claim is None or abs(now - int(claim.timestamp)) > self._tolerance:
            return None
        sources: set[str] = set()
        matched = ""
        for secret in self._secrets:
            if not secret.not_before <= now < secret.not_after:
                continue
            expected = secret.digest(claim.head, body)
            for digest, signature in claim.signatures.items():
                if hmac.compare_digest(expected, digest):
                    sources.add(secret.source)
                    matched = signature
        if not sources:
            return None
        return Verified(frozenset(sources), SignatureMeta(ALGORITHM, int(claim.timestamp), matched))


class _Claim(NamedTuple):
    """The content of well-formed headers. The signed text is ``head`` and the body; one valid signature is enough."""

    timestamp: bytes
    head: bytes
    signatures: Mapping[bytes, str]  # by digest, as they were written


class _PreparedSecret:
    """One secret, with both halves of its HMAC started: copying a hash is cheaper than a new HMAC."""

    __slots__ = ("_inner", "_outer", "not_after", "not_before", "source")

    def __init__(self, source: str, secret: SourceSecret) -> None:
        key = signing_key(secret.secret)
        if not key:
            message = f"A secret of source {source!r} is empty, or is not base64 after {SECRET_PREFIX!r}."
            raise ConfigurationError(message)
        if len(key) > _BLOCK_BYTES:
            key = hashlib.sha256(key).digest()
        block = key.ljust(_BLOCK_BYTES, b"\0")
        self.source = source
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))
        self.not_before = float("-inf") if secret.not_before is None else secret.not_before.timestamp()
        self.not_after = float("inf") if secret.not_after is None else secret.not_after.timestamp()

    def digest(self, head: bytes, body: bytes) -> bytes:
        inner = self._inner.copy()
        inner.update(head)
        inner.update(body)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()


def _own_claim(headers: Mapping[bytes, bytes]) -> _Claim | None:
    signature = headers[X_SIGNATURE]
    timestamp = headers.get(X_TIMESTAMP, b"")
    written = signature.removeprefix(b"sha256=")
    digest = binascii.unhexlify(written) if _HEX.fullmatch(written) is not None else base64_digest(written)
    if (
        digest is None
        or UNIX_SECONDS.fullmatch(timestamp) is None
        or headers.get(X_ALGORITHM, _ALGORITHM).lower() != _ALGORITHM
    ):
        return None
    return _Claim(timestamp, timestamp + b".", {digest: written.decode("ascii")})


def _standard_claim(headers: Mapping[bytes, bytes]) -> _Claim | None:
    identifier = headers.get(WEBHOOK_ID, b"")
    timestamp = headers.get(WEBHOOK_TIMESTAMP, b"")
    signatures = v1_signatures(headers.get(WEBHOOK_SIGNATURE, b""))
    if not identifier or not signatures or UNIX_SECONDS.fullmatch(timestamp) is None:
        return None
    return _Claim(timestamp, identifier + b"." + timestamp + b".", signatures)
