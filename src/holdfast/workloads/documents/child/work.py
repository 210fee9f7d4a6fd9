"""One attempt, inside the child: choose who reads, and tell how it ended."""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Callable, Iterator

from holdfast.contracts.extras import EXTRA_OF, install_command
from holdfast.contracts.redaction import scrub
from holdfast.workloads.documents.failures import Code, DocumentFailure

from .limits import says_no_memory
from .port import PageEngine, SpeechEngine
from .protocol import Failed, Finished, Message, Spec

_OURS = "holdfast"
_MOST_CAUSES = 20


def run(spec: Spec, tell: Callable[[Message], None]) -> None:
    """Read what the spec says. The last thing told is always Finished or Failed; nothing is raised but by ``tell``."""
    try:
        _read(spec, tell)
    except Exception as error:  # noqa: BLE001 - the keeper has to hear of every surprise
        last: Message = _failed(error)
    else:
        last = Finished()
    # Only here, where the exception no longer holds on to what filled the memory.
    tell(last)


def _read(spec: Spec, tell: Callable[[Message], None]) -> None:
    key = os.environ.pop("GEMINI_API_KEY", "")

    def pages() -> PageEngine:
        if spec.engine == "gemini":
            from .gemini import GeminiPages  # noqa: PLC0415 - only who asks for it pays for it

            return GeminiPages(spec.gemini_model, spec.gemini_base_url, spec.gemini_timeout, key)
        from .ocr import LocalPages  # noqa: PLC0415 - likewise

        return LocalPages(spec.threads)

    def speech() -> SpeechEngine:
        if spec.engine == "gemini":
            from .gemini import GeminiSpeech  # noqa: PLC0415 - likewise

            return GeminiSpeech(spec.gemini_model, spec.gemini_base_url, spec.gemini_timeout, key)
        from .speech import LocalSpeech  # noqa: PLC0415 - likewise

        return LocalSpeech(spec.whisper_model_dir, spec.threads)

    if spec.input_type == "PDF":
        from .pdf import read_pdf  # noqa: PLC0415 - likewise

        read_pdf(spec, tell, pages)
    else:
        from .media import read_recording  # noqa: PLC0415 - likewise

        read_recording(spec, tell, speech)


def _failed(error: Exception) -> Failed:
    """What to tell of an exception. Texts of others' exceptions are not repeated: they may quote the document (I14)."""
    # First: whoever was refused memory may have taken it for a damaged file.
    if any(_of_memory(each) for each in _causes(error)):
        return Failed(code=Code.OUT_OF_MEMORY, detail=_where(error))
    if isinstance(error, DocumentFailure):
        after = error.retry_after.total_seconds() if error.retry_after is not None else None
        return Failed(code=error.code, message=error.message, detail=error.detail, retry_after=after)
    if isinstance(error, ImportError) and error.name and error.name.partition(".")[0] != _OURS:
        # A library of a library is brought by the same extra as what reads pages.
        named = error.name if error.name in EXTRA_OF else "pypdfium2"
        message = f"The engine needs {error.name}, which is not installed here: {install_command([named])}"
        # The text of a failed import names modules and libraries, and nothing else was touched yet.
        return Failed(code=Code.ENGINE_UNAVAILABLE, message=message, detail=scrub(str(error)))
    return Failed(code=Code.UNEXPECTED, detail=_where(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception, and those that it came from."""
    for _ in range(_MOST_CAUSES):
        yield error
        earlier = error.__cause__ or error.__context__
        if earlier is None:
            return
        error = earlier


def _of_memory(error: BaseException) -> bool:
    if isinstance(error, DocumentFailure):
        return error.code is Code.OUT_OF_MEMORY
    if isinstance(error, OSError) and not isinstance(error, MemoryError):
        # Its text may hold a file's name.
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or says_no_memory(str(error))


def _where(error: BaseException) -> str:
    """The type of an exception and where it was raised: in whose module, and by which line of ours."""
    frames = [(frame.f_globals.get("__name__", "?"), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    places = [f"{module}:{line}" for module, line in frames]
    ours = [place for place in places if place.startswith(f"{_OURS}.")]
    told = f"{type(error).__qualname__} at {places[-1]}" if places else type(error).__qualname__
    return told if not ours or ours[-1] == places[-1] else f"{told}, called by {ours[-1]}"
