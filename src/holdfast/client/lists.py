"""Verbs that take or give many things: batches and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from .content import MAX_BATCH
from .errors import InvalidContent, Refused, UnexpectedAnswer, refusal
from .exchange import SUCCESS, Exchange
from .steps import Document, Emit, Items, Query, Request, Steps
from .views import BatchAnswer

Item = TypeVar("Item")
Receipt = TypeVar("Receipt")

_TOO_LARGE = 413


def pages(
    exchange: Exchange, path: str, query: Query, read: Callable[[object], Item], *, operator: bool = False
) -> Items[Item]:
    """All items of a list, page by page. The next page is asked for when the items before it were used."""
    cursor: str | None = None
    while True:
        asked = [*query, *([] if cursor is None else [("cursor", cursor)])]
        page = yield from exchange.json(Request(method="GET", path=path, query=asked, operator=operator))
        if not isinstance(page, dict) or not isinstance(page.get("items"), list):
            message = "The answer should be a page of a list, and is not."
            raise UnexpectedAnswer(message)
        for each in page["items"]:
            yield Emit(read(each))
        cursor = page.get("next")
        if not cursor:
            return


def in_batches(
    exchange: Exchange,
    items: Iterable[Document],
    request_of: Callable[[Sequence[Document]], Request],
    read: Callable[[object], Receipt],
) -> Steps[list[Receipt | Refused]]:
    """Send many items, at most 500 in one request: one receipt or refusal for each, in their order.

    A batch that is too large for the API is sent in two halves.
    """
    answers: list[Receipt | Refused] = []
    waiting = [*_chunks(items, MAX_BATCH)]
    while waiting:
        batch = waiting.pop(0)
        try:
            document = yield from exchange.json(request_of(batch))
        except InvalidContent as error:
            if error.status != _TOO_LARGE or len(batch) == 1:
                raise
            half = len(batch) // 2
            waiting[:0] = [batch[:half], batch[half:]]
            continue
        answers += _answers(document, len(batch), read)
    return answers


def _answers(document: object, number: int, read: Callable[[object], Receipt]) -> Iterator[Receipt | Refused]:
    listed = document.get("answers") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) != number:
        message = "The answer should have one answer for each item of the batch, and has not."
        raise UnexpectedAnswer(message)
    for each in map(BatchAnswer.read, listed):
        yield read(each.answer) if each.status_code in SUCCESS else refusal(each.status_code, each.answer)


def _chunks(items: Iterable[Document], size: int) -> Iterator[list[Document]]:
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
