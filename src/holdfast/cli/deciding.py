"""Who decides, and why: for the commands with which people decide."""

from __future__ import annotations

from pydantic import ValidationError

from holdfast.api.operators import DecisionBody
from holdfast.contracts.validation import sentence_of

from .failures import Stop
from .options import user_name


def decision(actor: str | None, reason: str) -> DecisionBody:
    """Actor and reason, checked by the same rules as over HTTP."""
    try:
        return DecisionBody(actor=actor or user_name(), reason=reason)
    except ValidationError as error:
        sentences = [f"--{each['loc'][0]} {sentence_of(each)}." for each in error.errors(include_url=False)]
        raise Stop(*sentences) from None
