"""The keys that protect personal data: from the settings, or made once and kept in the data folder.

In a cluster the keys must be set: processes on several machines need the same keys, and share no folder. On one
machine the keys are made on first use and kept beside the ledger, readable only by the owner. Without the keys, sealed
data cannot be read, and recipients cannot be recognised. So back up the keys, apart from the backup of the ledger.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic_core import PydanticCustomError

from holdfast.feature import Settings

from .settings import EmailSettings, sealing_keys

KEYS_FILE: Final = "email-keys.json"
_BYTES: Final = 32
_FIRST: Final = "first"


@dataclass(frozen=True, slots=True)
class EmailSecrets:
    """The keys for hashing and sealing. ``current`` names the key that seals; every key can open."""

    pepper: bytes = field(repr=False)
    keys: Mapping[str, bytes] = field(repr=False)
    current: str


class KeysUnreadable(OSError):
    """The file with the keys exists and cannot be used."""


def email_secrets(process: Settings, *, create: bool = True) -> EmailSecrets | None:
    """The keys; None if there are none: in a cluster without these settings, or before the keys are made.

    Any number of processes that start on an empty folder agree on one file. Raises :class:`KeysUnreadable` if that file
    is damaged: with a new file, everything that the old keys sealed would be lost.
    """
    settings = process.of(EmailSettings)
    if settings.email_pepper is not None and settings.email_keys is not None:
        keys = sealing_keys(settings.email_keys.get_secret_value())
        return EmailSecrets(settings.email_pepper.get_secret_value().encode(), keys, list(keys)[-1])
    if process.cluster:
        return None
    path = process.holdfast_data / KEYS_FILE
    if create and not path.exists():
        process.holdfast_data.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make(path)
    return _read(path) if path.exists() else None


def add_key(process: Settings, name: str) -> Path:
    """Add a new key to the file in the data folder. The new key seals after the next start.

    Raises :class:`KeysUnreadable` for a file that cannot be used, and ValueError if there is no file (the settings have
    the keys, or no keys were made yet) or if the file has a key of this name.
    """
    path = process.holdfast_data / KEYS_FILE
    if process.of(EmailSettings).email_keys is not None or process.cluster or not path.exists():
        message = "The keys are not kept in the data folder."
        raise ValueError(message)
    if name in _read(path).keys:
        message = "There is a key of this name already."
        raise ValueError(message)
    content = json.loads(path.read_text(encoding="ascii"))
    content["keys"][name] = fresh_key()
    _write(path, content, lambda made: made.replace(path))
    return path


def fresh_key() -> str:
    """A random key, in the form of the settings."""
    return base64.b64encode(secrets.token_bytes(_BYTES)).decode("ascii")


def _make(path: Path) -> None:
    """Make the file. If another process has made it already, its file stays."""
    content = {"pepper": fresh_key(), "keys": {_FIRST: fresh_key()}}
    with contextlib.suppress(FileExistsError):
        _write(path, content, path.hardlink_to)


def _write(path: Path, content: object, put: Callable[[Path], object]) -> None:
    """Write a whole file beside ``path``, and let ``put`` move it there."""
    # First beside it, with mode 0600 and synced to the disk: nobody reads half a file, and a power cut loses none.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    made = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            json.dump(content, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        put(made)
    finally:
        made.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(path: Path) -> EmailSecrets:
    try:
        content: Any = json.loads(path.read_text(encoding="ascii"))
        # Used as text, like EMAIL_PEPPER: after a move from this file into the settings, the hashes are the same.
        pepper = content["pepper"].encode("ascii")
        keys = sealing_keys(json.dumps(content["keys"]))
        usable = len(pepper) >= _BYTES
    except (ValueError, KeyError, TypeError, AttributeError, PydanticCustomError):
        # Raised below, outside the handler: this error holds the text of the file.
        usable = False
    if not usable:
        raise KeysUnreadable(None, "holds no usable keys; restore it from a backup", str(path))
    return EmailSecrets(pepper, keys, list(keys)[-1])
