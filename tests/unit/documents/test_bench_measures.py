"""The error rates of ``make bench-documents``."""

from __future__ import annotations

import re
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.documents.aims import missed
from bench.documents.measures import Errors, characters_wrong, differences, edits, words, words_wrong

SHORT = st.text("abc ", max_size=8)


def by_definition(known: str, read: str) -> int:
    """Levenshtein's distance as the books have it."""

    @cache
    def distance(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        replaced = distance(i - 1, j - 1) + (known[i - 1] != read[j - 1])
        return min(replaced, distance(i - 1, j) + 1, distance(i, j - 1) + 1)

    return distance(len(known), len(read))


@given(SHORT, SHORT)
def test_edits_are_counted_as_the_definition_says(known, read):
    assert edits(known, read) == by_definition(known, read)


@pytest.mark.parametrize(
    ("known", "read", "count"),
    [
        ("kitten", "sitting", 3),
        ("intention", "execution", 5),
        ("", "", 0),
        ("abc", "", 3),
        ("", "abc", 3),
        ("ab", "ba", 2),
    ],
)
def test_edits_of_known_pairs(known, read, count):
    assert edits(known, read) == count


def test_a_character_error_rate_is_a_part_of_what_stands_on_the_page():
    errors = characters_wrong("Avó têm pressa", "Avo tem pressa!")
    assert errors == Errors(wrong=3, total=14)
    assert errors.rate == pytest.approx(3 / 14)


def test_white_space_of_any_kind_is_one_blank_and_its_absence_is_an_error():
    assert characters_wrong(" a line\nand  another ", "a line and\n\n\tanother") == Errors(0, 18)
    assert characters_wrong("a b", "ab") == Errors(1, 3)


def test_an_accent_is_the_same_however_it_is_encoded_and_case_is_not():
    assert characters_wrong("ação", "ac\N{COMBINING CEDILLA}a\N{COMBINING TILDE}o") == Errors(0, 4)
    assert characters_wrong("Ana", "ana") == Errors(1, 3)


def test_columns_in_the_wrong_order_are_errors():
    assert characters_wrong("one two three four", "three four one two").rate > 0.5


def test_rates_of_several_texts_are_those_of_all_their_characters():
    both = sum([Errors(1, 10), Errors(0, 90)], Errors())
    assert both == Errors(1, 100)
    assert both.rate == pytest.approx(0.01)
    assert not Errors().rate


def test_words_are_compared_without_case_and_punctuation():
    assert words(
        "“Don\N{RIGHT SINGLE QUOTATION MARK}t,” said MR. Quirke: 1,250 pounds (3.5 %) at 8:30 -- an ill-disposed man."
    ) == [
        *("don't", "said", "mr", "quirke", "1,250", "pounds", "3.5", "at", "8:30"),
        *("an", "ill", "disposed", "man"),
    ]
    assert words_wrong("Ask not what you can do.", "ask not, what can you do?") == Errors(2, 6)
    assert words_wrong("one two", "one two two three").rate == pytest.approx(1.0)


def test_numbers_are_compared_as_they_are_written():
    assert words_wrong("in 1,250 days", "in 1250 days") == Errors(1, 3)
    assert words_wrong("in 41 days", "in forty-one days") == Errors(2, 3)


def test_differences_show_what_was_read_instead():
    assert differences("above 60 °C may", "above 60 C may") == ["...above 60 [° -> ]C may..."]
    assert differences("the end", "teh ends") == ["...t[he -> eh] end...", "...the end[ -> s]..."]
    assert not differences("the same", "the  same\n")


def test_differences_of_a_text_that_repeats_itself_are_where_it_differs():
    assert differences("ask what you can do " * 3, "ask what you can do " * 2 + "ask that you can do") == [
        "... can do ask [w -> t]hat you can ..."
    ]


@given(SHORT, SHORT)
def test_differences_are_the_edits_that_were_counted(known, read):
    shown = [re.fullmatch(r"\.\.\..*\[(.*) -> (.*)\].*\.\.\.", line) for line in differences(known, read)]
    assert sum(max(map(len, pair.groups())) for pair in shown) == characters_wrong(known, read).wrong


def test_an_aim_counts_in_every_set_and_in_all():
    page = {"name": "clean", "character_error_rate": 0.005}
    poor = {"name": "poor", "character_error_rate": 0.0051}
    assert missed({"pages": {"sets": [page], "all": page | {"name": "all"}}}) == []
    assert missed({"pages": {"sets": [page, poor], "all": page}}) == [
        "poor: characters 0.51 % wrong, and 0.5 % is the aim."
    ]
    assert len(missed({"pages": {"sets": [page], "all": poor}})) == 1
    speech = [{"name": "opus", "word_error_rate": 0.05}, {"name": "mp3", "word_error_rate": 0.06}]
    layer = {"character_error_rate": 0.02}
    assert missed({"text_layer": layer, "speech": speech}) == [
        "Born-digital: characters 2.00 % wrong, and 0.5 % is the aim.",
        "mp3: words 6.00 % wrong, and 5 % is the aim.",
    ]
