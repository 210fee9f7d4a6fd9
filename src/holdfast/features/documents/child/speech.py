"""The local speech engine: Whisper by faster-whisper, on the processor, with 8-bit integers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Self

from holdfast.features.documents.failures import Code, DocumentFailure

from .limits import forbid_reports
from .port import Ask
from .protocol import Segment, Spec
from .whisper_files import model_name, whisper_files

if TYPE_CHECKING:
    import numpy as np

_RATE: Final = 16_000
_BEAM: Final = 5
"""A single beam is a quarter faster, but loses whole sentences."""


class LocalSpeech:
    """Transcribes speech on this machine. Creating it loads the model; the network is never used.

    A silent chunk has no segments. The voice detector in faster-whisper's own wheel finds the speech, because Whisper
    invents words for silence.
    """

    name: str = "local"
    model: str

    def __init__(self, model_dir: str | None, threads: int) -> None:
        files = whisper_files(model_dir)
        forbid_reports()
        from faster_whisper import WhisperModel  # noqa: PLC0415 - heavy: only a transcription needs it

        self.model = files.name
        try:
            self._whisper = WhisperModel(
                files.folder or files.name,
                device="cpu",
                compute_type="int8",
                cpu_threads=threads,
                local_files_only=True,
                files=files.contents or None,
            )
        except (RuntimeError, ValueError) as error:
            # The text of the error may name the folder.
            problem = "The speech model cannot be loaded: its files are damaged, or not a model for faster-whisper"
            raise DocumentFailure(Code.MODEL_FILES_DAMAGED, problem, type(error).__name__) from None

    @classmethod
    def of(cls, spec: Spec, ask: Ask) -> Self:
        """The engine for this attempt."""
        del ask
        return cls(spec.options.get("model_dir"), spec.threads)

    @staticmethod
    def model_of(spec: Spec) -> str:
        """The model's name in results. The model need not be installed."""
        return model_name(spec.options.get("model_dir"))

    def transcribe(self, sound: np.ndarray, *, language: str | None) -> tuple[str | None, tuple[Segment, ...]]:
        """The language and the segments. A chunk without speech has no language and no segments.

        A given language is used without its region ("pt" of "pt-BR").
        """
        from faster_whisper.vad import get_speech_timestamps  # noqa: PLC0415 - heavy

        spoken = self._known(language)
        # Without speech, the library would still spend the time of a whole window to detect a language.
        if not get_speech_timestamps(sound):
            return None, ()
        found, info = self._whisper.transcribe(
            sound,
            language=spoken,
            beam_size=_BEAM,
            vad_filter=True,
            # An error in one window must not continue in the next.
            condition_on_previous_text=False,
        )
        end = len(sound) / _RATE
        segments = tuple(
            Segment(
                start=min(max(segment.start, 0.0), end),
                end=min(max(segment.end, 0.0), end),
                text=text,
                confidence=round(min(math.exp(segment.avg_logprob), 1.0), 4),
            )
            for segment in found
            if (text := segment.text.strip())
        )
        return (info.language if segments else None), segments

    def _known(self, language: str | None) -> str | None:
        if language is None:
            return None
        spoken = language.partition("-")[0].lower()
        if spoken not in self._whisper.supported_languages:
            message = f"The speech model does not know the language {spoken!r}"
            raise DocumentFailure(Code.VALIDATION_FAILED, message)
        return spoken
