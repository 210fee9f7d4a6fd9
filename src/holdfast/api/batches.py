"""Batches: many jobs in one request, and an answer for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastapi import Response

from .errors import Refusal
from .routes import JSON_TYPE
from .views import BatchAnswer, BatchView, ErrorView, Receipt


async def batch_response(
    view: type[BatchView[Receipt]], results: Sequence[Receipt | Refusal], trace_id: str
) -> Response:
    """The 207 with one answer for each item.

    Five hundred answers may have thousands of problems: they are written in a thread, and the event loop goes on.
    """
    return Response(await asyncio.to_thread(_written, view, results, trace_id), 207, media_type=JSON_TYPE)


def _written(view: type[BatchView[Receipt]], results: Sequence[Receipt | Refusal], trace_id: str) -> str:
    answers = [_answer(index, result, trace_id) for index, result in enumerate(results)]
    refused = sum(isinstance(result, Refusal) for result in results)
    return view(accepted=len(results) - refused, refused=refused, answers=answers).model_dump_json(by_alias=True)


def _answer(index: int, result: Receipt | Refusal, trace_id: str) -> BatchAnswer[Receipt]:
    if not isinstance(result, Refusal):
        return BatchAnswer(index=index, status_code=202, answer=result)
    error = ErrorView.model_validate_json(result.body(trace_id))
    return BatchAnswer(index=index, status_code=result.status, answer=error)
