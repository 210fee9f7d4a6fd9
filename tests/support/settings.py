"""The settings with those of the installed features, as the program composes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast import config
from holdfast.installed import settings_model

Settings: Any = settings_model()


def load(environ: Mapping[str, str], folder: Path | None = None) -> Any:
    """As :func:`holdfast.config.load`, with the features' settings."""
    return config.load(environ, folder, Settings)
