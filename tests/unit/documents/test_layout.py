"""The order in which a page is read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.features.documents.child.layout import composed, reading_order

LEFT, RIGHT = (50, 280), (310, 540)


def column(across: tuple[float, float], top: float, rows: int, *, step: float = 15) -> list[tuple]:
    return [(across[0], top + i * step, across[1] - (i % 3) * 10, top + i * step + 12) for i in range(rows)]


def read(pieces: dict[str, tuple]) -> str:
    """The text of a page whose pieces are given in another order than they are read in."""
    names = sorted(pieces, key=lambda name: (pieces[name][1], name[::-1]))
    return composed(names, reading_order([pieces[name] for name in names]))


def named(prefix: str, boxes: list[tuple]) -> dict[str, tuple]:
    return {f"{prefix}{i}": box for i, box in enumerate(boxes)}


def test_an_empty_page_has_no_order() -> None:
    assert reading_order([]) == []


def test_two_columns_are_read_one_after_the_other() -> None:
    page = named("a", column(LEFT, 100, 4)) | named("b", column(RIGHT, 100, 4))
    assert read(page) == "a0\na1\na2\na3\n\nb0\nb1\nb2\nb3"


def test_columns_whose_rows_are_not_level_are_read_one_after_the_other() -> None:
    page = named("a", column(LEFT, 100, 5)) | named("b", column(RIGHT, 107, 4))
    assert read(page).split() == ["a0", "a1", "a2", "a3", "a4", "b0", "b1", "b2", "b3"]


def test_three_columns_are_read_one_after_the_other() -> None:
    page: dict[str, tuple] = {}
    for name, left in (("a", 50), ("b", 225), ("c", 400)):
        page |= named(name, column((left, left + 150), 100, 3))
    assert read(page).split() == ["a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"]


def test_a_headline_and_a_footer_across_the_columns_stay_where_they_are() -> None:
    page = (
        {"head": (50, 86, 540, 103), "middle": (50, 180, 540, 192), "foot": (250, 300, 350, 312)}
        | named("a", column(LEFT, 100, 3))
        | named("b", column(RIGHT, 100, 3))
        | named("c", column(LEFT, 210, 3))
        | named("d", column(RIGHT, 210, 3))
    )
    assert read(page).split() == (
        ["head", "a0", "a1", "a2", "b0", "b1", "b2", "middle", "c0", "c1", "c2", "d0", "d1", "d2", "foot"]
    )


def test_a_table_is_read_row_by_row() -> None:
    page: dict[str, tuple] = {}
    for name, left, width in (("item", 50, 200), ("count", 300, 30), ("price", 400, 50)):
        page |= named(name, [(left, 100 + i * 15, left + width, 112 + i * 15) for i in range(3)])
    assert read(page) == "item0 count0 price0\nitem1 count1 price1\nitem2 count2 price2"


def test_pieces_of_one_line_are_joined_from_left_to_right() -> None:
    page = {"b": (200, 98, 300, 112), "a": (50, 100, 190, 113), "c": (50, 116, 300, 128)}
    assert read(page) == "a b\nc"


def test_a_wide_gap_between_rows_is_an_empty_line() -> None:
    page = named("a", column(LEFT, 100, 3)) | named("b", column(LEFT, 175, 3))
    assert read(page) == "a0\na1\na2\n\nb0\nb1\nb2"


corner = st.floats(0, 600, allow_nan=False)
side = st.floats(0, 300, allow_nan=False)
boxes = st.lists(st.builds(lambda x, y, w, h: (x, y, x + w, y + h), corner, corner, side, side), max_size=40)


@given(boxes)
def test_every_piece_is_read_exactly_once(given_boxes: list[tuple]) -> None:
    order = reading_order(given_boxes)
    assert sorted(i for block in order for row in block for i in row) == list(range(len(given_boxes)))
