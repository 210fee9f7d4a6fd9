"""The settings as a command sees them."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.config import Settings, load

from .failures import Stop


def settings_with(**given: str | int | Path | None) -> Settings:
    """The settings, where an option of the command wins over the environment; None means that it was not given."""
    overlay = {}
    for name, value in given.items():
        if value is None:
            continue
        if not str(value):
            message = f"--{name.rpartition('_')[2]} must not be empty."
            raise Stop(message)
        overlay[name.upper()] = str(value)
    return load({**os.environ, **overlay})
