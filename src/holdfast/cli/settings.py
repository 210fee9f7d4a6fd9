"""Loading the settings for a command."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast import App
from holdfast.config import Settings, SettingsError, load
from holdfast.installed import settings_model

from .failures import Stop


def settings_with(app: App | None = None, **given: str | int | Path | None) -> Settings:
    """The settings, with those of the installed features and of the app.

    An option of the command has priority over the environment; None: the option was not given.

    Raises :class:`Stop` with every problem of the settings.
    """
    overlay = {}
    for name, value in given.items():
        if value is None:
            continue
        if not str(value):
            message = f"--{name.rpartition('_')[2]} must not be empty."
            raise Stop(message)
        overlay[name.upper()] = str(value)
    try:
        return load({**os.environ, **overlay}, model=settings_model(app))
    except SettingsError as error:
        raise Stop(*error.problems) from None
