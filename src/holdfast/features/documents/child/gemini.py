"""The engine ``gemini``: pages and sound are read by Google's model.

Each page or chunk of sound is one question. The process that reads the file has no network: the caller sends the
question, with :mod:`.gemini_model`.

An answer means text, segments, or a failure of the table. Nothing heavy is imported here. Answers are parsed as they
came over the wire. The SDK's own parser warns, raises pydantic errors that quote the content, or raises TypeError,
depending on how an answer is broken.

A failure holds an HTTP status and values of Google's enumerations, and nothing else of the answer (I14).
"""

from __future__ import annotations

import base64
import io
import json
import math
import re
import wave
from collections.abc import Iterator
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from holdfast import scrub
from holdfast.features.documents.contract import LANGUAGE
from holdfast.features.documents.failures import Code, DocumentFailure
from holdfast.network import LONGEST_RETRY_AFTER, retry_after

from .port import Ask, Reading
from .protocol import Question, Segment, Spec

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image


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


SAMPLE_RATE: Final = 16_000

_LONGEST_SIDE: Final = 3_072  # pixels; more is scaled down by Google before the model sees it
_LARGEST_PNG: Final = 4_000_000  # bytes; Google takes 7 MB inline in the strictest of its services
_JPEG_QUALITY: Final = 90


class _Gemini:
    name = "gemini"

    def __init__(self, model: str, ask: Ask) -> None:
        self.model = model
        self._ask = ask

    @classmethod
    def of(cls, spec: Spec, ask: Ask) -> Self:
        """The engine for this attempt."""
        return cls(cls.model_of(spec), ask)

    @staticmethod
    def model_of(spec: Spec) -> str:
        """The model that the operator chose."""
        return str(spec.options["model"])

    def _answer(self, kind: Literal["page", "speech"], media_type: str, content: bytes, language: str | None) -> str:
        encoded = base64.b64encode(content).decode()
        return self._ask(Question(kind=kind, media_type=media_type, content=encoded, language=language))


class GeminiPages(_Gemini):
    """Reads the image of a page."""

    def read(self, image: Image.Image, *, scale: float, language: str | None) -> Reading:  # noqa: ARG002 - no boxes
        """The text of a page, as the model wrote it down."""
        return Reading(text=page_text(self._answer("page", *picture(image), language)))


class GeminiSpeech(_Gemini):
    """Transcribes speech."""

    def transcribe(self, sound: np.ndarray, *, language: str | None) -> tuple[str | None, tuple[Segment, ...]]:
        """The language, as given or as the model detected it, and the segments. All times are within the sound."""
        answer = self._answer("speech", "audio/wav", wav(sound), language)
        detected, segments = transcript(answer, len(sound) / SAMPLE_RATE)
        return language or detected, segments


def picture(image: Image.Image) -> tuple[str, bytes]:
    """The image as PNG, or as JPEG if the PNG is too large: its MIME type and its bytes."""
    if image.mode not in {"L", "RGB"}:
        image = image.convert("RGB")
    if max(image.size) > _LONGEST_SIDE:
        image = image.copy()
        image.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    png = io.BytesIO()
    image.save(png, "PNG")
    if png.tell() <= _LARGEST_PNG:
        return "image/png", png.getvalue()
    jpeg = io.BytesIO()
    image.save(jpeg, "JPEG", quality=_JPEG_QUALITY)
    return "image/jpeg", jpeg.getvalue()


def wav(sound: np.ndarray) -> bytes:
    """Mono sound at 16 kHz, float32 in [-1, 1], as a WAV file of 16 bits."""
    import numpy as np  # noqa: PLC0415 - a job for pages does not need it

    samples = np.round(np.clip(sound, -1.0, 1.0) * 32_767).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(SAMPLE_RATE)
        writer.writeframes(samples.tobytes())
    return file.getvalue()
