"""The tenant of the demo: whose emails and documents they are, and the key that it shows."""

from __future__ import annotations

import json
from typing import Final

from .leftovers import COMPANY_ID
from .stage import Stage, Surprise

TENANT: Final = "Demo Shop"


def api_key(stage: Stage) -> str:
    """The tenant's API key. The first chapter that needs one makes the tenant."""
    if stage.api_key is None:
        stage.narrator.say("Who sends emails and documents is a tenant, and shows a key. The operator makes both.")
        stage.run("tenants", "add", TENANT, "--id", COMPANY_ID, "--json")
        stage.api_key = _made_key(stage.run("keys", "create", COMPANY_ID, "--json"))
        stage.narrator.say("A key is shown once, when it is made, and only its hash is kept.")
    return stage.api_key


def _made_key(printed: str) -> str:
    try:
        return str(json.loads(printed)["key"])
    except (ValueError, KeyError, TypeError):
        message = "no key was made"
        raise Surprise(message) from None
