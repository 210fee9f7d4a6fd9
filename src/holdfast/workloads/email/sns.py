"""Messages of Amazon SNS: read, and believed only when Amazon signed them for one of our topics.

::

    SnsError (ValueError)
    ├── SnsMalformed              it is not an SNS message, or not one that SES would send
    └── SnsRefused                it is one, but not for us, not now, or not from Amazon
    CertificateUnavailable        Amazon's certificate cannot be fetched; SNS will deliver the message again

Nothing here quotes a message: bounces are full of addresses.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from holdfast.contracts.errors import HoldfastError

TOLERANCE: Final = timedelta(hours=1)

_HOST: Final = re.compile(r"sns\.[a-z0-9-]{3,32}\.amazonaws\.com(?:\.cn)?")
_CERTIFICATE_PATH: Final = re.compile(r"/[A-Za-z0-9._-]+\.pem")
_TOPIC: Final = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_.-]{1,256}")
_LONGEST_FIELD: Final = 300_000
_HASHES: Final[Mapping[str, type[hashes.SHA1 | hashes.SHA256]]] = {"1": hashes.SHA1, "2": hashes.SHA256}


class SnsError(ValueError):
    """The message cannot be used."""


class SnsMalformed(SnsError):
    """It is not an SNS message."""


class SnsRefused(SnsError):
    """The message is not to be believed."""


class CertificateUnavailable(HoldfastError):
    """The certificate that signs SNS messages cannot be fetched now."""


class SnsType(StrEnum):
    """What an SNS message is about."""

    NOTIFICATION = "Notification"
    SUBSCRIPTION_CONFIRMATION = "SubscriptionConfirmation"
    UNSUBSCRIBE_CONFIRMATION = "UnsubscribeConfirmation"


@dataclass(frozen=True, slots=True)
class SnsMessage:
    """An SNS message, as it was sent. Only :class:`SnsVerifier` can tell whether to believe it."""

    type: SnsType
    message_id: str
    topic: str
    timestamp: datetime
    message: str = field(repr=False)
    certificate_url: str
    signature_version: str
    signature: bytes = field(repr=False)
    signed: bytes = field(repr=False)
    subscribe_url: str | None = field(default=None, repr=False)

    @property
    def confirm_url(self) -> str:
        """The address whose fetching confirms the subscription: at Amazon, and for this topic.

        Raises :class:`SnsRefused` for any other, and for a message that asks for no confirmation.
        """
        if self.type is not SnsType.SUBSCRIPTION_CONFIRMATION or self.subscribe_url is None:
            message = "The message asks for no confirmation."
            raise SnsRefused(message)
        query = parse_qs(_amazon_url(self.subscribe_url, "SubscribeURL").query)
        if query.get("Action") != ["ConfirmSubscription"] or query.get("TopicArn") != [self.topic]:
            message = "SubscribeURL does not confirm a subscription to the message's topic."
            raise SnsRefused(message)
        return self.subscribe_url


def parse_sns(document: object) -> SnsMessage:
    """Read an SNS message. Raises :class:`SnsMalformed`, which names the field at fault."""
    if not isinstance(document, Mapping):
        message = "An SNS message is a JSON object."
        raise SnsMalformed(message)
    kind = _text(document, "Type")
    if kind not in set(SnsType):
        message = "Type is none that SNS has."
        raise SnsMalformed(message)
    notification = kind == SnsType.NOTIFICATION
    topic, version = _text(document, "TopicArn"), _text(document, "SignatureVersion")
    if not _TOPIC.fullmatch(topic):
        message = "TopicArn is not the name of a topic."
        raise SnsMalformed(message)
    if version not in _HASHES:
        message = "SignatureVersion must be 1 or 2."
        raise SnsMalformed(message)
    return SnsMessage(
        type=SnsType(kind),
        message_id=_text(document, "MessageId"),
        topic=topic,
        timestamp=_time(_text(document, "Timestamp")),
        message=_text(document, "Message"),
        certificate_url=_text(document, "SigningCertURL"),
        signature_version=version,
        signature=_signature(_text(document, "Signature")),
        signed=_signed_text(document, notification=notification),
        subscribe_url=None if notification else _text(document, "SubscribeURL"),
    )


class CertificateSource(Protocol):
    """Where certificates come from. The address was vetted before."""

    async def fetch(self, url: str) -> bytes:
        """The PEM of the certificate. Raises :class:`CertificateUnavailable`."""
        ...


def issued_to_sns(certificate: x509.Certificate) -> bool:
    """Whether the certificate says that it is Amazon's, for SNS."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    issuers = certificate.issuer.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return (
        len(names) == 1
        and re.fullmatch(r"sns(?:\.[a-z0-9-]+)?\.amazonaws\.com(?:\.cn)?", str(names[0].value)) is not None
        # Amazon's own authority, and the one that it uses in China.
        and any(issuer.value in {"Amazon", "DigiCert Inc", "DigiCert, Inc."} for issuer in issuers)
    )


class SnsVerifier:
    """Believes a message of one of ``topics`` that is fresh and signed. With no topics it believes nothing.

    What costs nothing is checked first: an external producer's message fetches no certificate.
    """

    def __init__(
        self,
        certificates: CertificateSource,
        topics: frozenset[str],
        *,
        trusted: Callable[[x509.Certificate], bool] = issued_to_sns,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._certificates = certificates
        self._topics = topics
        self._trusted = trusted
        self._now = now

    async def verify(self, message: SnsMessage) -> None:
        """Return when the message is to be believed. Raises :class:`SnsRefused` or :class:`CertificateUnavailable`."""
        now = self._now()
        if message.topic not in self._topics:
            reason = "The topic is not one of ours."
            raise SnsRefused(reason)
        if abs(now - message.timestamp) > TOLERANCE:
            reason = "The message is not of the last hour."
            raise SnsRefused(reason)
        parts = _amazon_url(message.certificate_url, "SigningCertURL")
        if parts.query or not _CERTIFICATE_PATH.fullmatch(parts.path):
            reason = "SigningCertURL is not the address of a certificate."
            raise SnsRefused(reason)
        key = self._key(await self._certificates.fetch(message.certificate_url), now)
        try:
            # SNS signs version 1 with SHA-1; whoever wants better sets SignatureVersion 2 on the topic.
            digest = _HASHES[message.signature_version]()
            key.verify(message.signature, message.signed, padding.PKCS1v15(), digest)
        except InvalidSignature:
            reason = "The signature is not that of the message."
            raise SnsRefused(reason) from None

    def _key(self, pem: bytes, now: datetime) -> rsa.RSAPublicKey:
        try:
            certificate = x509.load_pem_x509_certificate(pem)
            key = certificate.public_key()
        except ValueError:
            reason = "There is no certificate at SigningCertURL."
            raise SnsRefused(reason) from None
        valid = certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
        if not valid or not isinstance(key, rsa.RSAPublicKey) or not self._trusted(certificate):
            reason = "The certificate is not a valid one of Amazon SNS."
            raise SnsRefused(reason)
        return key


# --- reading --------------------------------------------------------------------------------------------------------


class _Url(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def query(self) -> str: ...


def _amazon_url(text: str, name: str) -> _Url:
    """An https address of SNS, with nothing in it that could lead elsewhere."""
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    # The host as it is written: no port, no user, no other spelling.
    plain = re.fullmatch(r"[!-~]+", text) is not None and "\\" not in text
    if not plain or parts.scheme != "https" or parts.fragment or not _HOST.fullmatch(parts.netloc):
        message = f"{name} is not an address of Amazon SNS."
        raise SnsRefused(message)
    return parts


def _text(document: Mapping[object, object], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_FIELD:
        message = f"{name} must be a text that is not empty."
        raise SnsMalformed(message)
    return value


def _time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        message = "Timestamp must be an ISO 8601 time with its zone."
        raise SnsMalformed(message)
    return moment


def _signature(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        message = "Signature must be base64."
        raise SnsMalformed(message) from None


def _signed_text(document: Mapping[object, object], *, notification: bool) -> bytes:
    """The fields that SNS signs, in its order, each with its name on a line of its own."""
    if notification:
        subject = ("Subject",) if document.get("Subject") is not None else ()
        names: tuple[str, ...] = ("Message", "MessageId", *subject, "Timestamp", "TopicArn", "Type")
    else:
        names = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
    try:
        return "".join(f"{name}\n{_text(document, name)}\n" for name in names).encode()
    except UnicodeEncodeError:
        message = "The message holds a half character."
        raise SnsMalformed(message) from None
