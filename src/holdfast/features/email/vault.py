"""Protection of personal data: fingerprints that identify a person, and sealed values.

A plain hash of a CPF protects nothing: there are only 10^9 CPFs to try. A fingerprint is an HMAC with the pepper, which
is in the configuration only. A sealed value is encrypted with AES-256-GCM and a named key. Keep old keys in the list
until all values have been resealed.
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast import ConfigurationError, HoldfastError

KEY_BYTES: Final = 32
MIN_PEPPER_BYTES: Final = 32

_VERSION: Final = "v1"
_NONCE_BYTES: Final = 12
_MIN_DISTINCT_BYTES: Final = 10
_KEY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")


class SealBroken(HoldfastError):
    """A sealed value cannot be opened: it was changed, belongs to another record, or its key is missing."""


class Vault:
    """Makes fingerprints and seals values. ``current`` is the name of the key that seals; the other keys only open.

    Raises :class:`ConfigurationError` for weak keys. Its ``repr`` shows no secrets.
    """

    def __init__(self, pepper: bytes, keys: Mapping[str, bytes], current: str) -> None:
        _check(pepper, keys, current)
        self._pepper = pepper
        self._keys = {name: AESGCM(key) for name, key in keys.items()}
        self._current = current

    def __repr__(self) -> str:
        return "Vault(***)"

    # --- fingerprints ---------------------------------------------------------------------------------------

    def fingerprint(self, text: str, purpose: str) -> str:
        """64 hexadecimal characters, equal for equal texts, and unrelated between purposes (HMAC-SHA-256)."""
        # Each purpose has its own key, so that texts of two purposes never have the same fingerprint.
        key = hmac.digest(self._pepper, f"holdfast/fingerprint/{purpose}".encode(), "sha256")
        return hmac.digest(key, text.encode(), "sha256").hex()

    # --- seals ----------------------------------------------------------------------------------------------

    def seal(self, plaintext: str, *, context: str) -> str:
        """The sealed text. It opens only with this context: ``v1.<key id>.<base64url of nonce and ciphertext>``.

        The context names the field of the one record that the value belongs to, such as
        ``recipients/<companyId>/<recipientId>/cpfCnpj``. In another record, the value does not open.
        """
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._keys[self._current].encrypt(nonce, plaintext.encode(), _associated_data(self._current, context))
        return f"{_VERSION}.{self._current}.{_encode(nonce + sealed)}"

    def open(self, sealed: str, *, context: str) -> str:
        """The text that was sealed with this context. Raises :class:`SealBroken`, without the text."""
        name, content = _parts(sealed)
        key = self._keys.get(name)
        if key is None:
            raise SealBroken
        try:
            plaintext = key.decrypt(content[:_NONCE_BYTES], content[_NONCE_BYTES:], _associated_data(name, context))
        except (InvalidTag, ValueError):  # a ValueError: the value is too short
            raise SealBroken from None
        return plaintext.decode()

    def needs_rotation(self, sealed: str) -> bool:
        """Whether the value was sealed with an older key."""
        name, _ = _parts(sealed)
        return name != self._current

    def reseal(self, sealed: str, *, context: str) -> str:
        """The same value under the current key."""
        return self.seal(self.open(sealed, context=context), context=context)


def _associated_data(name: str, context: str) -> bytes:
    # A key id holds no dot, so two different pairs never give the same bytes.
    return f"{_VERSION}.{name}.{context}".encode()


def _encode(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _parts(sealed: str) -> tuple[str, bytes]:
    version, _, rest = sealed.partition(".")
    name, _, text = rest.partition(".")
    if version != _VERSION or not _KEY_ID.fullmatch(name):
        raise SealBroken
    try:
        content = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except ValueError:
        raise SealBroken from None
    if _encode(content) != text:  # refuse a second encoding of the same value
        raise SealBroken
    return name, content


def _check(pepper: bytes, keys: Mapping[str, bytes], current: str) -> None:
    """Refuse weak keys. Errors name the position of a key, not its name: a secret may be in the place of the name."""
    if not keys:
        message = "There is no key to seal personal data."
        raise ConfigurationError(message)
    if current not in keys:
        message = "The current key is not in the list of keys."
        raise ConfigurationError(message)
    if len(pepper) < MIN_PEPPER_BYTES or _is_repetitive(pepper):
        message = f"The pepper must be at least {MIN_PEPPER_BYTES} random characters."
        raise ConfigurationError(message)
    for position, (name, key) in enumerate(keys.items(), start=1):
        if not _KEY_ID.fullmatch(name):
            message = f"Key {position} needs a name of 1 to 32 letters, digits, - or _."
            raise ConfigurationError(message)
        if len(key) != KEY_BYTES or _is_repetitive(key):
            message = f"Key {position} must be {KEY_BYTES} random bytes."
            raise ConfigurationError(message)
        if pepper in {key, b64encode(key)}:
            message = f"Key {position} is the same as the pepper; each needs a secret of its own."
            raise ConfigurationError(message)


def _is_repetitive(secret: bytes) -> bool:
    return len(set(secret)) < _MIN_DISTINCT_BYTES
