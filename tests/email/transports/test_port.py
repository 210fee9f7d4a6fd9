"""Quotes of the other side's answers."""

from __future__ import annotations

import pytest

from holdfast.features.email.transports.port import quoted

from .messages import a_message


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("5.1.1 <maria.souza@example.com>: unknown", "5.1.1 <***>: unknown"),
        ("5.1.1 MARIA.SOUZA@EXAMPLE.COM unknown", "5.1.1 *** unknown"),
        ("no user maria.souza here", "no user *** here"),
        ("josé@exemplo.example, someone@else.example", "***, ***"),
        ("several\r\n lines\tof it", "several lines of it"),
        ("password=hunter2 and 111.444.777-35", "password=*** and ***CPF***"),
        ("nothing private", "nothing private"),
        ("", ""),
    ],
)
def test_the_other_sides_answer_is_quoted_without_personal_data(said, shown):
    assert quoted(said, a_message("maria.souza@example.com")) == shown


def test_a_quote_is_short():
    assert len(quoted("word " * 1000)) == 200


def test_a_short_local_part_does_not_blank_out_the_sentence():
    assert quoted("to a user a is unknown", a_message("a@example.com")) == "to a user a is unknown"
