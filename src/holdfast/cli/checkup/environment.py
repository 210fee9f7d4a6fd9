"""The machine and the configuration: versions, settings, secrets, the clock, the port."""

from __future__ import annotations

import os
import platform
import sqlite3
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx

from holdfast.cli.failures import Stop
from holdfast.cli.posting import base_url
from holdfast.cli.settings import settings_with
from holdfast.config import CONFIG_FILE, Settings, email_secrets
from holdfast.contracts.errors import ConfigurationError
from holdfast.features.email.commands.parts import why_no_email
from holdfast.features.email.keys import KEYS_FILE, KeysUnreadable
from holdfast.wiring import listen
from holdfast.wiring.libraries import email_lack

from .findings import FAIL, OK, WARN, Finding
from .libraries import lacking

_OLDEST_SQLITE: Final = (3, 38, 0)
_THIS_PROGRAM_IS_YOUNGER: Final = datetime(2025, 1, 1, tzinfo=UTC)
_TIMEOUT_SECONDS: Final = 3.0


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


def configuration(data: Path | None) -> tuple[Settings | None, list[Finding]]:
    """The settings, if they can be loaded, and the findings about them."""
    try:
        settings = settings_with(holdfast_data=data)
    except Stop as stop:
        return None, [Finding("config", FAIL, each, "Correct this setting.") for each in stop.sentences]
    return settings, [
        Finding("config", OK, "The settings can be loaded."),
        *_privacy(),
        *_secrets(settings),
        _emails(settings),
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
    if not settings.courier_secrets:
        advice = "Give couriers secrets in COURIER_SECRETS, unless you have no couriers."
        yield Finding("couriers", WARN, "No courier has a secret, so every courier event is refused.", advice)
    for source, secrets in settings.courier_secrets.items():
        if not any(each.active_at(datetime.now(UTC)) for each in secrets):
            advice = "Check notBefore and notAfter in COURIER_SECRETS."
            yield Finding("couriers", WARN, f"No secret of {source} is valid at this time.", advice)


def _emails(settings: Settings) -> Finding:
    """Whether emails can be sent, and by which transport."""
    lack = email_lack(settings)
    if lack is not None:
        return lacking(lack, "Not sent here")
    try:
        ready = email_secrets(settings, create=False) is not None or not settings.cluster
    except KeysUnreadable as error:
        advice = "Restore it from a backup: without it, what was sealed cannot be read."
        return Finding("emails", FAIL, f"{error.filename} holds no usable keys.", advice)
    if not ready:
        message, _, advice = why_no_email(settings).partition(": ")
        return Finding("emails", WARN, f"{message}.", f"{advice[:1].upper()}{advice[1:]}")
    keys = settings.holdfast_data / KEYS_FILE
    if os.name == "posix" and keys.is_file() and keys.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Finding("emails", WARN, f"{keys} holds secrets, and others may read it.", f"chmod 600 {keys}")
    return Finding("emails", OK, f"They are sent by {settings.email_transport}.")


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
