"""Messages of Amazon SNS: parsed, and trusted only if Amazon signed them for one of our topics.

::

    SnsError (ValueError)
    ├── SnsMalformed              not an SNS message, or not one that SES would send
    └── SnsRefused                an SNS message, but not for us, too old, or not from Amazon
    CertificateUnavailable        the certificate cannot be fetched; SNS will deliver the message again

No error quotes a message: bounces contain addresses.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import parse_qs, urlsplit

import httpx
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from holdfast import HoldfastError

from .sns_chain import is_trusted, trusted_roots

TOLERANCE: Final = timedelta(hours=1)

# Only real regions, such as us-east-1, ap-southeast-2 and us-gov-west-1: other names there may be anybody's.
_WHERE: Final = r"(?:north|south|east|west|central|northeast|northwest|southeast|southwest)-[1-9]"
_HOST: Final = re.compile(
    rf"sns\.(?:(?!cn-)[a-z]{{2}}(?:-gov|-iso[a-z]?)?-{_WHERE}\.amazonaws\.com|cn-{_WHERE}\.amazonaws\.com\.cn)"
)
_CERTIFICATE_PATH: Final = re.compile(r"/[A-Za-z0-9._-]+\.pem")
_TOPIC: Final = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_.-]{1,256}")
_MAX_FIELD: Final = 300_000
_MAX_CERTIFICATE: Final = 64 * 1024
_CACHE_SIZE: Final = 8
_PEM: Final = b"-----BEGIN CERTIFICATE-----"
_DER: Final = b"\x30\x82"
"""How a certificate in binary form begins: so authorities publish their own."""
_HASHES: Final[Mapping[str, type[hashes.SHA1 | hashes.SHA256]]] = {"1": hashes.SHA1, "2": hashes.SHA256}


class SnsError(ValueError):
    """The message cannot be used."""


class SnsMalformed(SnsError):
    """The message is not an SNS message."""


class SnsRefused(SnsError):
    """The message is not trusted."""


class CertificateUnavailable(HoldfastError):
    """The certificate that signs SNS messages cannot be fetched now."""


class SnsType(StrEnum):
    """The type of an SNS message."""

    NOTIFICATION = "Notification"
    SUBSCRIPTION_CONFIRMATION = "SubscriptionConfirmation"
    UNSUBSCRIBE_CONFIRMATION = "UnsubscribeConfirmation"


@dataclass(frozen=True, slots=True)
class SnsMessage:
    """An SNS message, not verified. :class:`SnsVerifier` decides whether it is trusted."""

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
        """The URL that confirms the subscription. It belongs to Amazon and to this topic.

        Raises :class:`SnsRefused` for any other URL, and for a message that needs no confirmation.
        """
        if self.type is not SnsType.SUBSCRIPTION_CONFIRMATION or self.subscribe_url is None:
            message = "The message needs no confirmation."
            raise SnsRefused(message)
        query = parse_qs(_amazon_url(self.subscribe_url, "SubscribeURL").query)
        if query.get("Action") != ["ConfirmSubscription"] or query.get("TopicArn") != [self.topic]:
            message = "SubscribeURL does not confirm a subscription to the message's topic."
            raise SnsRefused(message)
        return self.subscribe_url


def parse_sns(body: object) -> SnsMessage:
    """Parse an SNS message. Raises :class:`SnsMalformed`, which names the wrong field."""
    if not isinstance(body, Mapping):
        message = "An SNS message is a JSON object."
        raise SnsMalformed(message)
    kind = _text(body, "Type")
    if kind not in set(SnsType):
        message = "Type is not a type of SNS."
        raise SnsMalformed(message)
    notification = kind == SnsType.NOTIFICATION
    topic, version = _text(body, "TopicArn"), _text(body, "SignatureVersion")
    if not _TOPIC.fullmatch(topic):
        message = "TopicArn is not the name of a topic."
        raise SnsMalformed(message)
    if version not in _HASHES:
        message = "SignatureVersion must be 1 or 2."
        raise SnsMalformed(message)
    return SnsMessage(
        type=SnsType(kind),
        message_id=_text(body, "MessageId"),
        topic=topic,
        timestamp=_time(_text(body, "Timestamp")),
        message=_text(body, "Message"),
        certificate_url=_text(body, "SigningCertURL"),
        signature_version=version,
        signature=_signature(_text(body, "Signature")),
        signed=_signed_text(body, notification=notification),
        subscribe_url=None if notification else _text(body, "SubscribeURL"),
    )


class CertificateSource(Protocol):
    """Fetches certificates. The caller has checked the URL."""

    async def fetch(self, url: str) -> bytes:
        """The certificate: PEM, or DER from an authority. Raises :class:`CertificateUnavailable`."""
        ...


def issued_to_sns(certificate: x509.Certificate) -> bool:
    """Whether the certificate is of Amazon SNS, by its names."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    issuers = certificate.issuer.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return (
        len(names) == 1
        and re.fullmatch(r"sns(?:\.[a-z0-9-]+)?\.amazonaws\.com(?:\.cn)?", str(names[0].value)) is not None
        # Amazon's own certificate authority, and the authority that Amazon uses in China.
        and any(issuer.value in {"Amazon", "DigiCert Inc", "DigiCert, Inc."} for issuer in issuers)
    )


class SnsVerifier:
    """Trusts messages of ``topics`` that are recent and signed. Without topics, it trusts no message.

    The cheap checks come first: a message of a foreign topic causes no download of a certificate. ``roots`` are the
    authorities that may have issued the certificate of SNS; None: those of Amazon that this machine trusts.
    """

    def __init__(
        self,
        certificates: CertificateSource,
        topics: frozenset[str],
        *,
        roots: Sequence[x509.Certificate] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._certificates = certificates
        self._topics = topics
        self._roots = roots
        self._now = now

    async def verify(self, message: SnsMessage) -> None:
        """Return if the message is trusted. Raises :class:`SnsRefused` or :class:`CertificateUnavailable`."""
        now = self._now()
        if message.topic not in self._topics:
            reason = "The topic is not one of ours."
            raise SnsRefused(reason)
        if abs(now - message.timestamp) > TOLERANCE:
            reason = "The message is older than one hour, or from the future."
            raise SnsRefused(reason)
        parts = _amazon_url(message.certificate_url, "SigningCertURL")
        if parts.query or not _CERTIFICATE_PATH.fullmatch(parts.path):
            reason = "SigningCertURL is not the address of a certificate."
            raise SnsRefused(reason)
        key = await self._key(await self._certificates.fetch(message.certificate_url), now)
        try:
            # SNS signs version 1 with SHA-1. For SHA-256, set SignatureVersion 2 on the topic.
            digest = _HASHES[message.signature_version]()
            key.verify(message.signature, message.signed, padding.PKCS1v15(), digest)
        except InvalidSignature:
            reason = "The signature is not that of the message."
            raise SnsRefused(reason) from None

    async def _key(self, pem: bytes, now: datetime) -> rsa.RSAPublicKey:
        try:
            chain = x509.load_pem_x509_certificates(pem)
            key = chain[0].public_key()
        except ValueError:
            reason = "There is no certificate at SigningCertURL."
            raise SnsRefused(reason) from None
        roots = trusted_roots() if self._roots is None else self._roots
        if (
            not isinstance(key, rsa.RSAPublicKey)
            or not issued_to_sns(chain[0])
            or not await is_trusted(chain, _host_of(chain[0]), roots, now, self._certificates.fetch)
        ):
            reason = "The certificate is not a valid one of Amazon SNS."
            raise SnsRefused(reason)
        return key


def _host_of(certificate: x509.Certificate) -> str:
    return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


# --- parsing --------------------------------------------------------------------------------------------------------


class _Url(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def query(self) -> str: ...


def _amazon_url(text: str, name: str) -> _Url:
    """An https URL of SNS, without anything that could lead to another host."""
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    # The host exactly as written: no port, no user, no other spelling.
    plain = re.fullmatch(r"[!-~]+", text) is not None and "\\" not in text
    if not plain or parts.scheme != "https" or parts.fragment or not _HOST.fullmatch(parts.netloc):
        message = f"{name} is not an address of Amazon SNS."
        raise SnsRefused(message)
    return parts


def _text(body: Mapping[object, object], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_FIELD:
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


def _signed_text(body: Mapping[object, object], *, notification: bool) -> bytes:
    """The fields that SNS signs, in the order of SNS. Each name and each value is one line."""
    if notification:
        subject = ("Subject",) if body.get("Subject") is not None else ()
        names: tuple[str, ...] = ("Message", "MessageId", *subject, "Timestamp", "TopicArn", "Type")
    else:
        names = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
    try:
        return "".join(f"{name}\n{_text(body, name)}\n" for name in names).encode()
    except UnicodeEncodeError:
        message = "The message holds a half character."
        raise SnsMalformed(message) from None


def _is_certificate(content: bytes | bytearray) -> bool:
    return _PEM in content or content.startswith(_DER)


class HttpCertificates:
    """Fetches certificates by HTTP and caches them. It does not check the URL: the caller must.

    It follows no redirects and uses no proxy settings of the environment. Answers are limited in size and time.
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=10)) -> None:
        self._timeout = timeout.total_seconds()
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._lock = asyncio.Lock()

    async def fetch(self, url: str) -> bytes:
        """The bytes at the URL, at most 64 KiB. Raises :class:`CertificateUnavailable`."""
        async with self._lock:
            if url not in self._cache:
                self._cache[url] = await self._get(url)
            self._cache.move_to_end(url)
            while len(self._cache) > _CACHE_SIZE:
                self._cache.popitem(last=False)
            return self._cache[url]

    async def _get(self, url: str) -> bytes:
        try:
            async with (
                asyncio.timeout(self._timeout),
                httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=self._timeout) as client,
                client.stream("GET", url, headers={"accept-encoding": "identity"}) as response,
            ):
                content = bytearray()
                async for piece in response.aiter_raw():
                    content += piece
                    if len(content) > _MAX_CERTIFICATE:
                        break
        except (TimeoutError, httpx.HTTPError) as error:
            message = f"The certificate of SNS cannot be fetched ({type(error).__name__})."
            raise CertificateUnavailable(message) from None
        if response.status_code != HTTPStatus.OK or len(content) > _MAX_CERTIFICATE or not _is_certificate(content):
            message = f"There is no certificate at the URL of SNS (status {response.status_code})."
            raise CertificateUnavailable(message)
        return bytes(content)
