"""The machine and the configuration: versions, libraries, settings, secrets, the clock, the port."""

from __future__ import annotations

import os
import platform
import sqlite3
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

import httpx

from holdfast import App
from holdfast.cli.failures import Stop
from holdfast.cli.opening import settings_with
from holdfast.cli.posting import base_url
from holdfast.config import CONFIG_FILE, Settings
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.extras import DISTRIBUTION
from holdfast.feature import FAIL, OK, WARN, Finding
from holdfast.installed import Lack
from holdfast.wiring import listen

_OLDEST_SQLITE: Final = (3, 38, 0)
_THIS_PROGRAM_IS_YOUNGER: Final = datetime(2025, 1, 1, tzinfo=UTC)
_TIMEOUT_SECONDS: Final = 3.0
_NAMESAKE: Final = "holdfast"
"""Another project's distribution on PyPI, with a package of the same name."""
_PROGRAM: Final = "holdfast.cli:main"
"""The entry point of our command."""


def versions(*, embedded: bool) -> Iterator[Finding]:
    """What this runs on."""
    yield Finding("python", OK, f"Python {platform.python_version()} on {platform.system()}")
    if not embedded:
        return
    found = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info >= _OLDEST_SQLITE:
        yield Finding("sqlite", OK, f"SQLite {found}")
    else:
        needed = ".".join(map(str, _OLDEST_SQLITE))
        yield Finding("sqlite", FAIL, f"SQLite {found} is too old.", f"Use a Python that has SQLite {needed} or newer.")


def lacking(lack: Lack, left_out: str) -> Finding:
    """The finding for missing libraries: FAIL if a setting needs them, otherwise information."""
    if lack.asked_by is not None:
        return Finding(lack.part, FAIL, lack.message, f"Install it: {lack.remedy}")
    return Finding(lack.part, OK, f"{left_out}: {', '.join(lack.missing)} not installed.", f"Wanted? {lack.remedy}")


def installation() -> Finding:
    """Whether our distribution is installed, and no other distribution has files in our package."""
    check = "installation"
    found = {_normal(each.name): each for each in distributions() if each.name}
    advice = f"Uninstall both, then install ours: pip uninstall {_NAMESAKE} {DISTRIBUTION}; pip install {DISTRIBUTION}"
    other, ours = found.get(_NAMESAKE), found.get(DISTRIBUTION)
    if other is not None and any(each.value == _PROGRAM for each in other.entry_points):
        message = f"{_NAMESAKE} {other.version} is installed too: an older Holdfast, from before it was {DISTRIBUTION}."
        return Finding(check, WARN, message, advice)
    if other is not None:
        message = (
            f"The distribution {_NAMESAKE} {other.version} is installed too. It is another project, and both have a "
            f"package {_NAMESAKE}: files of one have replaced files of the other."
        )
        return Finding(check, FAIL, message, advice)
    if ours is None:
        return Finding(check, WARN, f"{DISTRIBUTION} is not installed; this is a copy of its files.")
    return Finding(check, OK, f"{DISTRIBUTION} {ours.version}")


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def configuration(app: App | None, data: Path | None) -> tuple[Settings | None, list[Finding]]:
    """The settings, if they can be loaded, and the findings about them."""
    try:
        settings = settings_with(app, holdfast_data=data)
    except Stop as stop:
        return None, [Finding("config", FAIL, each, "Correct this setting.") for each in stop.sentences]
    except ConfigurationError as error:  # a feature that cannot be loaded, or two that have a setting of one name
        return None, [Finding("features", FAIL, error.message, "Correct or uninstall it: until then nothing starts.")]
    return settings, [
        Finding("config", OK, "The settings can be loaded."),
        *_privacy(),
        *_secrets(settings),
    ]


def _privacy() -> Iterator[Finding]:
    path = Path(os.environ.get("HOLDFAST_CONFIG") or CONFIG_FILE)
    if os.name == "posix" and path.is_file() and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield Finding("config file", WARN, f"{path} holds secrets, and others may read it.", f"chmod 600 {path}")


def _secrets(settings: Settings) -> Iterator[Finding]:
    problems = settings.secret_problems()
    if problems and settings.holdfast_demo:
        yield Finding("secrets", WARN, "HOLDFAST_DEMO allows unsafe secrets.", "Never run anything real like this.")
    elif problems:
        for each in problems:
            message, _, advice = each.partition(". ")
            yield Finding("secrets", FAIL, f"{message.rstrip('.')}.", advice or None)
    else:
        yield Finding("secrets", OK, "Nothing missing, short or well known.")


def clock() -> Finding:
    """Whether this machine's clock is plausible. The ledger's check compares the clock with older entries."""
    now = datetime.now(UTC)
    if now < _THIS_PROGRAM_IS_YOUNGER:
        advice = "Set the clock, and keep it set (NTP): signatures, leases and retention depend on it."
        return Finding(
            "clock", FAIL, f"It shows {now:%Y-%m-%d %H:%M} UTC, a time before this program was made.", advice
        )
    return Finding("clock", OK, f"{now:%Y-%m-%d %H:%M:%S} UTC")


def port(settings: Settings) -> Finding:
    """Whether the API can listen on its address, or already does."""
    where = f"{settings.api_host}:{settings.api_port}"
    try:
        listen(settings.api_host, settings.api_port).close()
    except ConfigurationError as error:
        served = _served(settings)
        if served is None:
            advice = "Stop the program that listens there, or set API_HOST and API_PORT to something else."
            return Finding("port", FAIL, error.message.partition(" Set ")[0], advice)
        if not served:
            advice = "Look at its log; `holdfast doctor` on its machine checks its disk."
            return Finding("port", WARN, f"A Holdfast serves {where}, but its ledger cannot commit.", advice)
        return Finding("port", OK, f"A Holdfast serves {where} and is ready.")
    free = "any free port" if settings.api_port == 0 else where
    return Finding("port", OK, f"The API can listen on {free}.")


def _served(settings: Settings) -> bool | None:
    """Whether the Holdfast on the port is ready; None if another program has the port."""
    try:
        with httpx.Client(timeout=_TIMEOUT_SECONDS, trust_env=False) as client:
            answer: Any = client.get(f"{base_url(None, settings)}/ready").json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None
    if not isinstance(answer, dict) or not {"ready", "store", "queue"} <= set(answer):
        return None
    return answer["ready"] is True
