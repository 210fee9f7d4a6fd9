"""Signatures: our own scheme against hmac itself, Standard Webhooks against its own library."""

from __future__ import annotations

import hashlib
import hmac
import time
from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from holdfast.contracts.errors import ConfigurationError
from holdfast.features.courier.signatures import SourceSecret, Verifier, sign

NOW = 1_772_107_200
BODY = b'{"source":"courier-x"}'
SECRET = "a secret"
TOLERANCE = timedelta(seconds=300)


def verifier(secret: str = SECRET, **window) -> Verifier:
    return Verifier({"courier-x": [SourceSecret(secret, **window)]}, TOLERANCE)


def own(secret: str = SECRET, timestamp: int = NOW, body: bytes = BODY, **changes: bytes) -> dict[bytes, bytes]:
    headers = {
        b"x-signature": sign(secret, timestamp, body).encode(),
        b"x-signature-timestamp": b"%d" % timestamp,
        b"x-signature-algorithm": b"hmac-sha256",
    }
    return headers | {name.replace("_", "-").encode(): value for name, value in changes.items()}


def accepts(headers, *, body: bytes = BODY, now: float = NOW, by: Verifier | None = None) -> bool:
    return (by or verifier()).verify(headers, body, now) is not None


# --- our own scheme -----------------------------------------------------------------------------------------------


@given(st.text(min_size=1, max_size=200).filter(lambda text: not text.startswith("whsec_")), st.binary(max_size=300))
def test_the_digest_is_hmac_sha256_for_keys_of_any_length(secret, body):
    expected = hmac.new(secret.encode(), b"%d." % NOW + body, hashlib.sha256).hexdigest()
    headers = own() | {b"x-signature": expected.encode()}

    verified = verifier(secret).verify(headers, body, NOW)

    assert verified is not None
    assert verified.sources == {"courier-x"}
    assert (verified.meta.algorithm, verified.meta.timestamp, verified.meta.signature) == ("hmac-sha256", NOW, expected)


@pytest.mark.parametrize("length", [1, 32, 63, 64, 65, 128, 200])
def test_a_key_longer_than_a_block_is_hashed_first(length):
    secret = "k" * (length - 1) + "!"
    expected = hmac.new(secret.encode(), b"%d." % NOW + BODY, hashlib.sha256).hexdigest()
    assert sign(secret, NOW, BODY) == expected
    assert accepts(own(x_signature=expected.encode()), by=verifier(secret))


def test_hex_in_any_case_and_base64_and_a_prefix_are_accepted():
    digest = bytes.fromhex(sign(SECRET, NOW, BODY))
    for written in (digest.hex(), digest.hex().upper(), b64encode(digest).decode(), f"sha256={digest.hex()}"):
        assert accepts(own(x_signature=written.encode()))


def test_the_algorithm_may_be_left_out_but_not_be_another():
    headers = own()
    del headers[b"x-signature-algorithm"]
    assert accepts(headers)
    assert accepts(own(x_signature_algorithm=b"HMAC-SHA256"))
    for other in (b"", b"hmac-sha1", b"none", b"hmac-sha256, none", b"\xff"):
        assert not accepts(own(x_signature_algorithm=other))


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        b"sha256=",
        b"0" * 63,
        b"0" * 64,
        b"0" * 128,
        b"\xff" * 64,
        b"=" * 44,
        b"A" * 43 + b"=",
        b"v1," + b"A" * 43 + b"=",
        " ".join(["ab"] * 32).encode(),
    ],
)
def test_a_malformed_or_wrong_signature_is_refused(signature):
    assert not accepts(own(x_signature=signature))


def test_a_base64_signature_has_one_spelling():
    spelled = b64encode(bytes.fromhex(sign(SECRET, NOW, BODY))).decode()
    last = spelled[-2]
    # The last character has two unused bits: b64decode accepts four spellings of one digest.
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    twin = spelled[:-2] + alphabet[alphabet.index(last) ^ 1] + "="
    assert accepts(own(x_signature=spelled.encode()))
    assert not accepts(own(x_signature=twin.encode()))


@pytest.mark.parametrize(
    "timestamp",
    [
        b"",
        b"now",
        b"-1772107200",
        b"+1772107200",
        b"1772107200.0",
        b"01772107200",
        b" 1772107200",
        b"1e9",
        b"9" * 400,
        "١٧٧٢١٠٧٢٠٠".encode(),
    ],
)
def test_a_malformed_timestamp_is_refused_even_when_it_is_what_was_signed(timestamp):
    signature = hmac.new(SECRET.encode(), timestamp + b"." + BODY, hashlib.sha256).hexdigest()
    assert not accepts(own(x_signature=signature.encode(), x_signature_timestamp=timestamp))


def test_a_missing_timestamp_or_signature_is_refused():
    for missing in (b"x-signature", b"x-signature-timestamp"):
        headers = own()
        del headers[missing]
        assert not accepts(headers)
    assert not accepts({})


def test_the_clock_may_be_off_by_the_tolerance_both_ways_and_no_more():
    for off in (-300, 0, 300):
        assert accepts(own(), now=NOW + off)
    for off in (-301, -300.01, 300.01, 301, 10**6):
        assert not accepts(own(), now=NOW + off)


def test_the_signature_covers_the_timestamp_and_every_byte_of_the_body():
    assert not accepts(own(x_signature_timestamp=b"%d" % (NOW + 1)))
    assert not accepts(own(), body=BODY + b" ")
    assert not accepts(own(), body=b"")


def test_only_our_scheme_counts_when_x_signature_is_present():
    good = standard(Webhook(b"key"), "msg_1", NOW, BODY)
    both = good | {b"x-signature": b"0" * 64, b"x-signature-timestamp": b"%d" % NOW}
    by = verifier("key")
    assert accepts(good, by=by)
    assert not accepts(both, by=by)


# --- secrets ------------------------------------------------------------------------------------------------------


def test_every_active_secret_verifies_its_own_source_only():
    by = Verifier(
        {
            "courier-x": [SourceSecret("new"), SourceSecret("old")],
            "courier-y": [SourceSecret("other"), SourceSecret("shared")],
            "courier-z": [SourceSecret("shared")],
        },
        TOLERANCE,
    )

    def sources(secret: str):
        verified = by.verify(own(secret), BODY, NOW)
        return verified and verified.sources

    assert sources("new") == {"courier-x"}
    assert sources("old") == {"courier-x"}
    assert sources("other") == {"courier-y"}
    assert sources("shared") == {"courier-y", "courier-z"}
    assert sources("nobody's") is None


def test_a_secret_is_valid_inside_its_window_only():
    at = datetime.fromtimestamp(NOW, tz=UTC)
    second = timedelta(seconds=1)
    assert accepts(own(), by=verifier(not_before=at))
    assert not accepts(own(), by=verifier(not_before=at + second))
    assert accepts(own(), by=verifier(not_after=at + second))
    assert not accepts(own(), by=verifier(not_after=at))
    assert accepts(own(), by=verifier(not_before=at - second, not_after=at + second))


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_not base64!", "whsec_A"])
def test_an_unusable_secret_is_refused_at_the_start_and_not_repeated(secret):
    with pytest.raises(ConfigurationError) as caught:
        verifier(secret)
    assert "courier-x" in caught.value.message
    assert "not base64!" not in caught.value.message


def test_a_secret_is_not_shown():
    assert "a secret" not in repr(SourceSecret("a secret"))


def test_a_whsec_secret_is_the_same_key_in_both_schemes():
    key = b"0123456789abcdef"
    secret = "whsec_" + b64encode(key).decode()
    signature = hmac.new(key, b"%d." % NOW + BODY, hashlib.sha256).hexdigest()
    assert accepts(own(x_signature=signature.encode()), by=verifier(secret))


# --- Standard Webhooks, compared with the library -----------------------------------------------------------------


def standard(webhook: Webhook, identifier: str, timestamp: int, body: bytes) -> dict[bytes, bytes]:
    signature = webhook.sign(identifier, datetime.fromtimestamp(timestamp, tz=UTC), body.decode())
    return {
        b"webhook-id": identifier.encode(),
        b"webhook-timestamp": b"%d" % timestamp,
        b"webhook-signature": signature.encode(),
    }


def library_accepts(webhook: Webhook, headers: dict[bytes, bytes], body: bytes) -> bool:
    try:
        webhook.verify(body, {name.decode(): value.decode() for name, value in headers.items()}, json_parse=False)
    except Exception:  # noqa: BLE001 - the library raises many kinds of exceptions; all of them are refusals
        return False
    return True


keys = st.binary(min_size=1, max_size=80)
identifiers = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40)
bodies = st.text(max_size=200).map(str.encode)
# A few seconds from the edge: the library reads its own clock.
offsets = st.integers(-295, 295)


@given(keys, identifiers, bodies, offsets, st.booleans())
def test_every_signature_of_the_library_is_accepted(key, identifier, body, offset, padded):
    now = time.time()
    headers = standard(Webhook(key), identifier, int(now) + offset, body)
    encoded = b64encode(key).decode()
    by = verifier("whsec_" + (encoded if padded else encoded.rstrip("=")))

    verified = by.verify(headers, body, now)

    assert verified is not None
    assert verified.sources == {"courier-x"}
    assert verified.meta.timestamp == int(now) + offset
    assert verified.meta.signature == headers[b"webhook-signature"].removeprefix(b"v1,").decode()


printable = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=60)


@st.composite
def mutations(draw):
    """A change to one signed part or to the signature, from small to large."""
    kind = draw(st.sampled_from(["body", "id", "timestamp", "signature", "drop"]))
    if kind == "drop":
        return kind, draw(st.sampled_from([b"webhook-id", b"webhook-timestamp", b"webhook-signature"]))
    if kind == "timestamp":
        return kind, draw(st.one_of(st.integers(-(10**6), 10**6), printable))
    if kind == "signature":
        tokens = st.sampled_from(
            ["GOOD", "v1,", "v2,GOODBASE", "v1a,GOODBASE", "v1,GOODBASE,", ",", "", "v1,AAAA", "TRUNC"]
        )
        return kind, " ".join(draw(st.lists(st.one_of(tokens, printable), max_size=4)))
    return kind, draw(st.one_of(bodies, st.just(b"")))


@given(keys, identifiers, bodies, mutations())
def test_every_signature_that_the_library_refuses_is_refused(key, identifier, body, mutation):
    now = time.time()
    webhook = Webhook(key)
    headers = standard(webhook, identifier, int(now), body)
    good = headers[b"webhook-signature"].decode()
    kind, change = mutation
    if kind == "body":
        body = change
    elif kind == "id":
        headers[b"webhook-id"] = change
    elif kind == "timestamp":
        text = str(int(now) + change) if isinstance(change, int) else change
        headers[b"webhook-timestamp"] = text.encode()
    elif kind == "signature":
        change = change.replace("GOODBASE", good.removeprefix("v1,")).replace("GOOD", good).replace("TRUNC", good[:-1])
        headers[b"webhook-signature"] = change.encode()
    else:
        del headers[change]

    ours = accepts(headers, body=body, now=now, by=verifier("whsec_" + b64encode(key).decode()))

    assert not ours or library_accepts(webhook, headers, body)


def test_one_good_signature_among_others_is_enough_in_any_place():
    good = standard(Webhook(b"key"), "msg_1", NOW, BODY)[b"webhook-signature"]
    other = standard(Webhook(b"another"), "msg_1", NOW, BODY)[b"webhook-signature"]
    for several in ([good, other], [other, good], [other, b"v2,whatever", good]):
        headers = standard(Webhook(b"key"), "msg_1", NOW, BODY) | {b"webhook-signature": b" ".join(several)}
        verified = verifier("key").verify(headers, BODY, NOW)
        assert verified is not None
        assert verified.meta.signature == good.removeprefix(b"v1,").decode()
    assert not accepts(headers | {b"webhook-signature": other}, by=verifier("key"))


@pytest.mark.parametrize("malformed", [b"v1,AAAA", b"v1,", b"v1", b"v1,!", b"", b"v1,a,b"])
def test_a_header_with_one_malformed_signature_is_refused(malformed):
    headers = standard(Webhook(b"key"), "msg_1", NOW, BODY)
    good = headers[b"webhook-signature"]
    for several in (good + b" " + malformed, malformed + b" " + good):
        assert not accepts(headers | {b"webhook-signature": several}, by=verifier("key"))


def test_standard_webhooks_may_be_off_by_the_tolerance_and_no_more():
    headers = standard(Webhook(b"key"), "msg_1", NOW, BODY)
    for off, expected in ((-301, False), (-300, True), (300, True), (301, False)):
        assert accepts(headers, now=NOW + off, by=verifier("key")) is expected


def test_a_header_of_very_many_signatures_is_refused():
    headers = standard(Webhook(b"key"), "msg_1", NOW, BODY)
    headers[b"webhook-signature"] = b" ".join([headers[b"webhook-signature"]] * 33)
    assert not accepts(headers, by=verifier("key"))


@given(
    st.dictionaries(st.sampled_from(sorted(own() | standard(Webhook(b"key"), "m", NOW, BODY))), st.binary(max_size=80))
)
def test_no_headers_make_the_verifier_raise(headers):
    assert not accepts(headers)
