"""Types of settings that read what people write: numbers that are no booleans, words in any case, lists with commas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from .courier_secrets import refuse


def lower(value: object) -> object:
    """Names of choices may be written in any case."""
    return value.lower() if isinstance(value, str) else value


def _no_bool(value: object) -> object:
    # To pydantic, true is the number 1. To whoever wrote `api_port = true`, it is a mistake.
    if isinstance(value, bool):
        message = "a boolean is not a number"
        raise ValueError(message)  # noqa: TRY004 - pydantic turns a ValueError, and only that, into a validation error
    return value


def listed(value: object) -> object:
    """In the environment, a list is text with commas; in the file, it is a list."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def path(value: object) -> object:
    """A path as people write it: ``~`` is their home folder. An empty text is none, nor is one with NUL."""
    if value == "" or (isinstance(value, str) and "\0" in value):
        refuse("must be a path")
    try:
        return Path(value).expanduser() if isinstance(value, str) else value
    except RuntimeError:  # ~somebody, who does not exist
        refuse("names the home folder of a user that does not exist")


Int = Annotated[int, BeforeValidator(_no_bool)]
Float = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_no_bool)]
