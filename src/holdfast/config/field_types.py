"""Types of settings as people write them: numbers that are no booleans, words in any case, lists with commas."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

MASK: Final = "********"


def refuse(sentence: str) -> NoReturn:
    """Fail a validation with this sentence, which follows the setting's name."""
    kind: Final = "refused"
    raise PydanticCustomError(kind, "{sentence}", {"sentence": sentence})


def lower(value: object) -> object:
    """Names of choices may be written in any case."""
    return value.lower() if isinstance(value, str) else value


def _no_bool(value: object) -> object:
    # For pydantic, true is the number 1. But `api_port = true` is a mistake.
    if isinstance(value, bool):
        message = "a boolean is not a number"
        raise ValueError(message)  # noqa: TRY004 - pydantic makes a validation error only of a ValueError
    return value


def listed(value: object) -> object:
    """In the environment, a list is text with commas; in the file, it is a list."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def path(value: object) -> object:
    """A path as people write it: ``~`` is their home folder. An empty text is no path, and a text with NUL is none."""
    if value == "" or (isinstance(value, str) and "\0" in value):
        refuse("must be a path")
    try:
        return Path(value).expanduser() if isinstance(value, str) else value
    except RuntimeError:  # ~name, where there is no user of that name
        refuse("names the home folder of a user that does not exist")


def web_address(value: str) -> str:
    """An ``http`` or ``https`` address without a user name. No error repeats it: it may hold a password."""
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
        parts = urlsplit("")
    if not usable or "@" in parts.netloc or re.fullmatch(r"[!-~]+", value) is None:
        refuse("must be an http:// or https:// address without a user name")
    return value


def host_only(address: str) -> str:
    """The address for display. A user name, a path and a query may hold a token: they are masked."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return MASK
    user, _, host = parts.netloc.rpartition("@")
    secret = parts.path.strip("/") or parts.query or parts.fragment
    return f"{parts.scheme}://{f'{MASK}@' if user else ''}{host}{f'/{MASK}' if secret else parts.path}"


@dataclass(frozen=True, slots=True)
class Shown:
    """How ``holdfast config show`` shows a value: a marker for the type of a setting."""

    how: Callable[[Any], str]


Int = Annotated[int, BeforeValidator(_no_bool)]
MaybeInt = Annotated[int | None, BeforeValidator(_no_bool)]
Float = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_no_bool)]
WebAddress = Annotated[
    str | None, AfterValidator(lambda value: value if value is None else web_address(value)), Shown(host_only)
]
