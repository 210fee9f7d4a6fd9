"""One attempt, inside the child: choose the reader and the engine, and send how the attempt ended."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from holdfast import EXTRA_OF, install_command, scrub
from holdfast.features.documents.failures import Code, DocumentFailure

from .limits import is_out_of_memory
from .port import Ask, engine_class
from .protocol import Failed, Finished, Message, Spec

_OURS = "holdfast"
_MOST_CAUSES = 20


def run(spec: Spec, send: Callable[[Message], None], ask: Ask) -> None:
    """Read the file of the spec. The last message is always Finished or Failed. Only ``send`` can raise."""
    try:
        _read(spec, send, ask)
    except Exception as error:  # noqa: BLE001 - the worker must learn of every error
        last: Message = failed(error)
    else:
        last = Finished()
    # Only here: the exception and the memory that its frames held are free now.
    send(last)


def _read(spec: Spec, send: Callable[[Message], None], ask: Ask) -> None:
    def engine() -> Any:  # noqa: ANN401 - of the kind that the file needs
        return engine_class(spec).of(spec, ask)

    if spec.input_type == "PDF":
        from .pdf import read_pdf  # noqa: PLC0415 - heavy: only a PDF needs it

        read_pdf(spec, send, engine)
    else:
        from .media import read_recording  # noqa: PLC0415 - heavy: only a recording needs it

        read_recording(spec, send, engine)


def failed(error: Exception) -> Failed:
    """The message for an exception. Texts of libraries' exceptions are left out: they may quote the document (I14)."""
    # First: a library that was refused memory may have reported a damaged file.
    if any(_is_memory_error(each) for each in _causes(error)):
        return Failed(code=Code.OUT_OF_MEMORY, detail=_where(error))
    if isinstance(error, DocumentFailure):
        after = error.retry_after.total_seconds() if error.retry_after is not None else None
        return Failed(code=error.code, message=error.message, detail=error.detail, retry_after=after)
    if isinstance(error, ImportError) and error.name and error.name.partition(".")[0] != _OURS:
        # A dependency of a library is installed by the extra of the page reader.
        named = error.name if error.name in EXTRA_OF else "pypdfium2"
        message = f"The engine needs {error.name}, which is not installed here: {install_command([named])}"
        # The text of a failed import names only modules and libraries: the document was not opened yet.
        return Failed(code=Code.ENGINE_UNAVAILABLE, message=message, detail=scrub(str(error)))
    return Failed(code=Code.UNEXPECTED, detail=_where(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and its causes."""
    for _ in range(_MOST_CAUSES):
        yield error
        earlier = error.__cause__ or error.__context__
        if earlier is None:
            return
        error = earlier


def _is_memory_error(error: BaseException) -> bool:
    if isinstance(error, DocumentFailure):
        return error.code is Code.OUT_OF_MEMORY
    if isinstance(error, OSError) and not isinstance(error, MemoryError):
        # Its text may hold a file's name, so the text is not searched.
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or is_out_of_memory(str(error))


def _where(error: BaseException) -> str:
    """The type of an exception, the line that raised it, and the last line of our own code before that."""
    frames = [(frame.f_globals.get("__name__", "?"), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    places = [f"{module}:{line}" for module, line in frames]
    ours = [place for place in places if place.startswith(f"{_OURS}.")]
    where = f"{type(error).__qualname__} at {places[-1]}" if places else type(error).__qualname__
    return where if not ours or ours[-1] == places[-1] else f"{where}, called by {ours[-1]}"
