"""The order in which a page is read: columns one after the other, rows from top to bottom, rows from left to right.

The method is an XY-cut. A part of the page has columns if a gutter runs through it with running text on both sides.
Text that crosses the gutter, such as a headline, ends that part. Cells of a table are too short to be running text, so
tables are read row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Final

Box = tuple[float, float, float, float]
"""Left, top, right, bottom; down is more. Pixels or points."""
Block = list[list[int]]
"""Rows that belong together, each with the numbers of its pieces from left to right."""

# In heights of a line of text.
_GUTTER: Final = 0.6
_SHORTEST_PROSE: Final = 6.0
# Of the widest line in a column: running text fills its column, the entries of a form do not.
_FILLED: Final = 0.5
_FEWEST_ROWS: Final = 2
# Of the usual distance between rows: more is a new block.
_BREAK: Final = 1.5


def reading_order(boxes: Sequence[Box]) -> list[Block]:
    """The pieces of a page in reading order. Every piece occurs exactly once."""
    if not boxes:
        return []
    height = median(bottom - top for _, top, _, bottom in boxes)
    return _Cut(boxes, height or 1.0).blocks(range(len(boxes)))


def composed(texts: Sequence[str], order: Iterable[Block]) -> str:
    """The text of a page: a space between the pieces of a row, a new line for a row, an empty line between blocks."""
    return "\n\n".join("\n".join(" ".join(texts[i] for i in row) for row in block) for block in order)


class _Cut:
    """One page. ``height`` is that of its usual line."""

    def __init__(self, boxes: Sequence[Box], height: float) -> None:
        self._boxes = boxes
        self._height = height

    def blocks(self, members: Iterable[int]) -> list[Block]:
        found: list[Block] = []
        plain: list[list[int]] = []
        groups = self._groups(members)
        start = 0
        while start < len(groups):
            end, columns = self._columns(groups, start)
            if not columns:
                plain.append(groups[start])
                start += 1
                continue
            found += self._paragraphs(plain)
            plain = []
            for column in columns:
                found += self.blocks(column)
            start = end
        return found + self._paragraphs(plain)

    def _groups(self, members: Iterable[int]) -> list[list[int]]:
        """Pieces that are side by side, from top to bottom. Lines may touch, so only the middle half of each counts."""
        groups: list[list[int]] = []
        lowest = 0.0
        for index in sorted(members, key=lambda i: self._middle(i)[0]):
            top, bottom = self._middle(index)
            if groups and top < lowest:
                groups[-1].append(index)
                lowest = max(lowest, bottom)
            else:
                groups.append([index])
                lowest = bottom
        return groups

    def _columns(self, groups: list[list[int]], start: int) -> tuple[int, list[list[int]]]:
        """The longest run of groups from ``start`` that a gutter runs through: where it ends, and its two sides."""
        boxes = [self._boxes[i] for group in groups for i in group]
        free = [(min(box[0] for box in boxes), max(box[2] for box in boxes))]
        best: tuple[int, list[list[int]]] = (start, [])
        members: list[int] = []
        end = start
        while free:
            left = self._cleared(free, groups[end]) if end < len(groups) else []
            # Look for a split only when a gutter ends here: all earlier splits are shorter.
            if end > start and any(not any(a <= x and y <= b for x, y in left) for a, b in free):
                best = self._split(members, free, end) or best
            if end < len(groups):
                members += groups[end]
            free, end = left, end + 1
        return best

    def _cleared(self, free: list[tuple[float, float]], group: list[int]) -> list[tuple[float, float]]:
        """The free intervals without the space that a group takes, from left to right."""
        for index in group:
            left, _, right, _ = self._boxes[index]
            pieces = [piece for a, b in free for piece in ((a, min(b, left)), (max(a, right), b))]
            free = [(a, b) for a, b in dict.fromkeys(pieces) if b - a >= _GUTTER * self._height]
        return free

    def _split(
        self, members: list[int], gutters: list[tuple[float, float]], end: int
    ) -> tuple[int, list[list[int]]] | None:
        for left, right in sorted(gutters, key=lambda gutter: gutter[0] - gutter[1]):
            sides: list[list[int]] = [[], []]
            for index in members:
                box = self._boxes[index]
                sides[box[0] + box[2] > left + right].append(index)
            if all(self._is_prose(side) for side in sides):
                return end, sides
        return None

    def _is_prose(self, members: list[int]) -> bool:
        if len(members) < _FEWEST_ROWS or len(self._rows(members)) < _FEWEST_ROWS:
            return False
        widths = [self._boxes[i][2] - self._boxes[i][0] for i in members]
        usual = median(widths)
        return usual >= _SHORTEST_PROSE * self._height and usual >= _FILLED * max(widths)

    def _rows(self, members: list[int]) -> list[list[int]]:
        rows: list[list[int]] = []
        first = 0.0
        for index in sorted(members, key=self._centre):
            if rows and self._centre(index) - first < self._height / 2:
                rows[-1].append(index)
            else:
                rows.append([index])
                first = self._centre(index)
        return [sorted(row, key=lambda i: self._boxes[i][0]) for row in rows]

    def _paragraphs(self, groups: list[list[int]]) -> list[Block]:
        rows = [row for group in groups for row in self._rows(group)]
        if not rows:
            return []
        centres = [self._centre(row[0]) for row in rows]
        steps = [below - above for above, below in pairwise(centres)]
        usual = min(median(steps), 2 * self._height) if steps else 0.0
        found = [[rows[0]]]
        for row, step in zip(rows[1:], steps, strict=True):
            if step > _BREAK * usual:
                found.append([row])
            else:
                found[-1].append(row)
        return found

    def _centre(self, index: int) -> float:
        _, top, _, bottom = self._boxes[index]
        return (top + bottom) / 2

    def _middle(self, index: int) -> tuple[float, float]:
        _, top, _, bottom = self._boxes[index]
        quarter = (bottom - top) / 4
        return top + quarter, bottom - quarter
