"""Keeping secrets and personal data out of errors, logs and dead letters (I14)."""

from __future__ import annotations

import re
from typing import Final

MAX_MESSAGE: Final = 500

_RULES: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@]+@"), r"\1***@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), r"\1 ***"),
    (
        re.compile(
            r"(?i)\b([\w-]*(?:password|passwd|secret|token|api[_-]?key|authorization|signature))(\"?\s*[=:]\s*\"?)[^\s\"',;&]+"
        ),
        r"\1\2***",
    ),
    (
        re.compile(
            r"\b([A-Za-z0-9])[A-Za-z0-9._%+-]*@([A-Za-z0-9])[A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*\.([A-Za-z]{2,})\b"
        ),
        r"\1***@\2***.\3",
    ),
    (re.compile(r"\b\d{3}\.?\d{3}\.?\d{3}-?\d{2}\b"), "***CPF***"),
    (re.compile(r"\b[0-9A-Z]{2}\.[0-9A-Z]{3}\.[0-9A-Z]{3}/[0-9A-Z]{4}-?\d{2}\b"), "***CNPJ***"),
    (re.compile(r"\b\d{14}\b"), "***CNPJ***"),
    (re.compile(r"\b(?:\d[ -]?){15}\d\b"), "***CARD***"),
)


def scrub(text: str) -> str:
    """Mask what looks like a credential, an address or a tax number, and cap the length.

    The result is text that every store can keep: NUL and half characters (file names have them) become ``?``.
    """
    text = text.encode("utf-8", "replace").decode().replace("\0", "?")
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"
