"""What Gemini's answers mean: text, segments, or a failure of the table. Nothing heavy is imported here.

Answers are parsed here, as they came over the wire. The SDK's own parser warns, raises pydantic errors that quote the
content, or raises TypeError, depending on how an answer is broken.

A failure holds an HTTP status and values of Google's enumerations, and nothing else of the answer (I14).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

from holdfast import scrub
from holdfast.features.documents.contract import LANGUAGE
from holdfast.features.documents.failures import Code, DocumentFailure
from holdfast.network import LONGEST_RETRY_AFTER, retry_after

from .protocol import Segment

EMPTY_PAGE: Final = "[[EMPTY PAGE]]"
"""The model must answer this for a page without text, because a failed answer has no text either."""

_REFUSALS: Final = frozenset(
    {
        "BLOCKLIST",
        "IMAGE_OTHER",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "IMAGE_SAFETY",
        "LANGUAGE",
        "OTHER",
        "PROHIBITED_CONTENT",
        "RECITATION",
        "SAFETY",
        "SPII",
    }
)
_CUTS: Final = frozenset({"CONTINUATION", "MAX_TOKENS"})
_ENUM_VALUE: Final = re.compile(r"[A-Z][A-Z_]{1,39}")
_DELAY: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s")


def whole_text(body: str | None) -> str:
    """The text of a complete answer with status 200. Anything else raises DocumentFailure."""
    answer = _json(body)
    if not isinstance(answer, dict):
        raise _malformed(detail="no object")
    feedback = answer.get("promptFeedback")
    if isinstance(feedback, dict) and feedback.get("blockReason"):
        raise DocumentFailure(Code.MODEL_REFUSED, detail=_described("prompt blocked", feedback["blockReason"]))
    candidates = answer.get("candidates")
    if not isinstance(candidates, list) or not candidates or not isinstance(candidates[0], dict):
        raise _malformed(detail="no candidate")
    reason = str(candidates[0].get("finishReason"))
    if reason in _REFUSALS:
        raise DocumentFailure(Code.MODEL_REFUSED, detail=_described("finish reason", reason))
    if reason in _CUTS:
        raise DocumentFailure(Code.MODEL_TRUNCATED, detail=_described("finish reason", reason))
    if reason != "STOP":
        raise _malformed(detail=_described("finish reason", reason))
    text = "".join(_texts(candidates[0].get("content")))
    if not text.strip():
        raise _malformed(detail="no text")
    return text


def page_text(answer: str) -> str:
    """The text of a page without white space around it; empty if the model saw no text."""
    text = _storable(answer.replace("\r\n", "\n")).strip()
    return "" if text == EMPTY_PAGE else text


def transcript(answer: str, duration: float) -> tuple[str | None, tuple[Segment, ...]]:
    """The language, if the answer names one, and the segments in the order of time, within 0 and ``duration``."""
    content = _json(answer)
    if not isinstance(content, dict) or not isinstance(content.get("segments"), list):
        raise _malformed(detail="no segments")
    segments = [_segment(each, duration) for each in content["segments"]]
    language = content.get("language")
    known = language if isinstance(language, str) and re.fullmatch(LANGUAGE, language) else None
    return known, tuple(sorted((each for each in segments if each.text), key=lambda each: each.start))


def http_failure(status: int, details: object, header: str | None, now: datetime) -> DocumentFailure:
    """The failure of an answer that is not a 200.

    ``details`` is its body as JSON of any shape; ``header`` is its Retry-After. A wait in the body (RetryInfo) has
    priority over the header.
    """
    error = details.get("error") if isinstance(details, dict) else None
    status_name = error.get("status") if isinstance(error, dict) else None
    detail = _described(str(status), status_name)
    wait = _retry_info(error)
    after = wait if wait is not None else retry_after(header, now)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return DocumentFailure(Code.MODEL_RATE_LIMIT, detail=detail, retry_after=after)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return DocumentFailure(Code.MODEL_UNAVAILABLE, detail=detail, retry_after=after)
    if status == HTTPStatus.REQUEST_TIMEOUT:
        return DocumentFailure(Code.MODEL_TIMEOUT, detail=detail, retry_after=after)
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return _malformed(detail=detail)
    return DocumentFailure(Code.MODEL_REJECTED, detail=detail)


def _json(text: str | None) -> Any:  # noqa: ANN401 - JSON of any kind
    try:
        # Whole numbers become floats too: a number with thousands of digits is then infinite, not an error of its own.
        return json.loads(text or "", parse_int=float)
    except (ValueError, RecursionError):
        pass
    # Outside the handler: the decoder's error holds the whole answer.
    raise _malformed(detail="not JSON")


def _texts(content: object) -> Iterator[str]:
    parts = content.get("parts") if isinstance(content, dict) else None
    if not isinstance(parts, list):
        raise _malformed(detail="no parts")
    for part in parts:
        if not isinstance(part, dict) or not isinstance(part.get("text", ""), str):
            raise _malformed(detail="a part that is not text")
        if not part.get("thought"):
            yield part.get("text", "")


def _segment(given: object, duration: float) -> Segment:
    if not isinstance(given, dict) or not isinstance(given.get("text"), str):
        raise _malformed(detail="a segment without text")
    start, end = _time(given.get("start")), _time(given.get("end"))
    if end < start:
        raise _malformed(detail="a segment that ends before it starts")
    return Segment(start=_within(start, duration), end=_within(end, duration), text=_storable(given["text"]).strip())


def _time(value: object) -> float:
    if not isinstance(value, float) or not math.isfinite(value):
        raise _malformed(detail="a segment without times")
    return value


def _within(time: float, duration: float) -> float:
    return min(max(round(time, 3), 0.0), duration)


def _storable(text: str) -> str:
    """Text that every store can keep: JSON may hold NUL and half characters."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def _retry_info(error: object) -> timedelta | None:
    details = error.get("details") if isinstance(error, dict) else None
    for each in details if isinstance(details, list) else ():
        if isinstance(each, dict) and str(each.get("@type")).endswith("google.rpc.RetryInfo"):
            found = _DELAY.fullmatch(str(each.get("retryDelay")))
            return min(timedelta(seconds=float(found[1])), LONGEST_RETRY_AFTER) if found else None
    return None


def _described(what: str, value: object) -> str:
    """``what`` with Google's value for it, but only if the value looks like a member of an enumeration."""
    return scrub(f"{what} {value}") if isinstance(value, str) and _ENUM_VALUE.fullmatch(value) else what


def _malformed(*, detail: str) -> DocumentFailure:
    return DocumentFailure(Code.MODEL_MALFORMED, detail=detail)
