"""Keeping secrets and personal data out of errors, logs and dead letters (I14)."""

from __future__ import annotations

import re
from typing import Final

MAX_MESSAGE: Final = 500
_MOST_READ: Final = 4_000
"""Of longer text, only so much is searched. Senders choose some of the text, and searching takes processor time."""
_UNSURE: Final = 500
"""So much is left out at the end of a text that was cut: the cut may have gone through the middle of a secret."""

# Each expression takes time that grows with the text, not with its square: a run is tried from its start only, and
# never given back (`*+`). tests/unit/test_expressions.py feeds them their worst cases.
_RULES: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"(://)[^\s/@]++@"), r"\1***@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), r"\1 ***"),
    (
        re.compile(
            r"(?i)((?:password|passwd|secret|token|api[_-]?key|authorization|signature)\"?\s*[=:]\s*\"?)[^\s\"',;&]+"
        ),
        r"\1***",
    ),
    (
        re.compile(
            r"(?<![A-Za-z0-9._%+-])([._%+-]*+[A-Za-z0-9])[A-Za-z0-9._%+-]*+"
            r"@([A-Za-z0-9])[A-Za-z0-9-]*+(?:\.[A-Za-z0-9-]+)*\.([A-Za-z]{2,})\b"
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
    cut = len(text) > _MOST_READ
    text = text[:_MOST_READ].encode("utf-8", "replace").decode().replace("\0", "?")
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = _BARE_CNPJ.sub(_masked_if_cnpj, text)
    if cut and not text.endswith("***"):
        text = text[: max(0, len(text) - _UNSURE)]
    return text if len(text) <= MAX_MESSAGE and not cut else text[: MAX_MESSAGE - 1] + "…"


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
