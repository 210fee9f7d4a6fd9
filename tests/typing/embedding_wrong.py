"""Mistakes that a type checker finds. Each has its ``ignore``: without its error, mypy reports that as unused."""

from __future__ import annotations

from holdfast import Holdfast, Submission
from holdfast.testing import Harness
from tests.typing.embedding import Invoice, Order, Pdf, issue_invoice


async def main(hold: Holdfast, order: Order, invoice: Invoice) -> None:
    await hold.submit(issue_invoice, order)  # type: ignore[misc]
    await hold.submit_many(issue_invoice, [order])  # type: ignore[misc]
    await hold.submit(issue_invoice, invoice, delay=[])  # type: ignore[call-overload]
    receipt: Submission[Pdf] = await hold.submit(issue_invoice, invoice)
    text: str = await hold.result(receipt)  # type: ignore[arg-type]
    await hold.result(receipt, timeout=[])  # type: ignore[call-overload]
    await hold.result("1")  # type: ignore[call-overload]
    print(text)


async def test(h: Harness, order: Order, invoice: Invoice) -> None:
    await h.submit(issue_invoice, order)  # type: ignore[misc]
    text: str = await h.result(await h.submit(issue_invoice, invoice))  # type: ignore[arg-type]
    print(text)
