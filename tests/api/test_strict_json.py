from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.strict_json import MAX_DEPTH, MAX_MEMBERS, MAX_VALUES, NotStrictJson, parse

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=60,
)


@given(documents, st.booleans())
def test_unambiguous_json_is_parsed_as_the_standard_library_parses_it(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse(text.encode()) == value


def nested(depth: int, opening: str = "[", closing: str = "]") -> bytes:
    return (opening * depth + closing * depth).encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b'{"a":1,"a":2}',
        b'{"a":1,"\\u0061":1}',
        b'{"x":{"a":1,"b":2,"a":3}}',
        b'[{"a":[{"k":0,"k":0}]}]',
        b"NaN",
        b"[Infinity]",
        b'{"a":-Infinity}',
        b"1e999",
        b"[-1e999]",
        b"9007199254740992",
        b"-9007199254740992",
        b"1" + b"0" * 5000,
        b'"\\ud800"',
        b'["\\udc00\\ud800"]',
        b'{"\\uD83D":1}',
        b'"\\uDFFF"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"),
        b"{} {}",
        b"{},",
        b'{"a":1}garbage',
        b"{'a':1}",
        b'{"a":1,}',
        b'"tab\there"',
        b'"\x00"',
        b"[1",
        b'"open',
        b"01",
        b"{1:2}",
        nested(MAX_DEPTH + 1),
        nested(MAX_DEPTH + 1, '{"a":', "}").replace(b":}", b":1}"),
        b"[" * 200_000,
        b'{"a":' * 40_000,
        nested(500) + b"]",
    ],
    ids=lambda raw: repr(raw[:24]),
)
def test_json_that_two_parsers_could_read_differently_is_refused(raw):
    with pytest.raises(NotStrictJson):
        parse(raw)


def test_the_largest_safe_integers_are_accepted():
    assert parse(b"[9007199254740991, -9007199254740991]") == [2**53 - 1, -(2**53) + 1]


def test_whole_surrogate_pairs_and_odd_escapes_are_accepted():
    assert parse(b'"\\ud83d\\ude00"') == "\U0001f600"
    assert parse(b'"\\\\ud800"') == "\\ud800"


def test_depth_counts_levels_and_not_brackets():
    assert parse(nested(MAX_DEPTH)) is not None
    wide = [[]] * 500
    assert parse(json.dumps(wide).encode()) == wide
    texts = ['[{"' * 50, "\\", '\\"[[[[' * 20, "]}" * 90]
    assert parse(json.dumps([texts]).encode()) == [texts]


def test_a_body_that_is_nested_too_deep_is_refused_in_every_place():
    with pytest.raises(NotStrictJson, match="deeper"):
        parse(b'["\\"", ' + nested(MAX_DEPTH) + b"]")


@given(st.binary(max_size=60))
def test_no_other_exception_is_raised(raw):
    with suppress(NotStrictJson):
        parse(raw)


def test_the_message_does_not_repeat_the_body():
    for raw in (
        b'{"cpf":"12345678901","cpf":1}',
        b'{"secret-value": nope}',
        b'"secret-value\\ud800"',
        b"12345678901234567890",
    ):
        with pytest.raises(NotStrictJson) as caught:
            parse(raw)
        for piece in ("secret", "nope", "cpf", "1234567890"):
            assert piece not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[" + b"1," * MAX_VALUES + b"1]", "The body has more than 5,000 values."),
        (b"[" + b"[]," * (MAX_VALUES // 2) + b"[]]", "The body has more than 5,000 values."),
        (b"{" + b",".join(b'"%d":1' % each for each in range(MAX_MEMBERS + 1)) + b"}", "more than 1,000 members"),
    ],
)
def test_bodies_with_too_many_values_are_refused(body, message):
    with pytest.raises(NotStrictJson, match=message):
        parse(body)


def test_what_stands_in_texts_is_no_value():
    assert parse(b'["' + b",[{" * MAX_VALUES + b'"]') == [",[{" * MAX_VALUES]


def test_the_most_values_are_taken():
    assert len(parse(b"[" + b"1," * (MAX_VALUES - 2) + b"1]")) == MAX_VALUES - 1
    assert len(parse(b"{" + b",".join(b'"%d":1' % each for each in range(MAX_MEMBERS)) + b"}")) == MAX_MEMBERS


def test_a_route_may_take_more_values():
    assert len(parse(b"[" + b"1," * MAX_VALUES + b"1]", 2 * MAX_VALUES)) == MAX_VALUES + 1
