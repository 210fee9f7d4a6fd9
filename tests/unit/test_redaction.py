"""Scrubbing: what must not be read in errors, logs and dead letters (I14)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.redaction import MAX_MESSAGE, scrub


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("cannot reach mongodb://app:s3cr3t@db.example:27017/x", "s3cr3t"),
        ("redis://:s3cr3t@10.0.0.1", "s3cr3t"),
        ("Authorization: Bearer abcdef0123456789", "abcdef0123456789"),
        ("basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA"),
        ('{"api_key": "k-12345"}', "k-12345"),
        ("password=hunter2&x=1", "hunter2"),
        ("operator_token: t0ps3cret", "t0ps3cret"),
        ("x-signature=deadbeefdeadbeef", "deadbeefdeadbeef"),
        ("sent to maria.silva@example.com.br", "maria.silva"),
        ("sent to _maria.silva@example.com.br", "maria.silva"),
        ("sent to <.maria.silva@example.com.br>", "maria.silva"),
        ("CPF 529.982.247-25 is unknown", "529.982.247-25"),
        ("cpf=52998224725", "52998224725"),
        ("CNPJ 11.222.333/0001-81", "11.222.333/0001-81"),
        ("cnpj 11222333000181", "11222333000181"),
        ("card 4111 1111 1111 1111", "4111 1111 1111"),
        ("card 4111-1111-1111-1111", "1111-1111"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text, secret):
    scrubbed = scrub(text)

    assert secret not in scrubbed
    assert "***" in scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "HTTP 503 from the downstream",
        "courier-x:evt_123 after 5 attempts",
        "2026-02-26T12:00:00.000Z",
        "shipment shp_456 of order ord_789",
        "São Paulo 🦑",
    ],
)
def test_ordinary_messages_stay_as_they_are(text):
    assert scrub(text) == text


def test_a_masked_message_still_tells_what_happened():
    assert scrub("cannot reach redis://:s3cr3t@10.0.0.1/0: refused") == "cannot reach redis://***@10.0.0.1/0: refused"


@given(st.text(max_size=2000) | st.text(alphabet=st.characters(categories=["Cs"]), max_size=5))
def test_any_text_becomes_text_of_bounded_length_that_can_be_kept(text):
    scrubbed = scrub(text)

    scrubbed.encode()
    assert "\0" not in scrubbed
    assert len(scrubbed) <= MAX_MESSAGE


@given(st.text(max_size=600))
def test_scrubbing_twice_changes_nothing_more(text):
    assert scrub(scrub(text)) == scrub(text)


@pytest.mark.parametrize("secret", ["maria.silva@example.com", "password=hunter2hunter2", "4111 1111 1111 1111"])
@pytest.mark.parametrize("short", ["a" * 7 + " ", "token=" + "a" * 10 + " "])
def test_a_secret_at_the_end_of_what_is_read_is_not_shown_in_part(secret, short):
    # With the second filler, masking leaves so little that the end of what is read comes into the message.
    for shift in range(len(secret) + 2):
        text = (short * 1_000)[: 4_000 - shift] + secret + " and more" * 1_000
        assert secret[:5] not in scrub(text)


def test_a_long_secret_leaves_what_stands_before_it():
    assert scrub("Cannot sign in: password=" + "x" * 10_000) == "Cannot sign in: password=***…"
