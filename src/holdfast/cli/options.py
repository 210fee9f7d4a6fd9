"""Options that several commands share, and how the values of options and arguments are read."""

from __future__ import annotations

import getpass
import json
import os
import re
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from .failures import Stop

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The data folder; otherwise HOLDFAST_DATA. Not used in a cluster.",
        show_default=False,
    ),
]
App = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:APP",
        help="Your own workloads, such as mymodule:app; otherwise HOLDFAST_APP, or app in holdfast.toml.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output, for scripts.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="The API's address; otherwise API_HOST and API_PORT.", show_default=False
    ),
]
Actor = Annotated[
    str | None,
    typer.Option("--actor", metavar="WHO", help="Who decides; otherwise your user name.", show_default=False),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most this many.")]
Cursor = Annotated[
    str | None, typer.Option("--cursor", metavar="NEXT", help="Continue where the last list ended.", show_default=False)
]
Tenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="TENANT", help="Only those of this tenant, by id or name.", show_default=False),
]
Workload = Annotated[
    str | None,
    typer.Option(
        "--workload", "-w", metavar="NAME", help="Only this workload; otherwise all of them.", show_default=False
    ),
]


def content(name: str, given: str) -> bytes:
    """The content of an argument: the argument itself, or with ``@`` the content of that file (``@-``: stdin)."""
    if not given.startswith("@"):
        return given.encode(errors="surrogateescape")
    if given == "@-":
        return sys.stdin.buffer.read()
    try:
        return Path(given[1:]).read_bytes()
    except OSError as error:
        message = f"{name}: {given[1:]} cannot be read: {error.strerror}."
        raise Stop(message) from error
    except ValueError as error:  # a NUL in the name
        message = f"{name}: that is not the name of a file."
        raise Stop(message) from error


def json_object(name: str, given: str) -> dict[str, Any]:
    """A JSON object, given as text or as ``@file``. Error messages name the place of a mistake and quote nothing."""
    try:
        found = json.loads(content(name, given))
    except json.JSONDecodeError as error:
        message = f"{name} is not JSON: {error.msg} (line {error.lineno}, column {error.colno})."
        raise Stop(message) from None
    except (ValueError, RecursionError):
        message = f"{name} is not JSON in UTF-8."
        raise Stop(message) from None
    if not isinstance(found, dict):
        message = f'{name} must be a JSON object, such as {{"name": "value"}}.'
        raise Stop(message)
    return found


def conditions(given: Iterable[str], example: str = "reason=HTTP_422") -> dict[str, str]:
    """``field=value``, each field once."""
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = (part.strip() for part in each.partition("="))
        if not name or not equals or not value:
            message = f"--where takes field=value, such as {example}, not {each!r}."
            raise Stop(message)
        if name in found:
            message = f"--where {name}=... is given twice; all conditions must hold, so one of them could never match."
            raise Stop(message)
        found[name] = value
    return found


def instant(name: str, given: str, what: str = "an instant with its offset, such as 2026-02-26T12:00:00Z") -> datetime:
    """An ISO-8601 instant. It must have an offset: without one, every machine would read another moment."""
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        message = f"{name} takes {what}, not {given!r}."
        raise Stop(message)
    return found


def span(name: str, given: str) -> timedelta:
    """A duration such as 30s."""
    from holdfast.contracts.times import duration  # noqa: PLC0415 - every start of the program imports this module

    try:
        return duration(given)
    except (ValueError, OverflowError):
        message = f"{name} takes a duration, such as 500ms, 10s, 5m, 2h or 7d, not {given!r}."
        raise Stop(message) from None


def instant_or_ago(name: str, given: str, now: datetime) -> datetime:
    """An instant, or a duration before now: ``2026-02-26T12:00:00Z`` or ``2h``."""
    if re.fullmatch(r"[0-9.]+ ?[a-z]+", given.strip()):
        try:
            return now - span(name, given)
        except OverflowError:
            message = f"{name} {given} ago is before the first year."
            raise Stop(message) from None
    return instant(name, given, "an instant with its offset, such as 2026-02-26T12:00:00Z, or a duration such as 2h")


def user_name() -> str:
    """The name of the user who runs this program. Raises :class:`Stop` for a user without a name."""
    for name in ("USER", "LOGNAME", "USERNAME"):
        if os.environ.get(name):
            return os.environ[name]
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        message = "Give the name of the person who decides with --actor: this user has no name here."
        raise Stop(message) from None
