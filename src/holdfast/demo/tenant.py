"""The tenant of the demo, the owner of its emails and documents, and the tenant's API key."""

from __future__ import annotations

import json
from typing import Final

from .leftovers import COMPANY_ID
from .stage import Stage, Unexpected

TENANT: Final = "Demo Shop"


def api_key(stage: Stage) -> str:
    """The tenant's API key. The first chapter that needs the key creates the tenant."""
    if stage.api_key is None:
        stage.narrator.say(
            "Emails and documents come from tenants. A tenant has an API key. The operator creates both."
        )
        stage.run("tenants", "add", TENANT, "--id", COMPANY_ID, "--json")
        stage.api_key = _made_key(stage.run("keys", "create", COMPANY_ID, "--json"))
        stage.narrator.say("A key is shown once, when it is created. Only its hash is stored.")
    return stage.api_key


def _made_key(printed: str) -> str:
    try:
        return str(json.loads(printed)["key"])
    except (ValueError, KeyError, TypeError):
        message = "no key was made"
        raise Unexpected(message) from None
