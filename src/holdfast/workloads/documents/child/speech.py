"""The local speech engine: Whisper by faster-whisper, on the processor, with 8-bit integers."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Final

from holdfast.workloads.documents.failures import Code, DocumentFailure

from .protocol import Segment
from .whisper_files import whisper_files

if TYPE_CHECKING:
    import numpy as np

_RATE: Final = 16_000
_BEAM: Final = 5
"""One beam alone is a quarter quicker, and loses whole sentences."""


class LocalSpeech:
    """Writes down speech on this machine. Making one loads the model; it never asks the network.

    A silent stretch has no segments: the voice detector of faster-whisper's own wheel decides what is worth
    hearing, because Whisper invents words for silence.
    """

    name: str = "local"
    model: str

    def __init__(self, model_dir: str | None, threads: int) -> None:
        files = whisper_files(model_dir)
        # Read at the import. Nothing here needs the hub; should the library come to think so, it fails at once.
        os.environ["HF_HUB_OFFLINE"] = "1"
        from faster_whisper import WhisperModel  # noqa: PLC0415 - heavy: only who transcribes pays for it

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

    def transcribe(self, sound: np.ndarray, *, language: str | None) -> tuple[str | None, tuple[Segment, ...]]:
        """The language and the segments; None and none for a stretch without speech.

        A given language is taken as given, without its region ("pt" of "pt-BR").
        """
        from faster_whisper.vad import get_speech_timestamps  # noqa: PLC0415 - heavy

        spoken = self._known(language)
        # The library would detect the language of nothing, at the price of a whole window.
        if not get_speech_timestamps(sound):
            return None, ()
        found, info = self._whisper.transcribe(
            sound,
            language=spoken,
            beam_size=_BEAM,
            vad_filter=True,
            # What goes wrong in one window must not go on in the next.
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
