"""The data folder: made at the first start. A refusal names the setting."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from holdfast.contracts.errors import ConfigurationError
from holdfast.sqlite.database import files_of

DATABASE_FILE: Final = "holdfast.db"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def prepare_data_folder(folder: Path) -> None:
    """Make the folder if it is not there. Raises :class:`ConfigurationError` if this user cannot work in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError as error:
        raise _refused(folder, "it is not a folder") from error
    except OSError as error:
        raise _refused(folder, error.strerror or str(error)) from error
    check_data_folder(folder)
    _close_to_others(folder)


def open_to_others(folder: Path) -> list[Path]:
    """The data folder, if others may read it, and files of the database that others may read."""
    return [each for each in (folder, *files_of(folder / DATABASE_FILE)) if _rights_of_others(each)]


def _close_to_others(folder: Path) -> None:
    """Take the folder and the database from other users. Holdfast keeps what tenants send, in clear, in both.

    A folder of another owner, such as the mount of a container, cannot be changed. There the group may have rights:
    the owner decided so. If all users have rights, the folder is refused.
    """
    for each in open_to_others(folder):
        owned = each.stat().st_uid == os.geteuid()
        if owned and not each.stat().st_mode & stat.S_ISVTX:
            each.chmod(stat.S_IMODE(each.stat().st_mode) & ~_OTHERS)
        elif owned or each.stat().st_mode & stat.S_IRWXO:
            raise _refused(folder, f"other users may read {each.name or each}, and this user cannot change that")


def _rights_of_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & _OTHERS)
    except OSError:
        return False


def check_data_folder(folder: Path) -> None:
    """Raise :class:`ConfigurationError` if the folder is there and this user cannot work in it."""
    database = folder / DATABASE_FILE
    if os.access(folder, os.F_OK) and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise _refused(folder, "this user may not read and write there")
    if os.access(database, os.F_OK) and not os.access(database, os.R_OK | os.W_OK):
        raise _refused(folder, f"this user may not read and write {DATABASE_FILE}")


def _refused(folder: Path, why: str) -> ConfigurationError:
    """The error for a data folder that cannot be used."""
    return ConfigurationError(
        f"Cannot use the data folder {folder.absolute()}: {why}. "
        "Set HOLDFAST_DATA or --data to a folder that this user can write to."
    )
