"""Loading the settings; all problems are reported at once. And the ``holdfast.toml`` that ``holdfast init`` writes."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

import annotated_types
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from .cluster_addresses import half_a_cluster
from .secret_safety import fresh_secret
from .settings import Origin, Settings

CONFIG_FILE: Final = "holdfast.toml"
_CONFIG_VARIABLE: Final = "HOLDFAST_CONFIG"
_TIMES: Final = frozenset({"notBefore", "notAfter"})
_PLACES: Final[Mapping[Origin, str]] = {"environment": "in the environment", "holdfast.toml": f"in {CONFIG_FILE}"}
_LEFT_OUT: Final = frozenset({"operator_token", "holdfast_app", "holdfast_demo"})
_SHORT: Final[Mapping[str, str]] = {"app": "holdfast_app"}
"""Names of the file for settings with a longer name."""

_HEAD: Final = """\
# Holdfast's settings. The environment wins over this file: API_PORT=9000 over api_port = 8080.
# This file holds secrets: keep it out of version control, and readable by you alone.
# `holdfast config show` prints what is in force, and where each value comes from.

# Bearer token for dead letters and other operator work.
operator_token = "{operator_token}"

# {app_help}
{app}

# Everything below is the default; remove the # to change it.
"""

CONSTANT_NOW: Final[Mapping[str, str]] = {
    "document_cache": "true; a request turns it off with cache: false",
    "document_chunk_seconds": "60",
    "document_fetch_timeout_seconds": "300",
    "document_max_attempts_ocr": "3, or DOCUMENT_MAX_ATTEMPTS",
    "document_max_attempts_transcription": "2, or DOCUMENT_MAX_ATTEMPTS",
    "document_unit_timeout_seconds": "300",
    "email_max_batch_bytes": "8388608",
    "email_message_domain": "the domain of EMAIL_FROM",
    "email_timeout_ms": "15000",
    "gemini_timeout_seconds": "120",
    "handler_timeout_ms": "25000 more than COURIER_DOWNSTREAM_TIMEOUT_MS",
    "intake_max_pending": "5000",
    "queue_keep_completed": "1000",
    "queue_keep_failed": "10000",
    "signature_tolerance_seconds": "300",
    "smtp_connections": "as many as EMAIL_CONCURRENCY",
}
"""Names that were settings, and what holds now. A configuration that still has one is warned of, not refused."""


class AppSetting(NamedTuple):
    """The user's app (``module:attribute``), as people wrote it, and the folder of the file.

    ``in_file``: the file names it, so the folder of the file comes first where the module is looked for.
    """

    reference: str
    written: str
    folder: Path
    in_file: bool


class SettingsError(ValueError):
    """The configuration is not usable. ``problems`` lists all that is wrong, a sentence each, without secrets."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems: tuple[str, ...] = tuple(problems)


def load(environ: Mapping[str, str], folder: Path | None = None, model: type[Settings] = Settings) -> Settings:
    """The settings: environment first, then ``holdfast.toml``, then defaults. ``model`` has the features' settings too.

    The file is the one that ``HOLDFAST_CONFIG`` names, else ``holdfast.toml`` in ``folder`` (the working directory) if
    there is one. A variable that is set to nothing counts as not set. Raises :class:`SettingsError` with all problems.
    """
    problems: list[str] = []
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = dict.fromkeys(model.model_fields, "default")

    in_file = _from_file(environ, folder or Path(), model, problems)
    gone = CONSTANT_NOW.keys() - model.model_fields.keys()
    warnings = [_constant_now(name, "holdfast.toml") for name in in_file if name in gone]
    warnings += [_constant_now(name, "environment") for name in sorted(gone) if environ.get(name.upper())]
    for name, value in in_file.items():
        if name in model.model_fields:
            values[name], origins[name] = value, "holdfast.toml"
    for name in model.model_fields:
        text = environ.get(name.upper(), "")
        if text:
            values[name], origins[name] = text, "environment"

    settings = _validated(model, values, origins, problems)
    if settings is None or problems:
        raise SettingsError(problems)
    return settings.as_loaded(origins, warnings)


def app_setting(environ: Mapping[str, str], folder: Path | None = None) -> AppSetting | None:
    """The app that the environment or the file names. Its features have settings, so it is found before the settings.

    A file that cannot be read names no app here; :func:`load` reports its problems.
    """
    path = _path(environ, folder or Path())
    if given := environ.get("HOLDFAST_APP"):
        return AppSetting(given, f"HOLDFAST_APP={given}", path.parent, in_file=False)
    try:
        content = _in_full(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return None
    given = content.get("holdfast_app")
    if not isinstance(given, str) or not given:
        return None
    return AppSetting(given, f'app = "{given}" in {path.name}', path.parent, in_file=True)


def _path(environ: Mapping[str, str], folder: Path) -> Path:
    return folder / (environ.get(_CONFIG_VARIABLE) or CONFIG_FILE)


def _from_file(environ: Mapping[str, str], folder: Path, model: type[Settings], problems: list[str]) -> dict[str, Any]:
    named = environ.get(_CONFIG_VARIABLE, "")
    path = _path(environ, folder)
    shown = f"{named} (named by {_CONFIG_VARIABLE})" if named else CONFIG_FILE
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if named:
            problems.append(f"{shown} does not exist.")
    except OSError as error:
        problems.append(f"{shown} cannot be read: {error.strerror}.")
    except (ValueError, RecursionError) as error:  # not TOML, or not UTF-8, or nested without end
        # The parser's message may quote the file, and the file holds secrets: only the place is shown.
        place = re.search(r"\(at [^)]*\)", str(error))
        problems.append(f"{shown} is not valid TOML{' ' + place[0] if place else ''}.")
    else:
        content = _without_tables(_in_full(content), model)
        problems += _unknown_keys(content, model)
        return content
    return {}


def _constant_now(name: str, origin: Origin) -> str:
    place, value = _PLACES[origin], CONSTANT_NOW[name]
    return f"{name.upper()} ({place}) does nothing: it is a constant now, not a setting. Its value: {value}."


def _in_full(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of the file with the whole names of its settings. A table keeps its name."""
    return {key if isinstance(value, dict) else _SHORT.get(key, key): value for key, value in content.items()}


def _without_tables(content: Mapping[str, Any], model: type[Settings]) -> dict[str, Any]:
    """The keys of a feature's table are its settings, with or without its name: ``[sms] url`` is ``sms_url``."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        fields = model.features[key].model_fields if key in model.features else {}
        if key in model.model_fields or not fields or not isinstance(value, dict):
            flat[key] = value
        else:
            known = {*fields, *CONSTANT_NOW}
            flat |= {f"{key}_{name}" if f"{key}_{name}" in known else name: each for name, each in value.items()}
    return flat


def _unknown_keys(content: Mapping[str, Any], model: type[Settings]) -> Iterator[str]:
    for key in content:
        if key not in model.model_fields and key not in CONSTANT_NOW:
            nearest = difflib.get_close_matches(key.lower(), model.model_fields, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ". `holdfast config show` lists the names."
            yield f"{CONFIG_FILE} has an unknown key {key[:60]!r}{hint}"


def _validated(
    model: type[Settings], values: Mapping[str, Any], origins: Mapping[str, Origin], problems: list[str]
) -> Settings | None:
    # The error must not leave this function: it holds the values, and values may be secrets.
    try:
        return model.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False)
        sentences = [_sentence(each, model, origins) if each["loc"] else each["msg"] for each in found]
    # Pydantic checks a rule about several settings only if each setting is valid. Here all problems are reported.
    half = half_a_cluster(redis="redis_url" in values, mongo="mongo_uri" in values)
    if half is not None:
        sentences.append(half)
    problems += dict.fromkeys(sentences)
    return None


def _sentence(error: ErrorDetails, model: type[Settings], origins: Mapping[str, Origin]) -> str:
    name = str(error["loc"][0])
    within = [f"secret {part + 1}" if isinstance(part, int) else part for part in error["loc"][1:]]
    field = model.model_fields[name]
    rule = error["msg"] if error["type"] == "refused" else _rule(field, within)
    instead = f", not {error['input']}" if _is_plain_number(field, error["input"]) else ""
    return f"{', '.join([name.upper(), *within])} {rule}{instead} ({_PLACES[origins[name]]})."


def _rule(field: FieldInfo, within: list[str]) -> str:
    """The rule for the values of the field, or of this part of it, as a sentence."""
    if within and within[-1] in _TIMES:
        return "must be a time with its offset, such as 2026-01-31T12:00:00Z"
    if get_origin(field.annotation) is Literal:
        return f"must be one of {', '.join(get_args(field.annotation))}"
    if field.annotation is bool:
        return "must be true or false"
    bounds = _bounds(field)
    if bounds is None:
        return "must be a string"
    return (
        f"must be a {'whole ' if field.annotation in {int, int | None} else ''}number from {bounds[0]} to {bounds[1]}"
    )


def _bounds(field: FieldInfo) -> tuple[Any, Any] | None:
    low = [each.ge for each in field.metadata if isinstance(each, annotated_types.Ge)]
    high = [each.le for each in field.metadata if isinstance(each, annotated_types.Le)]
    return (low[0], high[0]) if low and high else None


def _is_plain_number(field: FieldInfo, given: object) -> bool:
    # A value is repeated only if it cannot be a secret: a number in a field for numbers.
    return _bounds(field) is not None and re.fullmatch(r"-?[0-9]{1,12}(\.[0-9]{1,6})?", str(given)) is not None


# --- a starter file --------------------------------------------------------------------------------------------------


def fresh_config_text(model: type[Settings], tables: Sequence[str] = (), *, app: str | None = None) -> str:
    """The text of a starter ``holdfast.toml`` with newly made secrets. Write it so that only its owner can read it.

    ``tables`` are the features' own parts: TOML tables with the settings that have no useful default. ``app`` names the
    user's app; None: only a comment shows how to name one.
    """
    own = '# app = "..."' if app is None else f"app = {json.dumps(app)}"
    head = _HEAD.format(operator_token=fresh_secret(), app_help=model.model_fields["holdfast_app"].description, app=own)
    written = {name for name in model.model_fields if any(f"[{name}]" in table for table in tables)}
    return head + "\n".join(_defaults(model, _LEFT_OUT | written)) + "\n" + "".join(f"\n{each}" for each in tables)


def _defaults(model: type[Settings], left_out: frozenset[str]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if name in left_out:
            continue
        default = field.get_default()
        example = '"..."' if default is None else json.dumps(str(default) if isinstance(default, Path) else default)
        yield f"\n# {field.description}\n# {name} = {example}"
