"""The ``holdfast.toml`` that ``holdfast init`` writes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .settings import Settings

_SECRET_BYTES: Final = 32
_WRITTEN_BELOW: Final = frozenset({"operator_token", "courier_secrets", "holdfast_demo"})

_HEAD: Final = """\
# Holdfast's settings. The environment wins over this file: API_PORT=9000 over api_port = 8080.
# This file holds secrets: keep it out of version control, and readable by you alone.
# `holdfast config show` prints what is in force, and where each value comes from.

# Bearer token for dead letters and other operator work.
operator_token = "{operator_token}"

# Everything below is the default; remove the # to change it.
"""

_COURIERS: Final = """\

# The secrets that couriers sign with, newest first. To rotate: put the new secret first, give it to the courier, and
# remove the old secret when it is no longer used. A secret may also have limits in time:
#   {{ secret = "...", notBefore = 2026-01-01T00:00:00Z, notAfter = 2026-12-31T23:59:59Z }}
[courier_secrets]
courier-x = ["{courier_secret}"]
"""


def fresh_config_text() -> str:
    """The text of a starter ``holdfast.toml`` with newly made secrets. Write it so that only its owner can read it."""
    head = _HEAD.format(operator_token=secrets.token_urlsafe(_SECRET_BYTES))
    couriers = _COURIERS.format(courier_secret=secrets.token_urlsafe(_SECRET_BYTES))
    return head + "\n".join(_defaults()) + "\n" + couriers


def _defaults() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        if name in _WRITTEN_BELOW:
            continue
        default = field.get_default()
        example = '"..."' if default is None else json.dumps(str(default) if isinstance(default, Path) else default)
        yield f"\n# {field.description}\n# {name} = {example}"
