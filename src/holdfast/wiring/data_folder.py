"""The data folder: made at the first start. A refusal names the setting."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from holdfast.contracts.errors import ConfigurationError

DATABASE_FILE: Final = "holdfast.db"


def prepare_data_folder(folder: Path) -> None:
    """Make the folder if it is not there. Raises :class:`ConfigurationError` if this user cannot work in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError as error:
        raise _refused(folder, "it is not a folder") from error
    except OSError as error:
        raise _refused(folder, error.strerror or str(error)) from error
    check_data_folder(folder)


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
