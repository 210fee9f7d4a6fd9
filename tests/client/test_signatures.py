"""``verify_webhook`` and ``sign`` against the reference implementation of Standard Webhooks."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook as Reference

from holdfast.client import InvalidSignature, sign, verify_webhook
from holdfast.webhooks import signed_headers, signing_key

SECRET = "whsec_" + base64.b64encode(bytes(range(24))).decode()
FORMER = "whsec_" + base64.b64encode(bytes(range(50, 74))).decode()
BODY = json.dumps({"job_id": "ocr-009", "text": "é"}, ensure_ascii=False).encode()
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def test_the_reference_accepts_our_signature():
    headers = sign(BODY, SECRET, message_id="msg_1")
    assert Reference(SECRET).verify(BODY, headers) == json.loads(BODY)


def test_we_accept_the_signature_of_the_reference():
    signature = Reference(SECRET).sign("msg_1", NOW, BODY.decode())
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(NOW.timestamp())),
        "webhook-signature": signature,
    }
    for body in (BODY, BODY.decode(), bytearray(BODY)):
        found = verify_webhook(body, headers, SECRET, now=NOW)
        assert (found.id, found.sent_at) == ("msg_1", NOW)


def test_a_secret_that_is_plain_text():
    assert verify_webhook(BODY, sign(BODY, "any text", message_id="m"), ["other", "any text"]).id == "m"


def test_headers_of_every_kind():
    headers = sign(BODY, SECRET, now=NOW)
    forms = [
        headers,
        {name.upper(): value for name, value in headers.items()},
        httpx.Headers(headers),
        list(headers.items()),
        [(name.encode(), value.encode()) for name, value in headers.items()],
        {**headers, "x-other": "é"},
    ]
    for each in forms:
        assert verify_webhook(BODY, each, SECRET, now=NOW.timestamp()).id == headers["webhook-id"]


def test_while_a_secret_is_changed():
    both = signed_headers(signing_key(SECRET), "m", int(NOW.timestamp()), BODY, signing_key(FORMER))
    for secrets in (SECRET, FORMER, [FORMER, "another"], [SECRET, FORMER]):
        assert verify_webhook(BODY, both, secrets, now=NOW).id == "m"
    with pytest.raises(InvalidSignature):
        verify_webhook(BODY, both, "another", now=NOW)
    assert verify_webhook(BODY, sign(BODY, FORMER, now=NOW), [SECRET, FORMER], now=NOW)


@pytest.mark.parametrize(
    ("changed", "valid"),
    [
        (timedelta(0), True),
        (timedelta(minutes=5), True),
        (-timedelta(minutes=5), True),
        (timedelta(seconds=301), False),
        (-timedelta(seconds=301), False),
        (timedelta(days=365), False),
    ],
)
def test_old_and_future_timestamps(changed, valid):
    headers = sign(BODY, SECRET, now=NOW)
    if valid:
        verify_webhook(BODY, headers, SECRET, now=NOW + changed)
    else:
        with pytest.raises(InvalidSignature):
            verify_webhook(BODY, headers, SECRET, now=NOW + changed)


def test_the_tolerance_can_be_changed():
    headers = sign(BODY, SECRET, now=NOW)
    verify_webhook(BODY, headers, SECRET, tolerance="2h", now=NOW + timedelta(hours=1))
    with pytest.raises(InvalidSignature):
        verify_webhook(BODY, headers, SECRET, tolerance="1s", now=NOW + timedelta(seconds=2))


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_each_header_is_needed_once(name):
    headers = sign(BODY, SECRET, now=NOW)
    without = {each: value for each, value in headers.items() if each != name}
    for wrong in (without, [*headers.items(), (name, headers[name])], {**headers, name: headers[name] + "1"}):
        with pytest.raises(InvalidSignature):
            verify_webhook(BODY, wrong, SECRET, now=NOW)


def test_another_body():
    with pytest.raises(InvalidSignature):
        verify_webhook(BODY + b" ", sign(BODY, SECRET, now=NOW), SECRET, now=NOW)


VALUES = st.one_of(st.text(), st.binary(), st.none(), st.integers(), st.lists(st.text()))


@given(identifier=VALUES, timestamp=VALUES, signature=VALUES, body=st.one_of(st.binary(), st.text()))
def test_whatever_a_sender_writes_there_is_one_error(identifier, timestamp, signature, body):
    headers = {"webhook-id": identifier, "webhook-timestamp": timestamp, "webhook-signature": signature}
    with pytest.raises(InvalidSignature):
        verify_webhook(body, headers, SECRET, now=NOW)


@given(signature=st.text(alphabet="v1, =abcABC+/\x00é", max_size=80))
def test_whatever_the_signature_is(signature):
    headers = sign(BODY, SECRET, now=NOW) | {"webhook-signature": signature}
    with pytest.raises(InvalidSignature):
        verify_webhook(BODY, headers, SECRET, now=NOW)


@pytest.mark.parametrize("secrets", ["", [], ["good", ""], "whsec_", "whsec_not base64!"])
def test_a_secret_that_cannot_verify_is_a_mistake_of_the_receiver(secrets):
    with pytest.raises(ValueError, match="secret") as raised:
        verify_webhook(BODY, {}, secrets)
    assert "not base64!" not in str(raised.value)


def test_a_secret_that_cannot_sign():
    with pytest.raises(ValueError, match="base64"):
        sign(BODY, "whsec_%")
