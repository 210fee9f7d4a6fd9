"""The engine ``gemini``: pages and sound are read by Google's model.

Each page or chunk of sound is one question. The process that reads the file has no network: the caller sends the
question, with :mod:`.gemini_model`.
"""

from __future__ import annotations

import base64
import io
import wave
from typing import TYPE_CHECKING, Final, Literal, Self

from .gemini_answers import page_text, transcript
from .port import Ask, Reading
from .protocol import Question, Segment, Spec

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

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
