"""SNS messages: signed with a real key, whose certificate comes from a real HTTP server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, NameOID

from holdfast.features.email.notifications import ses_feedback
from holdfast.features.email.sns import (
    CertificateUnavailable,
    HttpCertificates,
    SnsError,
    SnsMalformed,
    SnsRefused,
    SnsVerifier,
    issued_to_sns,
    parse_sns,
)
from holdfast.features.email.sns_chain import trusted_roots

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
TOPIC = "arn:aws:sns:sa-east-1:123456789012:ses-events"
CERTIFICATE = "https://sns.sa-east-1.amazonaws.com/SimpleNotificationService-0123abcd.pem"
SUBSCRIBE = f"https://sns.sa-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=2336412f"
OUTBOX = "123e4567-e89b-12d3-a456-426614174000"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


AUTHORITY_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ISSUER_URL = "http://crt.r2m01.amazontrust.com/r2m01.cer"


def built(subject, issuer, key, signing_key, extensions, *, start, days) -> x509.Certificate:
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=days))
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    for extension, critical in extensions:
        made = made.add_extension(extension, critical=critical)
    return made.sign(signing_key, hashes.SHA256())


def authority(key, name, issuer_name, signing_key) -> x509.Certificate:
    """The certificate of an authority."""
    enciphering = ("key_encipherment", "data_encipherment", "encipher_only", "decipher_only")
    usage = dict.fromkeys(("content_commitment", "key_agreement", *enciphering), False)
    extensions = [
        (x509.BasicConstraints(ca=True, path_length=None), True),
        (x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
    ]
    return built(name, issuer_name, key, signing_key, extensions, start=NOW - timedelta(days=1000), days=3650)


def named(organization, common) -> x509.Name:
    attributes = {NameOID.ORGANIZATION_NAME: organization, NameOID.COMMON_NAME: common}
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes.items()])


ROOT_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ROOT_NAME = named("Amazon", "Amazon Root CA 1")
ROOT = authority(ROOT_KEY, ROOT_NAME, ROOT_NAME, ROOT_KEY)
MIDDLE = authority(AUTHORITY_KEY, named("Amazon", "Amazon RSA 2048 M01"), ROOT_NAME, ROOT_KEY)


def as_pem(*certificates) -> bytes:
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def certificate(
    key=KEY,
    *,
    name="sns.amazonaws.com",
    issuer="Amazon",
    start=NOW - timedelta(days=1),
    days=365,
    signing_key=AUTHORITY_KEY,
    issuer_url=None,
) -> bytes:
    """The certificate of SNS, and of its authority unless ``issuer_url`` says where that is."""
    extensions = [
        (x509.SubjectAlternativeName([x509.DNSName(name)]), False),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
    ]
    if issuer_url is not None:
        place = x509.AccessDescription(
            AuthorityInformationAccessOID.CA_ISSUERS, x509.UniformResourceIdentifier(issuer_url)
        )
        extensions.append((x509.AuthorityInformationAccess([place]), False))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    above = named(issuer, "Amazon RSA 2048 M01")
    leaf = built(subject, above, key, signing_key, extensions, start=start, days=days)
    return as_pem(leaf) if issuer_url is not None else as_pem(leaf, MIDDLE)


PEM = certificate()


def sign(message: dict, key=KEY) -> dict:
    """Sign as Amazon documents it. It is independent of the program, so that it can find errors there."""
    if message["Type"] == "Notification":
        fields = ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"]
    else:
        fields = ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
    text = "".join(f"{field}\n{message[field]}\n" for field in fields if field in message)
    digest = {"1": hashes.SHA1, "2": hashes.SHA256}[message["SignatureVersion"]]()
    signature = key.sign(text.encode(), padding.PKCS1v15(), digest)
    return message | {"Signature": base64.b64encode(signature).decode()}


def notification(content: object = "hello", **changes) -> dict:
    message = {
        "Type": "Notification",
        "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
        "TopicArn": TOPIC,
        "Subject": "Amazon SES — évent",
        "Message": content if isinstance(content, str) else json.dumps(content),
        "Timestamp": NOW.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "SignatureVersion": "2",
        "SigningCertURL": CERTIFICATE,
        "UnsubscribeURL": "https://sns.sa-east-1.amazonaws.com/?Action=Unsubscribe",
    }
    return {name: value for name, value in (message | changes).items() if value is not None}


def confirmation(**changes) -> dict:
    values = {"Type": "SubscriptionConfirmation", "Subject": None, "Token": "2336412f", "SubscribeURL": SUBSCRIBE}
    return notification(**(values | changes))


class Amazon:
    """An HTTP server with certificates. As a source, it is the real fetcher with the address of this server."""

    def __init__(self, body: bytes = PEM, status: int = 200, *, hangs: bool = False) -> None:
        self.requests: list[str] = []
        self.body = body
        self.status = status
        self._hangs = hangs
        self._port = 0
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._fetcher = HttpCertificates(timeout=timedelta(seconds=1 if hangs else 10))

    async def fetch(self, url: str) -> bytes:
        return await self._fetcher.fetch(f"http://127.0.0.1:{self._port}{urlsplit(url).path}")

    async def serve(self, reader, writer) -> None:
        self._tasks.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, EOFError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(head.split(" ")[1])
            if self._hangs:
                await self._over.wait()
            where = f"location: http://127.0.0.1:{self._port}/moved.pem\r\n" if self.status == 302 else ""
            start = f"HTTP/1.1 {self.status} Whatever\r\n{where}content-length: {len(self.body)}\r\n\r\n"
            writer.write(start.encode() + self.body)
            await writer.drain()
        writer.transport.abort()

    @asynccontextmanager
    async def listening(self):
        listener = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self._port = listener.sockets[0].getsockname()[1]
        async with listener:
            yield self
            self._over.set()
            await asyncio.gather(*self._tasks)


@pytest.fixture
async def amazon() -> AsyncIterator[Amazon]:
    async with Amazon().listening() as amazon:
        yield amazon


def verifier(source, topics=frozenset({TOPIC}), now=NOW, roots=(ROOT,)) -> SnsVerifier:
    return SnsVerifier(source, topics, now=lambda: now, roots=roots)


# --- what is trusted ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize(
    "message",
    [
        notification(),
        notification(Subject=None),
        notification("a\nb\r\n\n{}", Subject="Subject\nwith lines"),
        confirmation(),
        confirmation(Type="UnsubscribeConfirmation"),
    ],
    ids=["notification", "no subject", "odd text", "confirmation", "unsubscribed"],
)
async def test_a_signed_message_is_trusted(amazon, message, version):
    await verifier(amazon).verify(parse_sns(sign(message | {"SignatureVersion": version})))


@pytest.mark.parametrize("field", ["Message", "MessageId", "Subject", "Timestamp", "Type"])
async def test_a_changed_message_is_refused(amazon, field):
    changes = {"Timestamp": (NOW + timedelta(seconds=1)).isoformat(), "Type": "UnsubscribeConfirmation"}
    message = sign(notification()) | {field: changes.get(field, "changed"), "SubscribeURL": SUBSCRIBE, "Token": "t"}
    with pytest.raises(SnsRefused, match="signature"):
        await verifier(amazon).verify(parse_sns(message))


@pytest.mark.parametrize("field", ["SubscribeURL", "Token", "Message", "MessageId"])
async def test_a_changed_confirmation_is_refused(amazon, field):
    with pytest.raises(SnsRefused, match="signature"):
        await verifier(amazon).verify(parse_sns(sign(confirmation()) | {field: "changed"}))


async def test_an_added_subject_is_refused(amazon):
    with pytest.raises(SnsRefused, match="signature"):
        await verifier(amazon).verify(parse_sns(sign(notification(Subject=None)) | {"Subject": "added"}))


async def test_the_signature_of_another_key_is_refused(amazon):
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with pytest.raises(SnsRefused, match="signature"):
        await verifier(amazon).verify(parse_sns(sign(notification(), other)))


@pytest.mark.parametrize("topics", [frozenset(), frozenset({TOPIC + "2"}), frozenset({TOPIC[:-1]})])
async def test_only_our_topics_are_trusted_and_other_topics_fetch_nothing(amazon, topics):
    with pytest.raises(SnsRefused, match="topic"):
        await verifier(amazon, topics).verify(parse_sns(sign(notification())))
    assert amazon.requests == []


@pytest.mark.parametrize(
    ("age", "trusted"),
    [(59, True), (60, True), (61, False), (-60, True), (-61, False), (60 * 24, False)],
)
async def test_only_messages_of_the_last_hour_are_trusted(amazon, age, trusted):
    check = verifier(amazon, now=NOW + timedelta(minutes=age)).verify(parse_sns(sign(notification())))
    if trusted:
        await check
    else:
        with pytest.raises(SnsRefused, match="hour"):
            await check
        assert amazon.requests == []


# --- the certificate ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://sns.sa-east-1.amazonaws.com/a.pem",
        "https://sns.sa-east-1.amazonaws.com.evil.example/a.pem",
        "https://evil.example/sns.sa-east-1.amazonaws.com/a.pem",
        "https://sns.sa-east-1.amazonaws.com@evil.example/a.pem",
        "https://user@sns.sa-east-1.amazonaws.com/a.pem",
        "https://sns.sa-east-1.amazonaws.com:443/a.pem",
        "https://sns.sa-east-1.amazonaws.com:8443/a.pem",
        "https://sns.sa-east-1.amazonaws.com/a.pem?x=1",
        "https://sns.sa-east-1.amazonaws.com/a.pem#x",
        "https://sns.sa-east-1.amazonaws.com/a.crt",
        "https://sns.sa-east-1.amazonaws.com/",
        "https://sns.sa-east-1.amazonaws.com/../a.pem",
        "https://sns.sa-east-1.amazonaws.com/%2e/a.pem",
        "https://sns.amazonaws.com/a.pem",
        "https://sns.a.b.amazonaws.com/a.pem",
        "https://bucket.s3.amazonaws.com/a.pem",
        "https://sns.my-bucket.amazonaws.com/a.pem",
        "https://sns.us-east-1a.amazonaws.com/a.pem",
        "https://sns.us-east-1.amazonaws.com.cn/a.pem",
        "https://sns.cn-north-1.amazonaws.com/a.pem",
        "https://sns.sa-east-1.amazonaws.com\\@evil.example/a.pem",
        "https://sns.sa-east-1.amazonaws.com\n.evil.example/a.pem",
        "https://sns.sa-east-1.amazonaws.com./a.pem",
        "https://SNS.sa-east-1.amazonaws.com/a.pem",
        "https://[::1]/a.pem",
        "https://[/a.pem",
        "file:///a.pem",
        "nonsense",
    ],
)
async def test_a_certificate_from_another_host_is_not_fetched(amazon, url):
    with pytest.raises(SnsRefused, match="SigningCertURL"):
        await verifier(amazon).verify(parse_sns(sign(notification(SigningCertURL=url))))
    assert amazon.requests == []


async def test_certificates_of_china_are_fetched_too(amazon):
    url = "https://sns.cn-north-1.amazonaws.com.cn/SimpleNotificationService-1.pem"
    await verifier(amazon).verify(parse_sns(sign(notification(SigningCertURL=url))))
    assert amazon.requests == ["/SimpleNotificationService-1.pem"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(certificate(start=NOW - timedelta(days=400)), id="expired"),
        pytest.param(certificate(start=NOW + timedelta(minutes=1)), id="not yet valid"),
        pytest.param(certificate(name="evil.example"), id="another name"),
        pytest.param(certificate(name="sns.amazonaws.com.evil.example"), id="nearly the name"),
        pytest.param(certificate(issuer="Evil"), id="another issuer"),
        pytest.param(certificate(ec.generate_private_key(ec.SECP256R1())), id="no RSA key"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\nbm90aGluZw==\n-----END CERTIFICATE-----\n", id="broken"),
    ],
)
async def test_a_certificate_that_is_not_valid_for_amazon_is_refused(body):
    async with Amazon(body).listening() as amazon:
        with pytest.raises(SnsRefused, match="ertificate"):
            await verifier(amazon).verify(parse_sns(sign(notification())))


class Published(dict):
    """Certificates by their URL."""

    async def fetch(self, url: str) -> bytes:
        return self[url]


async def test_a_missing_authority_is_fetched_from_amazon():
    published = Published({CERTIFICATE: certificate(issuer_url=ISSUER_URL), ISSUER_URL: as_der(MIDDLE)})
    await verifier(published).verify(parse_sns(sign(notification())))
    published[ISSUER_URL] = b"nonsense"
    with pytest.raises(SnsRefused, match="valid one"):
        await verifier(published).verify(parse_sns(sign(notification())))


def as_der(made: x509.Certificate) -> bytes:
    return made.public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    "url",
    ["http://evil.example/a.cer", "http://crt.r2m01.amazontrust.com.evil.example/a.cer", "http://127.0.0.1/a.cer"],
)
async def test_an_authority_is_fetched_from_nowhere_else(url):
    published = Published({CERTIFICATE: certificate(issuer_url=url), url: as_der(MIDDLE)})
    with pytest.raises(SnsRefused, match="valid one"):
        await verifier(published).verify(parse_sns(sign(notification())))


@pytest.mark.parametrize(
    ("pem", "roots"),
    [
        pytest.param(certificate(), None, id="the roots of this machine"),
        pytest.param(certificate(), (), id="no root"),
        pytest.param(certificate(signing_key=KEY), (ROOT,), id="signed by somebody else"),
        pytest.param(certificate(issuer_url="http://crt.x.amazontrust.com/x.cer"), (ROOT,), id="no authority"),
    ],
)
async def test_the_names_alone_are_not_enough(pem, roots):
    """Anybody can write the names of Amazon into a certificate."""
    published = Published({CERTIFICATE: pem, "http://crt.x.amazontrust.com/x.cer": b"nonsense"})
    with pytest.raises(SnsRefused, match="valid one"):
        await verifier(published, roots=roots).verify(parse_sns(sign(notification())))


def test_this_machine_trusts_the_roots_of_amazon():
    names = {each.subject.rfc4514_string() for each in trusted_roots()}
    assert any("Amazon Root CA 1" in each for each in names)


def test_the_names_of_amazon_certificates_are_trusted():
    for name in ("sns.amazonaws.com", "sns.cn-north-1.amazonaws.com.cn"):
        assert issued_to_sns(x509.load_pem_x509_certificate(certificate(name=name)))


async def test_a_certificate_is_fetched_once(amazon):
    verifying = verifier(amazon)
    await asyncio.gather(*(verifying.verify(parse_sns(sign(notification(str(n))))) for n in range(5)))
    assert len(amazon.requests) == 1


@pytest.mark.parametrize(
    "trouble",
    [
        {"status": 503},
        {"status": 302},
        {"status": 404},
        {"body": b"<html>welcome to the hotel</html>"},
        {"body": PEM + b"x" * 100_000},
        {"hangs": True},
    ],
    ids=["503", "302", "404", "no certificate", "too large", "silence"],
)
async def test_a_certificate_that_cannot_be_fetched_is_fetched_again(trouble):
    async with Amazon(**trouble).listening() as amazon:
        verifying, message = verifier(amazon), parse_sns(sign(notification()))
        for _ in range(2):
            with pytest.raises(CertificateUnavailable):
                await verifying.verify(message)
        assert amazon.requests == ["/SimpleNotificationService-0123abcd.pem"] * 2


# --- confirming -----------------------------------------------------------------------------------------------------


def test_a_subscription_is_confirmed_at_amazon():
    assert parse_sns(sign(confirmation())).confirm_url == SUBSCRIBE


@pytest.mark.parametrize(
    "url",
    [
        SUBSCRIBE.replace("https:", "http:"),
        SUBSCRIBE.replace("amazonaws.com", "evil.example"),
        SUBSCRIBE.replace("sns.", "user@sns."),
        SUBSCRIBE.replace("amazonaws.com", "amazonaws.com:444"),
        SUBSCRIBE.replace("ConfirmSubscription", "DeleteTopic"),
        SUBSCRIBE.replace(TOPIC, TOPIC + "2"),
        SUBSCRIBE + "#x",
        SUBSCRIBE + "&Action=DeleteTopic",
    ],
)
def test_a_subscription_is_confirmed_nowhere_else(url):
    with pytest.raises(SnsRefused):
        _ = parse_sns(sign(confirmation(SubscribeURL=url))).confirm_url


@pytest.mark.parametrize("message", [notification(), confirmation(Type="UnsubscribeConfirmation")])
def test_other_messages_need_no_confirmation(message):
    with pytest.raises(SnsRefused):
        _ = parse_sns(sign(message)).confirm_url


# --- what is malformed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Type", None),
        ("Type", "Other"),
        ("Type", 7),
        ("MessageId", None),
        ("TopicArn", None),
        ("TopicArn", "arn:aws:s3:::bucket"),
        ("TopicArn", TOPIC + "\nx"),
        ("Message", None),
        ("Message", {"a": 1}),
        ("Message", "x" * 400_000),
        ("Message", "\ud800"),
        ("Subject", 3),
        ("Timestamp", None),
        ("Timestamp", "yesterday"),
        ("Timestamp", "2026-11-16T12:00:00"),
        ("SignatureVersion", None),
        ("SignatureVersion", "3"),
        ("SignatureVersion", 1),
        ("Signature", None),
        ("Signature", "not base64!"),
        ("Signature", "ç"),
        ("SigningCertURL", None),
    ],
)
def test_a_field_that_is_missing_or_wrong_is_named(field, value):
    message = {name: text for name, text in (sign(notification()) | {field: value}).items() if text is not None}
    with pytest.raises(SnsMalformed) as caught:
        parse_sns(message)
    assert field in str(caught.value) or "half character" in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("field", ["SubscribeURL", "Token"])
def test_a_confirmation_without_its_own_fields_is_malformed(field):
    message = sign(confirmation())
    del message[field]
    with pytest.raises(SnsMalformed, match=field):
        parse_sns(message)


@pytest.mark.parametrize("message", [None, [], "text", 3, {}, {1: 2}])
def test_a_body_that_is_not_a_message_is_malformed(message):
    with pytest.raises(SnsMalformed):
        parse_sns(message)


# --- feedback -------------------------------------------------------------------------------------------------------

MAIL = {
    "messageId": "0100018f-1234-000000",
    "timestamp": "2026-11-16T11:59:00.000Z",
    "source": "billing@sender.example",
    "commonHeaders": {"messageId": f"<{OUTBOX}@sender.example>", "subject": "Hi"},
}


def bounce(kind="Permanent", name="notificationType", mail=MAIL, **changes) -> dict:
    details = {
        "bounceType": kind,
        "bounceSubType": "General",
        "bouncedRecipients": [
            {
                "emailAddress": "maria@example.com",
                "status": "5.1.1",
                "diagnosticCode": "smtp; 550 maria@example.com unknown",
            }
        ],
        "feedbackId": "f",
    }
    return {name: "Bounce", "bounce": details | changes, "mail": mail}


def complaint(name="notificationType", **changes) -> dict:
    details = {"complainedRecipients": [{"emailAddress": "maria@example.com"}], "complaintFeedbackType": "abuse"}
    return {name: "Complaint", "complaint": details | changes, "mail": MAIL}


def feedback(event: object):
    return ses_feedback(parse_sns(sign(notification(event))))


@pytest.mark.parametrize("name", ["notificationType", "eventType"])
@pytest.mark.parametrize(("kind", "permanent"), [("Permanent", True), ("Transient", False), ("Undetermined", False)])
def test_a_bounce_is_read_in_both_shapes(name, kind, permanent):
    [found] = feedback(bounce(kind, name))
    assert (found.address, found.kind, found.permanent) == ("maria@example.com", "bounce", permanent)
    assert (found.message_id, found.outbox_id) == ("0100018f-1234-000000", OUTBOX)
    assert found.detail == f"{kind} General 5.1.1"


@pytest.mark.parametrize("name", ["notificationType", "eventType"])
def test_a_complaint_is_read_in_both_shapes(name):
    [found] = feedback(complaint(name))
    assert (found.address, found.kind, found.permanent) == ("maria@example.com", "complaint", True)
    assert found.detail == "Complaint abuse"


def test_a_not_spam_report_does_not_suppress():
    assert [found.permanent for found in feedback(complaint(complaintFeedbackType="not-spam"))] == [False]


def test_every_recipient_of_a_bounce_is_reported():
    addresses = ["a@example.com", "B <b@example.com>", "<c@example.com>"]
    found = feedback(bounce(bouncedRecipients=[{"emailAddress": address} for address in addresses]))
    assert [each.address for each in found] == ["a@example.com", "b@example.com", "c@example.com"]


def test_the_outbox_id_is_found_in_the_headers_too():
    mail = {"headers": [{"name": "Subject", "value": "x"}, {"name": "message-ID", "value": f" <{OUTBOX}@a.b>"}]}
    assert [found.outbox_id for found in feedback(bounce(mail=mail))] == [OUTBOX]


@pytest.mark.parametrize(
    "mail", [None, {}, {"headers": 3}, {"headers": [3]}, {"commonHeaders": {"messageId": "<x@y>"}}, {"messageId": 3}]
)
def test_feedback_without_our_message_id_is_still_read(mail):
    [found] = feedback(bounce(mail=mail))
    assert (found.message_id, found.outbox_id) == (None, None)


@pytest.mark.parametrize(
    "event",
    [
        {"notificationType": "Delivery", "delivery": {}},
        {"eventType": "Open"},
        {"notificationType": "AmazonSnsSubscriptionSucceeded", "message": "You have successfully subscribed"},
        "Successfully validated SNS topic for Amazon SES event publishing.",
    ],
)
def test_other_events_are_not_feedback(event):
    assert feedback(event) == []


def test_a_confirmation_is_not_feedback():
    assert ses_feedback(parse_sns(sign(confirmation()))) == []


@pytest.mark.parametrize(
    "event",
    [
        "not JSON",
        "[" * 100_000,
        "[]",
        "3",
        {},
        {"notificationType": 3},
        {"notificationType": "Bounce"},
        {"notificationType": "Bounce", "bounce": []},
        bounce(kind=None),
        bounce(bouncedRecipients=None),
        bounce(bouncedRecipients=["maria@example.com"]),
        bounce(bouncedRecipients=[{}]),
        bounce(bouncedRecipients=[{"emailAddress": "nobody"}]),
        bounce(bouncedRecipients=[{"emailAddress": "\ud800@example.com"}]),
        complaint(complainedRecipients={"a": 1}),
        {"eventType": "Complaint", "complaint": None},
    ],
)
def test_feedback_that_ses_does_not_send_is_malformed(event):
    with pytest.raises(SnsError) as caught:
        feedback(event)
    assert isinstance(caught.value, ValueError)
    assert "maria" not in str(caught.value)


def test_the_repr_of_feedback_shows_no_address():
    message = parse_sns(sign(notification(bounce())))
    event = bounce(
        bounceSubType="maria@example.com",
        bouncedRecipients=[{"emailAddress": "maria@example.com", "status": "maria@example.com"}],
    )
    for found in (*ses_feedback(message), *feedback(event)):
        assert "maria" not in repr(found)
        assert "maria" not in found.detail
    assert "maria" not in repr(message)
