"""The ``holdfast.toml`` that ``holdfast init`` writes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from .settings import Settings

_SECRET_BYTES: Final = 32
_LEFT_OUT: Final = frozenset({"operator_token", "holdfast_demo"})

_HEAD: Final = """\
# Holdfast's settings. The environment wins over this file: API_PORT=9000 over api_port = 8080.
# This file holds secrets: keep it out of version control, and readable by you alone.
# `holdfast config show` prints what is in force, and where each value comes from.

# Bearer token for dead letters and other operator work.
operator_token = "{operator_token}"

# Everything below is the default; remove the # to change it.
"""


def fresh_secret() -> str:
    """A random secret, as text."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def fresh_config_text(model: type[Settings], tables: Sequence[str] = ()) -> str:
    """The text of a starter ``holdfast.toml`` with newly made secrets. Write it so that only its owner can read it.

    ``tables`` are the features' own parts: TOML tables with the settings that have no useful default.
    """
    head = _HEAD.format(operator_token=fresh_secret())
    written = {name for name in model.model_fields if any(f"[{name}]" in table for table in tables)}
    return head + "\n".join(_defaults(model, _LEFT_OUT | written)) + "\n" + "".join(f"\n{each}" for each in tables)


def _defaults(model: type[Settings], left_out: frozenset[str]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if name in left_out:
            continue
        default = field.get_default()
        example = '"..."' if default is None else json.dumps(str(default) if isinstance(default, Path) else default)
        yield f"\n# {field.description}\n# {name} = {example}"
