"""The input type and the job type of a file: as given by options, otherwise guessed."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, BinaryIO, Final
from urllib.parse import urlsplit

import typer

from holdfast.feature import HEAD
from holdfast.features.documents.contract import FITTING, InputType, JobType
from holdfast.features.documents.sniffing import Family, family_of, mismatch
from holdfast.terminal import Stop

JobTypeOption = Annotated[
    JobType | None,
    typer.Option("--job-type", help="OCR or TRANSCRIPTION; otherwise it follows from the file.", show_default=False),
]
InputTypeOption = Annotated[
    InputType | None,
    typer.Option("--input-type", help="The type of the file; otherwise found by its first bytes.", show_default=False),
]
_SOUND: Final = frozenset(
    {".aac", ".flac", ".m4a", ".m4b", ".mka", ".mp3", ".oga", ".ogg", ".opus", ".wav", ".weba", ".wma"}
)
_PICTURES: Final = frozenset(
    {".avi", ".flv", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".ogv", ".ts", ".webm", ".wmv"}
)


@dataclass(frozen=True, slots=True)
class FileKind:
    """The types of a file. Not ``certain``: it is a recording, and audio or video is a guess."""

    job_type: JobType
    input_type: InputType
    certain: bool = True

    @property
    def other(self) -> FileKind:
        """AUDIO instead of VIDEO, or VIDEO instead of AUDIO."""
        swapped = InputType.AUDIO if self.input_type is InputType.VIDEO else InputType.VIDEO
        return FileKind(self.job_type, swapped)


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """An open file and its size. Raises :class:`Stop` if it cannot be opened."""
    try:
        found = path.stat()
        # Opening a pipe without a writer would block for ever.
        if not stat.S_ISREG(found.st_mode):
            message = f"{path} is not a file."
            raise Stop(message)
        file = path.open("rb")
    except FileNotFoundError:
        message = f"There is no file {path}."
        raise Stop(message) from None
    except ValueError:  # a NUL in the name
        message = "That is not the name of a file."
        raise Stop(message) from None
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}."
        raise Stop(message) from None
    with file:
        yield file, found.st_size


def kind_of_file(path: Path, job_type: JobType | None, input_type: InputType | None) -> FileKind:
    """The kind of a file. Raises :class:`Stop` if it is missing, has not the given type, or has an unknown type."""
    with opened(path) as (file, _):
        head = file.read(HEAD)
    if input_type is None and job_type is JobType.OCR:
        input_type = InputType.PDF
    if input_type is not None:
        problem = mismatch(input_type, head)
        if problem is not None:
            message = f"{path}: {problem}"
            raise Stop(message)
        return _fitting(job_type, input_type)
    match family_of(head):
        case Family.PDF:
            return _fitting(job_type, InputType.PDF)
        case Family.AUDIO:
            return _fitting(job_type, InputType.AUDIO)
        case Family.CONTAINER:
            # The first bytes do not show whether there are pictures.
            return _fitting(job_type, _by_name(path.suffix) or InputType.VIDEO, certain=False)
        case None:
            raise _unknown(path, head)


def kind_of_url(url: str, job_type: JobType | None, input_type: InputType | None) -> FileKind:
    """The kind of the file at a URL: as given, or by the URL's name. Raises :class:`Stop` if both are missing."""
    if input_type is None:
        try:
            input_type = _by_name(PurePosixPath(urlsplit(url).path).suffix)
        except ValueError:
            input_type = None
    if input_type is None:
        message = "The URL does not show the type of the file: give --input-type."
        raise Stop(message)
    return _fitting(job_type, input_type)


def _by_name(suffix: str) -> InputType | None:
    suffix = suffix.lower()
    if suffix == ".pdf":
        return InputType.PDF
    if suffix in _SOUND:
        return InputType.AUDIO
    return InputType.VIDEO if suffix in _PICTURES else None


def _fitting(job_type: JobType | None, input_type: InputType, *, certain: bool = True) -> FileKind:
    fits = next(each for each, inputs in FITTING.items() if input_type in inputs)
    if job_type not in {None, fits}:
        message = f"--job-type does not fit: for {input_type.value} it must be {fits.value}."
        raise Stop(message)
    return FileKind(fits, input_type, certain)


def _unknown(path: Path, head: bytes) -> Stop:
    if mismatch(InputType.AUDIO, head) is None:
        message = f"{path}: its first bytes do not show its type. Give --input-type."
        return Stop(message)
    # A known type that cannot be read here, or an empty file.
    problem = mismatch(InputType.PDF, head) or ""
    return Stop(f"{path}: {problem}", "PDFs, audio and video can be read.")
