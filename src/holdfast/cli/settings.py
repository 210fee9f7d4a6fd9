"""Loading the user's app and the settings for a command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from holdfast import App, ConfigurationError, HoldfastError, scrub
from holdfast.config import Settings, SettingsError, load
from holdfast.installed import settings_model

from .failures import Stop
from .output import say

APP_VARIABLE: Final = "HOLDFAST_APP"


def app_of(reference: str | None) -> App | None:
    """The user's app: that of ``--app``, or of HOLDFAST_APP, which every command reads.

    An exception while its module is imported is an error of the user's code, not our bug.
    """
    reference = reference or os.environ.get(APP_VARIABLE) or None
    if reference is None:
        return None
    from holdfast.wiring import load_app  # noqa: PLC0415 - a command that only sends does without a store

    try:
        return load_app(reference)
    except HoldfastError:
        raise
    except Exception as error:
        message = f"--app {reference} cannot be imported: {type(error).__name__}: {scrub(str(error))}"
        raise ConfigurationError(message) from error


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
        settings = load({**os.environ, **overlay}, model=settings_model(app or app_of(None)))
    except SettingsError as error:
        raise Stop(*error.problems) from None
    for warning in settings.warnings:
        say(f"Warning: {warning}")
    return settings
