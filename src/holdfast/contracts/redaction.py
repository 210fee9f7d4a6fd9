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

# An alphanumeric CNPJ without punctuation looks like any identifier. Only the check digits show the difference.
_BARE_CNPJ: Final = re.compile(r"(?<![^\W_])(?:[0-9A-Z]{8}/?[0-9A-Z]{4}|[0-9a-z]{8}/?[0-9a-z]{4})-?\d{2}(?![^\W_])")


def scrub(text: str) -> str:
    """Mask what looks like a credential, an address or a tax number, and cap the length.

    The result is text that every store can keep: NUL and half characters (file names have them) become ``?``.
    """
    text = text.encode("utf-8", "replace").decode().replace("\0", "?")
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = _BARE_CNPJ.sub(_masked_if_cnpj, text)
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def _masked_if_cnpj(found: re.Match[str]) -> str:
    bare = re.sub(r"[/-]", "", found[0]).upper()
    return "***CNPJ***" if cnpj_check_digits(bare[:12]) == bare[12:] else found[0]


def cnpj_check_digits(base: str) -> str:
    """The two check digits of a CNPJ: modulo 11, a letter counting as its code less that of ``0``."""
    for _ in range(2):
        total = sum((ord(each) - ord("0")) * (2 + place % 8) for place, each in enumerate(reversed(base)))
        rest = total % 11
        base += str(11 - rest if rest > 1 else 0)
    return base[12:]
