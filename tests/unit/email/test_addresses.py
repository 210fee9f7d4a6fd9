"""Addresses: the form in which they are compared and sent, and the mask in which they are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.features.email.texts import mask_address, normalised


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("user@example.com", "user@example.com"),
        ("User.Name+tag@EXAMPLE.Com", "User.Name+tag@example.com"),
        ("a@exämple.de", "a@xn--exmple-cua.de"),
        ("a@xn--exmple-cua.de", "a@xn--exmple-cua.de"),
        ("x" * 64 + "@example.com", "x" * 64 + "@example.com"),
        ("o'brien@example.com", "o'brien@example.com"),
    ],
)
def test_an_address_has_one_form(written, kept):
    assert normalised(written) == kept


@pytest.mark.parametrize(
    "address",
    [
        "",
        "user",
        "user@",
        "@empresa.com",
        "user@localhost",
        "a b@example.com",
        " user@example.com",
        "user@example.com\n",
        "user@example.com\r\nBcc: other@example.com",
        "user\x00@example.com",
        "João <joao@example.com>",
        "joão@example.com",
        '"quoted local"@example.com',
        "user@[127.0.0.1]",
        "a..b@example.com",
        "a@example.com,b@example.com",
        "x" * 65 + "@example.com",
        "a@" + ".".join(["d" * 60] * 4) + "." + "c" * 12,
        "a@" + ".".join(["ä" * 40] * 5) + ".com",
        "\ud800@example.com",
    ],
)
def test_an_invalid_address_is_refused_without_being_repeated(address):
    with pytest.raises(ValueError, match=r"^must ") as refusal:
        normalised(address)

    assert len(address) < 4 or address not in str(refusal.value)
    assert refusal.value.__context__ is None or refusal.value.__suppress_context__


def test_the_longest_address_has_254_characters():
    address = "l" * 60 + "@" + ".".join(["d" * 62, "d" * 63, "d" * 62, "com"])

    assert len(address) == 254
    assert normalised(address) == address
    with pytest.raises(ValueError, match="254"):
        normalised("l" + address)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a@example.com", "a@EXAMPLE.com", True),
        ("a@exämple.de", "a@xn--exmple-cua.de", True),
        ("a@example.com", "A@example.com", False),
        ("a@example.com", "b@example.com", False),
    ],
)
def test_addresses_are_compared_in_that_form(one, other, same):
    assert (normalised(one) == normalised(other)) is same


@pytest.mark.parametrize(
    ("address", "mask"),
    [
        ("user@example.com", "u***@e***.com"),
        ("a@b.co.uk", "a***@b***.uk"),
        ("maria@mail.empresa.com.br", "m***@m***.br"),
        ("user@localhost", "u***@l***"),
        ("user@192.168.0.1", "u***@1***"),
        ("a@b@example.com", "a***@e***.com"),
        ("@example.com", "***@e***.com"),
        ("user@", "u***@***"),
        ('"john doe"@example.com', "***@e***.com"),
        ("not an address", "***"),
        ("", "***"),
        ("a@b." + "x" * 40, "a***@b***"),
        ("a@b.secret1", "a***@b***"),
    ],
)
def test_a_mask_shows_two_letters_and_the_top_level_domain(address, mask):
    assert mask_address(address) == mask


@given(st.text(max_size=100))
def test_a_mask_of_anything_shows_at_most_two_characters_and_a_word(text):
    shown = mask_address(text).replace("***", "")

    assert len(shown.partition(".")[0].replace("@", "")) <= 2
    assert len(shown.partition(".")[2]) <= 24
