"""Finding the user's own workloads."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.workload import App


def load_app(reference: str) -> App:
    """The :class:`App` that ``module:attribute`` names, looked for in the current folder too."""
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        message = f"--app takes module:attribute, such as mymodule:app, not {reference!r}."
        raise ConfigurationError(message)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        message = f"--app {reference}: there is no module {error.name!r} here or on the Python path."
        raise ConfigurationError(message) from error
    except Exception as error:
        message = f"--app {reference}: importing {module_name!r} failed: {type(error).__name__}: {error}"
        raise ConfigurationError(message) from error
    found = getattr(module, attribute, None)
    if found is None:
        message = f"--app {reference}: the module {module_name!r} has no {attribute!r}."
        raise ConfigurationError(message)
    if not isinstance(found, App):
        message = f"--app {reference}: {attribute!r} is a {type(found).__name__}, not a holdfast.App."
        raise ConfigurationError(message)
    return found
